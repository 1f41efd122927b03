"""A/B sessions: the order, the end and the resumption of runs. A stand-in leaves the records; tests/e2e runs rfdetr."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from factories import CPU_COMPILED, CPU_EAGER, a_record, a_signal, proof
from filelock import FileLock

from perf import ab, ab_runs
from perf.ab import judge_again, measure, measure_all
from perf.case import Case, Lane
from perf.cli import main
from perf.experiment import Experiment, Manifest, begin, read_manifest, recorded, side_of
from perf.judge import GATED
from perf.launch import RunFailed
from perf.pool import by_case
from perf.record import Kind, Record, read_record, write_record
from perf.record_files import take
from perf.run_order import MINOR_VARIABLE, Order

# Milliseconds of one run of a side.
Times = Callable[[Order], float]
ORDINARY = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.3)


def steady(order: Order) -> float:
    return ORDINARY[order.run]


class Bench:
    """Runs that take no time: each leaves the record of a step that took ``times`` milliseconds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.times: Times = steady
        self.busy: Times | None = None
        self.runs: list[str] = []
        self.told: list[str] = []
        self.stop_at = 10**6
        self.cold_runs: set[tuple[str, int]] = set()
        self.beside: list[list[str]] = []
        self.crashing: set[str] = set()
        monkeypatch.setattr(ab_runs, "run_in_fresh_process", self._run)
        monkeypatch.setattr(ab_runs, "run_together", self._run_together)

    def _run(self, order: Order, tell: Callable[[str], None], timeout: float) -> None:
        if len(self.runs) == self.stop_at:
            raise KeyboardInterrupt
        self.runs.append(f"{Path(order.session).name}{order.run}")
        if self.runs[-1] in self.crashing:
            order.crash_path.parent.mkdir(parents=True, exist_ok=True)
            order.crash_path.write_text("exit code 9 before a record was begun; log: run-0.log")
            raise RunFailed(self.runs[-1])
        time = self.times(order)
        signals = [a_signal("step_time", abs(time), "wall", "ms"), a_signal("aten_ops", 7, "count-volume")]
        signals += [a_signal("gpu_busy", self.busy(order), "device", "ms")] if self.busy else []
        if order.case.compile:
            misses = 16 if (Path(order.session).name, order.run) in self.cold_runs else 0
            signals += [*proof(), a_signal("inductor_cache_misses", misses, "info")]
        status = "finished" if time > 0 else "failed"
        changes = {"session": order.session, "command": order.command, "status": status}
        record = a_record(signals, order.case, order.run, **changes, error=None if time > 0 else "E: boom")
        write_record(order.record_path, record)
        if time <= 0:
            raise RunFailed(str(record.error), record)

    def _run_together(
        self,
        orders: Sequence[Order],
        at_once: int,
        tell: Callable[[str], None],
        timeout: float,
        name: Callable[[Order], str],
    ) -> dict[Order, Record | RunFailed]:
        assert len({order.turn for order in orders}) == 1
        self.beside.append([f"{name(order)}{order.case.id} {order.run}" for order in orders[:at_once]])
        return {order: self._outcome(order) for order in orders}

    def _outcome(self, order: Order) -> Record | RunFailed:
        assert order.turn
        try:
            self._run(order, self.told.append, 1)
        except RunFailed as failure:
            return failure
        return read_record(order.record_path)

    def experiment(self, pairs: int = 10, *, case: Case = CPU_EAGER, gate: frozenset[Kind] = GATED) -> Experiment:
        base, head = (side_of(name, Path(sys.executable)) for name in ("1.11.1", "1.11.2"))
        manifest = Manifest(base=base, head=head, cases=[case.id], pairs=pairs, gate=sorted(gate))
        return Experiment(manifest, [case], self.folder, self.told.append, baselines=self.folder / "baselines")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "ab-1", monkeypatch)


def slower(factor: float) -> Times:
    jitter = (1, 1.001, 0.999, 1.002, 1, 0.998, 1, 1.001, 1, 0.999)
    return lambda order: steady(order) * (factor * jitter[order.run] if order.session.endswith("head") else 1)


