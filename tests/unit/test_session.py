from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from factories import CPU_COMPILED, CPU_EAGER, GPU_EAGER, a_baseline, a_record, a_signal, an_environment, proof

from perf import session as sessions
from perf.baselines import write_baseline
from perf.case import Case, Lane
from perf.dataset import read_data_set
from perf.environment import software
from perf.gpus import GpuState
from perf.judge import GATED
from perf.launch import RunFailed, has_finished
from perf.record import Record, write_record
from perf.session import (
    Session,
    bad_input,
    chosen_cases,
    lacking,
    new_name,
    nothing_measured,
    on_data,
    reasons,
    worker_threads,
)
from perf.shapes import ShapesSpec, write_shapes
from perf.suites import suite

OPS = a_signal("aten_ops", 1000, "count-volume")


def a_session(root: Path, **changes: Any) -> Session:
    values: dict[str, Any] = {
        "name": "s1",
        "folder": root / "records" / "s1",
        "baselines": root / "baselines",
        "cases": (CPU_EAGER,),
        "runs": None,
        "gate": tuple(sorted(GATED)),
        "patch": None,
        "timeout": 60.0,
    }
    return Session(**(values | changes))


def leave(session: Session, record: Record) -> None:
    write_record(session.order(record.case, record.run).record_path, record)


@pytest.fixture(params=[0, 2])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    count: int = request.param
    monkeypatch.setattr(sessions, "gpu_count", lambda: count)
    return count


def test_auto_is_the_gpu_lane_or_the_cpu_lane_and_its_skips(gpus: int) -> None:
    assert chosen_cases([], "auto") == (
        suite("main", "gpu") if gpus else (*suite("main", "cpu"), *suite("main", "gpu"))
    )


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("lane", ["cpu", "gpu"])
def test_a_lane_asked_for_is_that_lane_alone(lane: Lane) -> None:
    assert chosen_cases([], lane) == suite("main", lane)
    assert chosen_cases([], lane, "shapes") == suite("shapes", lane)


@pytest.mark.usefixtures("gpus")
def test_cases_asked_for_are_taken_once_and_in_order_whatever_the_lane() -> None:
    asked = [CPU_COMPILED.id, GPU_EAGER.id, CPU_COMPILED.id]

    assert chosen_cases(asked, "cpu") == (CPU_COMPILED, GPU_EAGER)


def test_an_unknown_case_names_the_closest_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown case 'nano_b4'; the closest: nano-b4, "):
        chosen_cases(["nano-b4", "nano_b4"], "auto")


def test_a_name_is_the_time_and_fits_a_file_name() -> None:
    assert re.fullmatch(r"\d{8}T\d{6}Z-\d+", new_name())


@pytest.mark.parametrize(
    ("workers", "threads"), [(1, (16, 32)), (2, (8, 16)), (14, (1, 2)), (16, (1, 2)), (40, (1, 1))]
)
def test_workers_share_the_cores(workers: int, threads: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)

    shares = worker_threads(workers)
    assert (shares["OMP_NUM_THREADS"], shares["TORCHINDUCTOR_COMPILE_THREADS"]) == tuple(map(str, threads))


def test_a_case_gets_its_lanes_runs_unless_told(tmp_path: Path) -> None:
    assert [a_session(tmp_path).runs_of(case) for case in (CPU_EAGER, GPU_EAGER)] == [1, 3]
    assert [a_session(tmp_path, runs=7).runs_of(case) for case in (CPU_EAGER, GPU_EAGER)] == [7, 7]


def test_an_order_carries_what_the_session_was_told(tmp_path: Path) -> None:
    order = a_session(tmp_path, patch=Path("fix.py")).order(CPU_EAGER, 4)

    assert (order.case, order.session, order.run, order.patch) == (CPU_EAGER, "s1", 4, Path("fix.py"))
    assert order.record_path.is_relative_to(tmp_path / "records" / "s1")


def test_records_are_the_sessions_own_of_one_case_or_all(tmp_path: Path) -> None:
    session, other = a_session(tmp_path), a_session(tmp_path, name="s2", folder=tmp_path / "records" / "s2")
    assert session.records() == session.records(CPU_EAGER) == []
    leave(session, a_record([OPS]))
    leave(session, a_record(proof(), CPU_COMPILED))
    leave(other, a_record([OPS]))

    assert [record.case_id for record in session.records()] == ["nano-cpu-b2", "nano-cpu-b2-compile"]
    assert [record.case_id for record in session.records(CPU_COMPILED)] == ["nano-cpu-b2-compile"]


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    session = a_session(tmp_path)
    leave(session, a_record([OPS]))
    path = session.order(CPU_EAGER, 0).record_path
    path.write_text(path.read_text()[:40])

    with pytest.raises(ValueError, match=r"run-0\.record\.json"):
        session.records()


