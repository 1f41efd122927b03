"""A/B sessions of trainings: paired seeds, several at once, base and head perhaps of two cases. Nothing is trained."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from factories import a_record, a_signal, an_environment, proof

from perf import ab_runs
from perf.ab import judge_again, measure
from perf.case import Case
from perf.cli import _parser
from perf.dataset import read_data_set
from perf.experiment import SEED_PAIRS, Experiment, Manifest, experiment_of, recorded, side_of
from perf.judge import GATED
from perf.launch import RunFailed
from perf.record import Record, write_record
from perf.run_order import Order
from perf.shapes import ShapesSpec, write_shapes

EAGER = Case(config="nano", lane="cpu", batch_size=4, workers=0, measure="convergence")
COMPILED = EAGER.model_copy(update={"compile": True, "backend": "eager"})
SEEDS = (0.80, 0.82, 0.79, 0.81, 0.805, 0.80)
NOISE = (0.001, -0.002, 0.003, 0.0, -0.001, 0.001)


class Bench:
    """Trainings that take no time: the head's mAP is the base's less ``loss``, and a little noise."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.loss, self.runs, self.told = folder, 0.0, list[str](), list[str]()
        self.failing: set[str] = set()
        self.workload = "shapes 0123, 120 steps"
        monkeypatch.setattr(ab_runs, "run_together", self.train)

    def train(
        self,
        orders: Sequence[Order],
        at_once: int,
        tell: Callable[[str], None],
        timeout: float,
        name: Callable[[Order], str],
    ) -> dict[Order, Record | RunFailed]:
        self.at_once = at_once
        return {order: self._one(order) for order in orders}

    def _one(self, order: Order) -> Record | RunFailed:
        name = f"{order.folder.name}{order.run}"
        self.runs.append(name)
        head = order.folder.name == "head"
        value = SEEDS[order.run] - (self.loss - NOISE[order.run] if head else 0)
        signals = [a_signal("map", value, "quality", direction="higher"), a_signal("final_loss", 2, "quality")]
        signals += proof() if order.case.compile else []
        failed = name in self.failing
        changes: dict[str, Any] = {
            "environment": an_environment(workload=self.workload),
            "session": order.session,
            "command": order.command,
            "status": "failed" if failed else "finished",
            "error": "E: boom" if failed else None,
        }
        record = a_record(signals, order.case, order.run, **changes)
        write_record(order.record_path, record)
        return RunFailed("boom", record) if failed else record

    def experiment(self, pairs: int = 6, **changes: Any) -> Experiment:
        base, head = (side_of(name, Path(sys.executable)) for name in ("1.11.1", "1.11.2"))
        values: dict[str, Any] = {"cases": [EAGER.id], "pairs": pairs, "gate": sorted(GATED)}
        manifest = Manifest(base=base, head=head, **(values | changes))
        cases = [COMPILED if manifest.against else EAGER]
        manifest = manifest.model_copy(update={"cases": [cases[0].id]})
        return Experiment(
            manifest, cases, self.folder, self.told.append, baselines=self.folder / "baselines", at_once=3
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "ab-1", monkeypatch)


def test_both_sides_train_the_same_seeds_at_once_and_are_looked_at_once(bench: Bench) -> None:
    judgement = measure(bench.experiment())

    assert bench.runs == [f"{side}{seed}" for seed in range(6) for side in ("base", "head")]
    assert bench.at_once == 3
    assert len([line for line in bench.told if "look" in line]) == 1
    [row] = [row for row in judgement.cases[0].signals if row.signal == "map"]
    assert (judgement.exit_code, row.verdict) == (0, "pass")
    assert "over 6 seeds, margin 0.03" in row.message


@pytest.mark.parametrize(("loss", "code"), [(0.1, 1), (0.015, 0), (-0.1, 4)])
def test_a_head_that_learns_worse_regresses(bench: Bench, loss: float, code: int) -> None:
    bench.loss = loss

    assert measure(bench.experiment()).exit_code == code


def test_the_margin_is_the_session_s_own(bench: Bench) -> None:
    bench.loss = 0.05

    assert measure(bench.experiment(margin=0.1)).exit_code == 0
    [row] = [row for row in judge_again(recorded(bench.folder, bench.folder)).cases[0].signals if row.signal == "map"]
    assert "margin 0.1" in row.message
    assert "--margin 0.1" in row.reproduce


def test_a_session_goes_on_with_the_seeds_that_are_missing(bench: Bench) -> None:
    first = measure(bench.experiment())
    (bench.folder / "head" / EAGER.id / "run-4.record.json").unlink()
    bench.runs.clear()

    assert measure(bench.experiment()) == first
    assert bench.runs == ["head4"]