def test_runs_are_interleaved_abba_and_end_once_the_answer_is_clear(bench: Bench) -> None:
    bench.times = slower(1.0)
    judgement = measure(bench.experiment())
    assert bench.runs[:8] == ["base0", "head0", "head1", "base1", "base2", "head2", "head3", "base3"]
    assert len(bench.runs) < 20
    assert judgement.exit_code == 0
    assert bench.told[-1].startswith("nano-cpu-b2, look ")


def test_a_slower_head_is_regressed_with_the_command_that_measures_it_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MINOR_VARIABLE, raising=False)
    bench.times = slower(1.1)
    judgement = measure(bench.experiment())
    [row] = [row for row in judgement.cases[0].signals if row.signal == "step_time"]
    assert (row.verdict, judgement.exit_code) == ("regressed", 1)
    python = sys.executable
    assert row.reproduce == (
        f"rfdetr-perf ab --base 1.11.1 --base-python {python} --head 1.11.2 --head-python {python} "
        "--case nano-cpu-b2 --pairs 10"
    )
    monkeypatch.setenv(MINOR_VARIABLE, "2.14")
    [row] = [row for row in judge_again(bench.experiment()).cases[0].signals if row.signal == "step_time"]
    assert row.reproduce == "nox -s ab-2.14 -- --base 1.11.1 --head 1.11.2 --case nano-cpu-b2 --pairs 10"
    assert row.refresh == f'rfdetr-perf refresh {bench.folder / "head"} --case nano-cpu-b2 --reason "..."'


def test_a_noisy_machine_gets_all_pairs_and_then_how_many_more(bench: Bench) -> None:
    bench.times = lambda order: 100 + 37 * ((order.run * 7 + 3 * (order.session.endswith("head"))) % 5)
    judgement = measure(bench.experiment())
    assert len(bench.runs) == 20
    assert judgement.exit_code == 3
    assert "would" in judgement.summary