def test_judging_uses_the_sessions_baselines_gate_and_folder(tmp_path: Path) -> None:
    session = a_session(tmp_path)
    write_baseline(session.baselines, a_baseline([a_record([OPS])]))
    worse = a_record([a_signal("aten_ops", 2000, "count-volume")])

    judgement = session.judge([worse])
    assert judgement.exit_code == 1
    assert str(session.folder) in judgement.cases[0].signals[0].refresh
    assert a_session(tmp_path, gate=("count-strict",)).judge([worse]).exit_code == 3


def test_an_expected_case_without_a_record_fails(tmp_path: Path) -> None:
    judgement = a_session(tmp_path).judge([], ["nano-cpu-b2"])

    assert judgement.exit_code == 1
    assert "left no record" in judgement.summary


def test_reasons_name_the_verdict_and_only_the_signals_that_made_it(tmp_path: Path) -> None:
    failed = a_record([OPS], status="failed", error="Traceback\nValueError: no loss")
    [case] = a_session(tmp_path).judge([a_record([OPS], run=1), failed]).cases

    assert reasons(case).splitlines() == ["nano-cpu-b2: failed", "run 0: did not finish: ValueError: no loss"]


def test_a_session_that_measured_nothing_is_no_success_and_says_why_once() -> None:
    assert nothing_measured([]).summary == "nothing was measured: no test of the suite ran"
    judgement = nothing_measured(["no GPU", "no GPU", "too old"])
    assert judgement.summary == "nothing was measured: no GPU; too old"
    assert judgement.exit_code == 3


def test_bad_input_has_its_own_exit_code() -> None:
    assert bad_input(ValueError("x.json: truncated")).exit_code == 2
    assert bad_input(ValueError("x.json: truncated")).summary.endswith("x.json: truncated")


@pytest.mark.parametrize(("status", "done"), [("finished", True), ("failed", False), ("running", False)])
def test_a_run_is_done_once_it_has_finished(status: Any, done: bool, tmp_path: Path) -> None:
    session = a_session(tmp_path)
    order = session.order(CPU_COMPILED, 0)
    assert not has_finished(order)
    leave(session, a_record([], CPU_COMPILED, status=status, command=order.command))
    assert has_finished(order) == done


@pytest.mark.parametrize("change", [{"untimed": True}, {"patch": Path("fix.py")}])
def test_a_run_of_another_command_is_not_done(change: dict[str, Any], tmp_path: Path) -> None:
    session = a_session(tmp_path)
    leave(session, a_record([], CPU_COMPILED, command=session.order(CPU_COMPILED, 0).command))
    other = a_session(tmp_path, **change)
    assert not has_finished(other.order(CPU_COMPILED, 0))


def test_half_a_record_is_measured_again(tmp_path: Path) -> None:
    session = a_session(tmp_path)
    path = session.order(CPU_COMPILED, 0).record_path
    path.parent.mkdir(parents=True)
    path.write_text('{"schema_version": 1,')
    assert not has_finished(session.order(CPU_COMPILED, 0))


def test_a_session_is_resumed_with_what_it_was_begun_with(tmp_path: Path) -> None:
    session = a_session(tmp_path)
    here = an_environment(**software())
    leave(session, a_record([], CPU_COMPILED, environment=here))
    session.check_resumed()
    leave(session, a_record([], CPU_EAGER, environment=here.model_copy(update={"transformers": "5.1.0"})))
    with pytest.raises(ValueError, match=r"it was measured with transformers 5.1.0, now .*; start a new session"):
        session.check_resumed()