def test_a_session_does_not_go_on_with_data_that_changed(bench: Bench, tmp_path: Path) -> None:
    data = write_shapes(tmp_path, ShapesSpec(2, 1))
    bench.workload = f"shapes {read_data_set(data).digest[:12]}, 200 steps"
    measure(bench.experiment(data=data))
    assert measure(bench.experiment(data=data)).exit_code == 0

    file = data / "valid" / "00000.png"
    file.write_bytes(file.read_bytes() + bytes(1))
    with pytest.raises(ValueError, match="the data set changed since nano-cpu-b4-w0-convergence run 0"):
        measure(bench.experiment(data=data))


def test_a_training_that_failed_is_no_pass_and_stays_failed(bench: Bench) -> None:
    bench.failing = {"head2"}

    assert measure(bench.experiment()).exit_code == 1
    bench.runs.clear()
    assert measure(bench.experiment()).exit_code == 1
    assert bench.runs == []


def test_eager_is_held_against_compiled_which_must_have_compiled(bench: Bench) -> None:
    judgement = measure(bench.experiment(against=EAGER.id, gate=["quality"]))

    [case] = judgement.cases
    assert (judgement.exit_code, case.case_id) == (0, COMPILED.id)
    assert (bench.folder / "base" / EAGER.id / "run-5.record.json").is_file()
    [row] = [row for row in case.signals if row.signal == "map"]
    assert f"--base-case {EAGER.id} --case {COMPILED.id} --pairs 6" in row.reproduce
    assert judge_again(recorded(bench.folder, bench.folder)) == judgement


def test_sides_that_learned_from_other_data_are_not_compared(bench: Bench) -> None:
    measure(bench.experiment())
    for path in (bench.folder / "head").rglob("*.record.json"):
        path.write_text(path.read_text().replace("120 steps", "240 steps"))

    assert judge_again(bench.experiment()).exit_code == 3


def options(tmp_path: Path, *words: str) -> argparse.Namespace:
    told = ["ab", "--same", "--lane", "cpu", "--records", str(tmp_path), *words]
    return _parser().parse_args(told)


def test_the_suite_asks_for_eight_seeds_and_no_note_on_time(tmp_path: Path) -> None:
    told: list[str] = []

    experiment = experiment_of(options(tmp_path, "--suite", "convergence"), told.append)

    assert experiment.manifest.pairs == SEED_PAIRS == 8
    assert told == []


def test_a_base_case_needs_one_head_and_two_trainings(tmp_path: Path) -> None:
    one = ["--base-case", EAGER.id, "--case", COMPILED.id]
    found = experiment_of(options(tmp_path, *one), lambda _: None).manifest
    assert (found.against, found.gate) == (EAGER.id, ["quality"])
    for wrong in ([*one, "--case", "nano-cpu-b2"], ["--base-case", "nano-cpu-b2", "--case", COMPILED.id]):
        with pytest.raises(ValueError, match="give one --case, and let both be trainings"):
            experiment_of(options(tmp_path, *wrong), lambda _: None)


@pytest.mark.parametrize("base", ["nano-cpu-b4-w0-convergence-s100", "nano-b16-convergence"])
def test_a_base_case_that_learns_by_another_recipe_is_told_before_anything_trains(tmp_path: Path, base: str) -> None:
    with pytest.raises(ValueError, match=f"--base-case {base}: it trains ") as told:
        experiment_of(options(tmp_path, "--base-case", base, "--case", EAGER.id), lambda _: None)

    assert f"{EAGER.id} 200 steps, lr 0.0016" in str(told.value)
    same = ["--base-case", "nano-cpu-b4-w0-convergence-s200", "--case", COMPILED.id]
    assert experiment_of(options(tmp_path, *same), lambda _: None).manifest.against == same[1]


def test_a_base_case_that_is_the_head_is_unchanged_code(tmp_path: Path) -> None:
    asked = options(tmp_path, "--base-case", EAGER.id, "--case", EAGER.id)
    asked.same = False

    with pytest.raises(ValueError, match="base and head are the same Python and the same patch"):
        experiment_of(asked, lambda _: None)


def test_a_wrong_data_set_is_told_before_anything_trains(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    with pytest.raises(ValueError, match="no data set that is known"):
        experiment_of(options(tmp_path, "--suite", "convergence", "--data", str(tmp_path / "cells")), lambda _: None)


@pytest.mark.parametrize("margin", ["0", "1", "x"])
def test_a_margin_lies_between_0_and_1(tmp_path: Path, margin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, "--margin", margin)
    assert "is no margin" in capsys.readouterr().err