def test_a_session_of_too_few_pairs_says_in_its_report_that_it_proves_no_change(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.times = slower(1.5)
    judgement = measure(bench.experiment(4))
    [row] = [row for row in judgement.cases[0].signals if row.signal == "step_time"]
    assert (row.verdict, judgement.exit_code) == ("inconclusive", 3)
    told = "fewer than 8 pairs prove no change of time, however large"
    assert told in row.message
    for shown in ((), ("--json",)):
        assert main(["compare", str(bench.folder), *shown]) == 3
        assert told in capsys.readouterr().out


def test_without_wall_signals_one_look_is_enough(bench: Bench) -> None:
    gate: frozenset[Kind] = frozenset({"count-strict", "count-volume"})
    assert measure(bench.experiment(2, gate=gate)).exit_code == 0
    assert bench.runs == ["base0", "head0", "head1", "base1"]


@pytest.mark.parametrize(
    ("slower", "runs", "code"),
    [
        ({}, 4, 0),
        ({("head", 1): 1.5}, 6, 3),  # a disturbed run: no proof, and no pass
        ({("head", run): 1.05 for run in range(3)}, 6, 1),
    ],
)
def test_without_wall_signals_two_pairs_pass_and_a_third_confirms(
    bench: Bench, slower: dict[tuple[str, int], float], runs: int, code: int
) -> None:
    jitter = (1, 1.0004, 0.9997)
    bench.busy = lambda order: 16 * jitter[order.run] * slower.get((Path(order.session).name, order.run), 1)
    gate: frozenset[Kind] = frozenset({"count-strict", "count-volume", "device"})
    judgement = measure(bench.experiment(3, gate=gate))
    assert (len(bench.runs), judgement.exit_code) == (runs, code)
    assert judge_again(bench.experiment(3, gate=gate)) == judgement


TURNS = ("base", "head", "base")
COUNTS: frozenset[Kind] = frozenset({"count-strict", "count-volume"})


def test_without_wall_signals_all_sides_and_cases_of_a_pair_prepare_beside_each_other(bench: Bench) -> None:
    cases = [CPU_EAGER, CPU_COMPILED]
    wanted = bench.experiment(3, gate=COUNTS)
    manifest = wanted.manifest.model_copy(update={"cases": [case.id for case in cases]})

    assert measure(wanted._replace(cases=cases, manifest=manifest, at_once=4)).exit_code == 0

    first, second = bench.beside
    assert first == [f"{side}: {case.id} 0" for case in cases for side in ("base", "head")]
    assert second == [f"{side}: {case.id} 1" for case in cases for side in ("head", "base")]
    assert len(bench.runs) == 8


def test_beside_each_other_as_many_pairs_are_measured_as_count(bench: Bench) -> None:
    bench.cold_runs = {("base", 0), ("head", 0)}
    assert measure(bench.experiment(3, case=CPU_COMPILED, gate=COUNTS)._replace(at_once=2)).exit_code == 0
    assert [len(orders) for orders in bench.beside] == [2, 2, 2]


def test_beside_each_other_a_third_pair_confirms_too(bench: Bench) -> None:
    bench.busy = lambda order: 16 * (1.5 if (Path(order.session).name, order.run) == ("head", 1) else 1)
    gate: frozenset[Kind] = frozenset({"count-strict", "count-volume", "device"})
    assert measure(bench.experiment(3, gate=gate)._replace(at_once=2)).exit_code == 3
    assert [orders[0] for orders in bench.beside] == [f"{one}: nano-cpu-b2 {n}" for n, one in enumerate(TURNS)]
    assert len(bench.runs) == 6


def test_beside_each_other_a_run_that_fails_ends_its_case(bench: Bench) -> None:
    bench.times = lambda order: -1 if order.session.endswith("head") else 100
    assert measure(bench.experiment(3, gate=COUNTS)._replace(at_once=2)).exit_code == 1
    assert len(bench.runs) == 2
    assert "head: nano-cpu-b2 run 0 failed: E: boom" in bench.told


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize(("crashing", "runs", "code"), [("head0", 2, 1), ("head1", 4, 1), ("base0", 2, 3)])
def test_a_run_that_ends_before_its_record_is_no_pass_and_is_not_repeated(
    bench: Bench, at_once: int, crashing: str, runs: int, code: int
) -> None:
    bench.crashing = {crashing}
    experiment = bench.experiment(3, gate=COUNTS)._replace(at_once=at_once)
    judgement = measure(experiment)
    assert (len(bench.runs), judgement.exit_code) == (runs, code)
    assert f"run {crashing[-1]}: exit code 9 before a record was begun" in judgement.summary

    bench.crashing = set()
    assert measure(experiment) == judge_again(experiment) == judgement
    assert len(bench.runs) == runs


def test_where_files_cannot_be_locked_runs_follow_one_another(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab, "can_lock", lambda _: False)
    assert measure(bench.experiment(2, gate=COUNTS)._replace(at_once=2)).exit_code == 0
    assert (bench.beside, len(bench.runs)) == ([], 4)
    assert f"{bench.folder}: its file system locks no files, so that runs follow one another" in bench.told


def test_where_wall_time_decides_nothing_runs_beside(bench: Bench) -> None:
    measure(bench.experiment(2)._replace(at_once=4))
    assert bench.beside == []


@pytest.mark.parametrize(
    ("lane", "cpus", "gigabytes", "expected"),
    [("cpu", 16, 150, 1), ("gpu", 16, 150, 8), ("gpu", 1, 150, 1), ("gpu", 32, 16, 2), ("gpu", 16, 4, 1)],
)
def test_half_the_cores_of_a_gpu_s_machine_prepare_where_its_memory_holds_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lane: Lane, cpus: int, gigabytes: int, expected: int
) -> None:
    monkeypatch.setattr("perf.launch.usable_cpus", lambda: cpus)
    monkeypatch.setattr("perf.launch.gpu_memory_bytes", lambda: gigabytes * 10**9)
    assert bench.experiment(case=Case(config="nano", lane=lane), gate=COUNTS).runs_at_once == expected