@pytest.mark.parametrize("changed", [False, True])
def test_a_session_goes_on_with_the_data_that_it_learned_from(tmp_path: Path, changed: bool) -> None:
    data = write_shapes(tmp_path, ShapesSpec(2, 1))
    workload = f"cells {'0123456789ab' if changed else read_data_set(data).digest[:12]}, 200 steps"
    trained = Case(config="nano", lane="cpu", batch_size=4, measure="convergence", data="cells")
    environment = an_environment(**software(), workload=workload)
    session = a_session(tmp_path, cases=(trained,), data=data)
    leave(session, a_record([OPS], trained, environment=environment))

    if changed:
        with pytest.raises(ValueError, match=r"the data set changed since .*: cells 0123456789ab"):
            session.check_resumed()
    else:
        session.check_resumed()


@pytest.mark.parametrize("name", [".", "..", "", "s2", "s1/nano-cpu-b2"])
def test_only_a_session_can_be_resumed(name: str, tmp_path: Path) -> None:
    (tmp_path / "records" / "s1" / "nano-cpu-b2").mkdir(parents=True)
    session = a_session(tmp_path, name=name, folder=tmp_path / "records" / name)
    with pytest.raises(ValueError, match="no such session in "):
        session.check_resumed()


@pytest.mark.parametrize(
    ("case", "here", "lacks"),
    [
        (Case(config="nano"), 0, "needs an NVIDIA GPU, and NVML shows none on this machine"),
        (Case(config="nano"), 1, ""),
        (Case(config="nano", devices=2), 0, "needs an NVIDIA GPU, and NVML shows none on this machine"),
        (Case(config="nano", devices=2), 1, "needs 2 GPUs, NVML shows 1"),
        (Case(config="nano", devices=2), 4, ""),
        (Case(config="nano", lane="cpu", devices=2), 0, ""),
        (
            Case(config="nano", lane="cpu", devices=2, nodes=2),
            *(0, "needs 2 nodes: start it with torchrun or srun (docs/clusters.md)"),
        ),
    ],
)
def test_a_case_says_what_the_machine_lacks(case: Case, here: int, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states = [GpuState(index=index) for index in range(here)]
    monkeypatch.setattr("perf.gpus.gpu_states", lambda: states)
    monkeypatch.setattr(sessions, "gpu_count", lambda: here)

    assert lacking(case) == lacks


TRAINING = Case(config="nano", lane="cpu", batch_size=4, workers=0, measure="convergence")


def test_trainings_move_to_the_data_set_that_is_given(tmp_path: Path) -> None:
    on_cells = TRAINING.model_copy(update={"data": "blood-cells"})
    cells = tmp_path / "Blood Cells"

    assert on_data([TRAINING, CPU_EAGER], None) == (TRAINING, CPU_EAGER)
    assert on_data([TRAINING, CPU_EAGER], cells) == (on_cells, CPU_EAGER)
    assert on_data([on_cells], cells) == (on_cells,)
    fit = Case(config="nano", measure="fit")
    assert on_data([fit], cells) == (fit.model_copy(update={"data": "blood-cells"}),)
    assert a_session(tmp_path, cases=(fit,), data=cells).order(fit, 0).data == cells


@pytest.mark.parametrize("data", [None, Path("other")])
def test_a_training_on_data_that_are_not_given_is_told(data: Path | None) -> None:
    with pytest.raises(ValueError, match=r"reads 'cells': give the folder of that name with --data"):
        on_data([TRAINING.model_copy(update={"data": "cells"})], data)


def test_data_without_a_training_is_told() -> None:
    with pytest.raises(ValueError, match="none of these cases trains"):
        on_data([CPU_EAGER], Path("cells"))


def test_all_seeds_of_a_training_go_together_but_those_that_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = a_session(tmp_path, cases=(TRAINING,), runs=3, at_once=2, data=tmp_path)
    finished = session.order(TRAINING, 1)
    write_record(finished.record_path, a_record(case=TRAINING, run=1, command=finished.command))
    asked: list[Any] = []

    def train(orders: Any, at_once: int, *_: Any) -> dict[Any, Any]:
        asked.append((at_once, [order.run for order in orders], {order.data for order in orders}))
        return {orders[0]: RunFailed("boom"), orders[1]: a_record()}

    monkeypatch.setattr(sessions, "run_together", train)
    told: list[str] = []

    failed = session.train(TRAINING, told.append)

    assert asked == [(2, [0, 2], {tmp_path})]
    assert list(failed) == [0]
    assert told == [f"{TRAINING.id} run 1: measured already"]


def test_one_seed_tells_of_a_collapse(tmp_path: Path) -> None:
    assert a_session(tmp_path).runs_of(TRAINING.model_copy(update={"lane": "gpu"})) == 1
