"""Calibration, from records that a stand-in leaves; .ci/run calibrates the real cpu lane in small."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import CPU_EAGER, GPU_EAGER, a_record, a_signal

from perf import ab_runs
from perf.calibrate import Plan, calibrate
from perf.case import Case
from perf.cli import main
from perf.environment import machine
from perf.record import write_record
from perf.report.calibration import document, place
from perf.run_order import Order

ORDINARY = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Runs that take no time, and are as much slower as their patch file says."""
    orders: list[Order] = []

    def run(order: Order, tell: Callable[[str], None], timeout: float) -> None:
        orders.append(order)
        slowed = _slowed_by(order.patch)
        base = ORDINARY[order.run if order.session.endswith("base") else -1 - order.run]
        signals = [
            a_signal("step_time", base + 1e3 * slowed[0], "wall", "ms"),
            a_signal("gpu_busy", 10 + base / 1e5 + 1e3 * slowed[1], "device", "ms"),
            a_signal("aten_ops", 7, "count-volume"),
            a_signal("c_calls", 9 + order.run % 2, "count-volume"),
        ]
        signals = signals if order.case.lane == "gpu" else [s for s in signals if s.name != "gpu_busy"]
        record = a_record(signals, order.case, order.run, session=order.session, command=order.command)
        write_record(order.record_path, record)

    monkeypatch.setattr(ab_runs, "run_in_fresh_process", run)
    return orders


def _slowed_by(patch: Path | None) -> tuple[float, float]:
    """Return the seconds of the host and of the GPU that a patch file asks for, by running it."""
    found = [(0.0, 0.0)]
    if patch:
        text = patch.read_text().replace("from perf.rfdetr_slowdown import slow_down", "")
        exec(text, {"slow_down": lambda *seconds: found.append(seconds)})
    return found[-1]


def a_plan(folder: Path, case: Case, pairs: int = 10, slowdowns: tuple[float, ...] = (10.0,)) -> Plan:
    return Plan([case], pairs, slowdowns, folder, folder / "baselines", lambda _: None, Path(sys.executable))


def test_both_sides_are_one_rfdetr_and_a_slowed_head_is_found(asked: list[Order], tmp_path: Path) -> None:
    found = calibrate(a_plan(tmp_path, GPU_EAGER))
    unchanged, slowed = found.trials
    assert {row.verdict for row in unchanged.verdict.signals if row.kind in ("wall", "device")} == {"pass"}
    assert {row.signal for row in slowed.verdict.signals if row.verdict == "regressed"} == {"step_time", "gpu_busy"}
    assert (unchanged.percent, slowed.percent) == (0, 10)
    assert len(asked) == 2 * 2 * 10
    assert not any(order.patch for order in asked if order.session.endswith("base"))


def test_no_two_calibrations_have_a_session_in_common(asked: list[Order], tmp_path: Path) -> None:
    calibrate(a_plan(tmp_path / "calibrate-1", CPU_EAGER))
    names = [f"calibrate-1/nano-cpu-b2/{what}/{side}" for what in ("unchanged", "plus-10") for side in ("base", "head")]
    assert {order.session for order in asked} == set(names)
    assert all(order.folder == (tmp_path / order.session).resolve() for order in asked)


def test_the_slowdown_is_a_share_of_what_was_measured(asked: list[Order], tmp_path: Path) -> None:
    [found] = [t for t in calibrate(a_plan(tmp_path, GPU_EAGER)).trials if t.percent]
    [step] = [row for row in found.verdict.signals if row.signal == "step_time"]
    assert step.change == pytest.approx(0.1 * 100, rel=0.05)


def test_a_slowed_trial_may_take_fewer_pairs(asked: list[Order], tmp_path: Path) -> None:
    plan = a_plan(tmp_path, GPU_EAGER, slowdowns=(1.0, 10.0))._replace(slowed_pairs=2)
    trials = calibrate(plan).trials
    assert len(asked) == 2 * (10 + 2 + 2)
    for trial in trials[1:]:
        verdicts = {row.signal: row.verdict for row in trial.verdict.signals}
        assert (trial.pairs, verdicts["gpu_busy"], verdicts["step_time"]) == (2, "regressed", "inconclusive")