def test_without_wall_signals_a_third_pair_that_is_there_counts(bench: Bench) -> None:
    # As sessions have it that were recorded when three pairs were measured whatever the first two said.
    jitter = (1, 1.0004, 1.02)
    bench.busy = lambda order: 16 * (jitter[order.run] if Path(order.session).name == "head" else 1)
    experiment = bench.experiment(3, gate=frozenset({"device"}))
    measure_all(experiment)

    assert judge_again(experiment).exit_code == 3
    assert measure(experiment).exit_code == 3
    assert len(bench.runs) == 6


def test_an_interrupted_session_loses_one_run_and_ends_as_if_it_had_not_been(bench: Bench) -> None:
    bench.stop_at = 5
    with pytest.raises(KeyboardInterrupt):
        measure(bench.experiment())
    before = list(bench.runs)
    bench.stop_at = 10**6
    resumed = measure(bench.experiment())
    assert len(bench.runs) == len(set(bench.runs))
    assert bench.runs[: len(before)] == before
    again = measure(bench.experiment())
    assert again == resumed
    assert again.exit_code == 0


def test_looks_of_a_resumed_session_see_no_further_than_they_did(bench: Bench) -> None:
    bench.times = slower(1.1)
    first = measure(bench.experiment())
    bench.told.clear()
    assert measure(bench.experiment()) == first
    assert len([line for line in bench.told if "look" in line]) == len(bench.experiment().looks(CPU_EAGER))


def test_a_session_goes_on_only_as_it_was_begun(bench: Bench) -> None:
    begin(bench.experiment(4))
    assert read_manifest(bench.folder).pairs == 4
    with pytest.raises(ValueError, match=r"ab-1: this session was asked for pairs 4, now 6; start a new one"):
        begin(bench.experiment(6))


def test_a_manifest_that_cannot_be_read_is_named(bench: Bench) -> None:
    begin(bench.experiment())
    (bench.folder / "ab.json").write_text('{"base":')
    with pytest.raises(ValueError, match=r"ab\.json"):
        read_manifest(bench.folder)


def test_a_head_that_fails_ends_the_case_at_once(bench: Bench) -> None:
    bench.times = lambda order: -1 if order.session.endswith("head") else 100
    judgement = measure(bench.experiment())
    assert bench.runs == ["base0", "head0"]
    assert judgement.exit_code == 1
    assert "boom" in judgement.summary


def test_a_base_that_fails_is_said_and_is_no_verdict_on_the_head(bench: Bench) -> None:
    bench.times = lambda order: -1 if order.session.endswith("base") else 100
    judgement = measure(bench.experiment())
    assert judgement.exit_code == 3
    [row] = [row for row in judgement.cases[0].signals if row.signal == "base"]
    assert row.message == "the base did not finish in run 0: E: boom"


def test_pairs_that_compiled_cold_do_not_count(bench: Bench) -> None:
    bench.cold_runs = {("base", 0)}
    bench.times = lambda order: steady(order) * (5 if order.run == 0 and order.session.endswith("base") else 1)
    judgement = measure(bench.experiment(6, case=CPU_COMPILED))
    [row] = [row for row in judgement.cases[0].signals if row.signal == "step_time"]
    assert row.now == pytest.approx(row.baseline, rel=0.01)
    assert "base6" not in bench.runs or "base7" not in bench.runs


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.1])
def test_its_records_give_the_same_verdicts_again(factor: float, bench: Bench) -> None:
    bench.times = slower(factor)
    first = measure(bench.experiment())
    assert judge_again(recorded(bench.folder, bench.folder / "baselines")) == first


def test_a_case_that_left_no_record_on_either_side_is_no_success(bench: Bench) -> None:
    judgement = judge_again(bench.experiment())
    assert judgement.exit_code == 1
    assert "missing" in judgement.summary


def test_a_session_that_stopped_before_its_second_case_is_no_success(bench: Bench) -> None:
    both = bench.experiment()
    cases = [CPU_EAGER, CPU_COMPILED]
    both = both._replace(cases=cases, manifest=both.manifest.model_copy(update={"cases": [case.id for case in cases]}))

    def stop(order: Order) -> float:
        if order.case.compile:
            raise KeyboardInterrupt
        return steady(order)

    bench.times = stop
    with pytest.raises(KeyboardInterrupt):
        measure(both)
    assert {case.case_id: case.verdict for case in judge_again(both).cases}[CPU_COMPILED.id] == "failed"


