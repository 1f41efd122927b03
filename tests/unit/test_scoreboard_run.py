"""What is measured of a fault, and how it is judged; a run's process is replaced, tests/e2e runs the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import a_record, a_signal, an_environment

from perf import environment, launch, scoreboard_run
from perf.case import Case, find_case
from perf.faults import FAULTS, GPU_GRAPHS, Fault, line_of
from perf.launch import RunFailed
from perf.others import Opinion
from perf.record import PATCHED, Part, Record, write_record
from perf.run_order import Order
from perf.scoreboard import is_caught, line_told, problems
from perf.scoreboard_run import Bench, measure_beside, measure_fault, measure_unfaulted


def fault(fault_id: str) -> Fault:
    return next(one for one in FAULTS if one.id == fault_id)


OPS = fault("aten_op_blatant.nano-cpu-b2")


class Machine:
    """Stands for the fresh processes: what a run finds is ``counted``, and every order is kept."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.counted: Callable[[Order], float] = lambda order: 1400 if order.patch else 1000
        self.fails: Callable[[Order], str] = lambda _: ""

    def run(self, order: Order, tell: Any, timeout: float) -> Record:
        self.orders.append(order)
        value = self.counted(order)
        more = [Part(name="neg", value=value - 1000, where=[line_of(OPS)])] if value > 1000 else []
        signals = [
            a_signal("aten_ops", value, "count-volume", "ops", parts=[Part(name="mm", value=1000), *more]),
            a_signal("step_time", value, "wall", "ms", samples=[value]),
        ]
        source = "release 1.11.2" + (f"{PATCHED}{order.patch.name}" if order.patch else "")
        record = a_record(
            signals, order.case, order.run, command=order.command, environment=an_environment(rfdetr_source=source)
        )
        if problem := self.fails(order):
            record.status, record.error = "failed", problem
        write_record(order.record_path, record)
        if record.status == "failed":
            raise RunFailed(problem, record)
        return record


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(scoreboard_run, "run_in_fresh_process", found.run)
    monkeypatch.setattr("perf.ab_runs.run_in_fresh_process", found.run)
    monkeypatch.setattr(environment, "software", lambda: {"rfdetr": "1.11.2"})
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "scoreboard", lambda _: None)


def test_a_fault_is_held_against_its_unfaulted_twin(machine: Machine, bench: Bench) -> None:
    row = measure_fault(bench, OPS)

    assert [order.patch and order.patch.name for order in machine.orders] == [None, "aten_op_blatant.py"]
    assert (row.verdict, row.pairs) == ("regressed", 1)
    assert is_caught(row, OPS)
    assert line_told(row, OPS)
    assert row.benchmark is not None
    assert (row.benchmark.said, row.benchmark.percent) == ("fails", 40)


def test_what_was_measured_is_not_measured_again(machine: Machine, bench: Bench) -> None:
    first = measure_fault(bench, OPS)
    assert measure_fault(bench, OPS) == first
    measure_fault(bench, fault("aten_op_small.nano-cpu-b2"))

    assert [order.folder.name.rpartition("-")[0] for order in machine.orders] == [
        "",
        "aten_op_blatant",
        "aten_op_small",
    ]