def test_a_calibration_that_goes_on_repeats_nothing(asked: list[Order], tmp_path: Path) -> None:
    first = calibrate(a_plan(tmp_path, CPU_EAGER))
    runs = len(asked)
    assert calibrate(a_plan(tmp_path, CPU_EAGER)) == first
    assert len(asked) == runs


def test_one_pair_tells_nothing_of_scatter(asked: list[Order], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 pairs of runs tell nothing of their scatter"):
        calibrate(a_plan(tmp_path, CPU_EAGER, pairs=1))


COMMAND = ("--case", "nano-cpu-b2", "--pairs", "2", "--slowdowns", "10", "--sessions", "10")


def test_a_document_of_another_processor_stays_and_nothing_is_measured_in_vain(
    asked: list[Order], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    command = ["calibrate", *COMMAND, "--records", str(records), "--out", str(out)]
    assert main(command) == 0
    runs, document, [session] = len(asked), (out / "cpu.md").read_text(), records.iterdir()
    assert "Measured with EPYC x8; torch " in document
    assert main(command) == 2
    here = machine("cpu")[1]
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"rfdetr-perf: {out}/cpu.md: it is of EPYC x8, the new one of {here}: "
        "write to another folder with --out, or replace it with --force"
    )
    assert (len(asked), (out / "cpu.md").read_text()) == (runs, document)
    # Its records are of the processor of the document, whatever this one is.
    assert main([*command, "--resume", session.name]) == 0
    assert len(asked) == runs
    assert main([*command[:-1], str(tmp_path / "elsewhere"), "--records", str(tmp_path / "more")]) == 0
    assert main([*command, "--force", "--records", str(tmp_path / "most")]) == 0
    assert len(asked) == 3 * runs


@pytest.mark.parametrize("processor", ["AMD EPYC x2", "Intel(R) Core(TM) i7 CPU @ 2.60GHz x8", "odd  `name` x1"])
@pytest.mark.parametrize("gpu", [{}, {"gpu_name": "NVIDIA H200", "driver": "580.1"}])
def test_a_document_is_replaced_by_one_of_its_own_processor_only(
    asked: list[Order], tmp_path: Path, processor: str, gpu: dict[str, str]
) -> None:
    found = calibrate(a_plan(tmp_path, CPU_EAGER, pairs=2))
    model, _, count = processor.rpartition(" x")
    changes = {"cpu_model": model, "cpu_count": int(count), **gpu}
    found = found._replace(environment=found.environment.model_copy(update=changes))
    path = tmp_path / "cpu.md"
    path.write_text(document(found, 10, "rfdetr-perf calibrate"))
    assert place(tmp_path, "cpu", processor) == path
    with pytest.raises(ValueError, match=r"cpu\.md: it is of .*, the new one of Other x2: "):
        place(tmp_path, "cpu", "Other x2")
    assert place(tmp_path, "cpu", "Other x2", force=True) == path


def test_what_does_not_name_its_processor_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "cpu.md").write_text("# Notes\n")
    with pytest.raises(ValueError, match="it does not say of which processor it is"):
        place(tmp_path, "cpu", "EPYC x2")
    assert place(tmp_path, "nvidia-h200", "EPYC x2") == tmp_path / "nvidia-h200.md"


def test_the_committed_documents_name_their_processor() -> None:
    documents = list((Path(__file__).parents[2] / "docs" / "calibration").glob("*.md"))
    for path in documents:
        with pytest.raises(ValueError, match=r"it is of .* x[0-9]+, the new one of Other x1"):
            place(path.parent, path.stem, "Other x1")
    assert documents


def test_the_document_tells_noise_counts_trials_and_rates(asked: list[Order], tmp_path: Path) -> None:
    text = document(calibrate(a_plan(tmp_path, GPU_EAGER)), 200, "rfdetr-perf calibrate")
    assert text.startswith("# Calibration: nvidia-h200\n")
    assert "Counts that were the same in all 20 runs: aten_ops. So each differs in fewer than 15 % of runs" in text
    assert "Counts that differed: c_calls 9 to 10." in text
    assert "| slower by 10 % | step_time | regressed |" in text
    assert "### `step_time`, simulated: at most 10 pairs" in text
    assert "A slowdown of 5 % is found in 95 % of sessions with about 10 pairs of runs." in text
    assert "### `gpu_busy`, simulated" in text