def test_a_run_that_failed_is_not_repeated_until_it_does_not(bench: Bench) -> None:
    bench.times = lambda order: -1 if order.session.endswith("head") else 100
    assert measure(bench.experiment()).exit_code == 1
    bench.times = steady
    assert measure(bench.experiment()).exit_code == 1
    assert bench.runs == ["base0", "head0"]


def test_a_base_that_fails_in_a_later_pair_is_no_pass(bench: Bench) -> None:
    gate: frozenset[Kind] = frozenset({"count-strict", "count-volume"})
    bench.times = lambda order: -1 if (order.session.endswith("base") and order.run == 1) else 100
    judgement = measure(bench.experiment(3, gate=gate))
    assert judgement.exit_code == 3
    assert "the base did not finish in run 1: E: boom" in judgement.summary


def test_a_patch_that_changed_is_another_session(bench: Bench, tmp_path: Path) -> None:
    patch = tmp_path / "fix.py"
    patch.write_text("slow = 1\n")
    experiment = bench.experiment()

    def with_patch() -> Experiment:
        side = side_of("1.11.2", Path(sys.executable), patch)
        return experiment._replace(manifest=experiment.manifest.model_copy(update={"head": side}))

    begin(with_patch())
    begin(with_patch())
    patch.write_text("slow = 2\n")
    with pytest.raises(ValueError, match="this session was asked for head"):
        begin(with_patch())


def test_two_processes_do_not_measure_one_session(bench: Bench) -> None:
    bench.folder.mkdir()
    with FileLock(bench.folder / "ab.lock"), pytest.raises(ValueError, match="another process measures this session"):
        measure(bench.experiment())


def two_sessions(bench: Bench) -> Path:
    """Measure two sessions of unchanged code, and return the folder that holds both."""
    for name in ("ab-1", "ab-2"):
        bench.folder = bench.folder.with_name(name)
        measure(bench.experiment(2, gate=COUNTS))
    return bench.folder.parent


def test_the_runs_of_two_sessions_are_no_copies_of_one_another(bench: Bench) -> None:
    folder = two_sessions(bench)
    found = take(folder).values()
    assert {record.session for record in found} == {f"ab-{n}/{side}" for n in (1, 2) for side in ("base", "head")}
    assert len(by_case(list(found))["nano-cpu-b2"]) == 8
    assert main(["report", str(folder)]) == main(["compare", str(folder), str(folder), "--gate", "count-volume"]) == 0


def test_real_copies_of_a_sessions_runs_are_named(bench: Bench) -> None:
    folder = two_sessions(bench)
    shutil.copytree(folder / "ab-1", folder / "copy")
    named = r"ab-1/base/.*run 0 \(session ab-1/base\)\n.*copy/base/(.|\n)*remove the copies"
    with pytest.raises(ValueError, match=named):
        take(folder)


def test_a_session_whose_sides_had_no_name_of_their_own_goes_on_and_is_judged_alike(bench: Bench) -> None:
    bench.times = slower(1.1)
    first = measure(bench.experiment())
    for path in bench.folder.rglob("*.record.json"):
        record = read_record(path)
        write_record(path, record.model_copy(update={"session": Path(record.session).name}))
    runs = list(bench.runs)
    assert measure(bench.experiment()) == judge_again(bench.experiment()) == first
    assert bench.runs == runs


def test_all_pairs_cold_tell_nothing_of_time(bench: Bench) -> None:
    bench.cold_runs = {(side, run) for side in ("base", "head") for run in range(9)}
    judgement = measure(bench.experiment(2, case=CPU_COMPILED))
    [row] = [row for row in judgement.cases[0].signals if row.signal == "step_time"]
    assert row.verdict is None
    assert len(bench.runs) == 2 * (2 + 2)