def test_what_another_rfdetr_left_is_measured_again(
    machine: Machine, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_fault(bench, OPS)
    monkeypatch.setattr(environment, "software", lambda: {"rfdetr": "1.12.0"})
    measure_fault(bench, OPS)

    assert len(machine.orders) == 4


def test_a_fault_that_ends_the_run_is_a_verdict_too(machine: Machine, bench: Bench) -> None:
    machine.fails = lambda order: "RuntimeError: it broke" if order.patch else ""
    row = measure_fault(bench, OPS)

    assert row.verdict == "failed"
    assert [seen.signal for seen in row.seen] == ["run 0"]
    assert problems([row]) != []  # not by the signal that has to tell of it


def test_interleaved_runs_go_in_pairs_until_the_answer_is_clear(machine: Machine, bench: Bench) -> None:
    slow = fault("host_time_blatant.nano-cpu-b2")
    machine.counted = lambda order: (1500 if order.patch else 1000) + order.run
    row = measure_fault(bench, slow)

    assert 8 <= row.pairs <= slow.runs
    assert len(machine.orders) == 2 * row.pairs
    assert is_caught(row, slow)


def test_a_twin_that_breaks_in_interleaved_runs_is_told(machine: Machine, bench: Bench) -> None:
    machine.fails = lambda order: "" if order.patch else "RuntimeError: out of memory"
    with pytest.raises(ValueError, match=r"host_time_blatant.*: no pair of runs finished in .*: out of memory"):
        measure_fault(bench, fault("host_time_blatant.nano-cpu-b2"))


def test_on_a_gpu_all_runs_of_a_case_prepare_beside_each_other(
    machine: Machine, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[list[str]] = []

    def together(orders: list[Order], at_once: int, tell: Any, timeout: float, name: Callable[[Order], str]) -> None:
        assert {order.turn for order in orders} == {bench.folder / "turn.lock"}
        beside.append([f"{name(order)}{order.run}" for order in orders])
        for order in orders:
            machine.run(order, tell, timeout)

    monkeypatch.setattr(launch, "run_together", together)
    machine.counted = lambda order: 1500 if order.patch else 1000
    names = ("host_sync_small.nano-b4", "gpu_work_blatant.nano-b4", f"cuda_graph_small.{GPU_GRAPHS}")
    faults = [fault(name) for name in (*names, "aten_op_small.nano-cpu-b2")]
    measure_beside(bench, faults)

    eager, graphs = ([line.partition("/")[2] for line in lines] for lines in beside)
    sync, work, graph = (scoreboard_run._name(one) for one in faults[:3])
    pairs = [f"{work}/{side}: {run}" for run in range(3) for side in ("base", "head")]
    assert eager == ["unfaulted: 0", f"{sync}: 0", *pairs]
    assert graphs == ["unfaulted: 0", f"{graph}: 0"]
    assert measure_fault(bench, faults[0]).pairs == 1
    assert len(machine.orders) == 10
    assert measure_fault(bench, faults[1]).pairs == 3
    assert len(machine.orders) == 10


def test_a_training_is_held_against_the_stored_seeds_with_one_of_its_own(machine: Machine, bench: Bench) -> None:
    row = measure_fault(bench, fault("ema_blatant.nano-cpu-b4-w0-convergence"))

    assert [order.run for order in machine.orders] == [100]
    assert row.benchmark is None


def test_traceml_is_asked_of_the_same_fault_in_a_fit(
    machine: Machine, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, str, Path | None]] = []

    def measured(case: Case, folder: Path, *rest: Any) -> Path:
        asked.append((folder.name, case.id, rest[-1] and rest[-1].name))
        folder.mkdir(parents=True)
        (folder / "final_summary.json").write_text("{}")
        return folder

    monkeypatch.setattr(scoreboard_run, "run_traceml", measured)
    monkeypatch.setattr(scoreboard_run, "traceml_opinion", lambda *_: Opinion("fails", 7.0))
    bench = bench._replace(traceml=tmp_path / "python")
    row = measure_fault(bench, OPS)
    captured = measure_fault(bench, fault("graph_break_small.nano-cpu-b2-compile-eager"))

    # Each case in a folder of its own: two of one fault, or of two lanes, are not held against each other.
    twin = "nano-cpu-b2-fit"
    assert asked == [(twin, twin, None), (twin, twin, "aten_op_blatant.py")]
    assert row.traceml is not None
    assert row.traceml.percent == 7
    assert captured.traceml is None


def test_unfaulted_sessions_are_counted_and_so_are_false_alarms(machine: Machine, bench: Bench) -> None:
    machine.counted = lambda order: {3: 1100, 2: 1001}.get(order.run, 1000)
    rows = measure_unfaulted(bench, "nano-cpu-b2", 4)

    twins = next(row for row in rows if row.against == "first run")
    assert (twins.sessions, twins.alarms, twins.listed) == (4, 1, 1)
    assert (twins.benchmark_sessions, twins.benchmark_alarms) == (4, 1)  # 1001 to 1100; back to 1000 is no alarm
    assert find_case(twins.case_id).id == "nano-cpu-b2"


def test_pytest_benchmark_gets_the_unfaulted_run_that_is_closest_in_time(machine: Machine, bench: Bench) -> None:
    measure_unfaulted(bench, "nano-cpu-b2", 2)
    machine.counted = lambda order: 1400
    bench.record("unfaulted", find_case("nano-cpu-b2"), 3)
    row = measure_fault(bench, OPS)

    assert row.verdict == "regressed"  # against the first run
    assert row.benchmark is not None
    assert row.benchmark.percent == 0  # against the last
