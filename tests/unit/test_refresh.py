from __future__ import annotations

from typing import Any

import pytest
from factories import (
    CPU_COMPILED,
    CPU_EAGER,
    GPU_EAGER,
    H200,
    a_baseline,
    a_record,
    a_request,
    a_signal,
    an_environment,
    parts,
    proof,
    runs_of,
)

from perf.baselines import Baseline
from perf.case import Case
from perf.record import Kind, Record, Signal
from perf.refresh import Change, refresh

BREAKS = a_signal("graph_breaks", 1, parts=parts(a=1))
OPS = a_signal("aten_ops", 1000, "count-volume")
CALLS = a_signal("python_calls", 500, "count-volume")


def runs(*signals: Signal, count: int = 2, **changes: Any) -> list[Record]:
    return [a_record(signals, run=run, **changes) for run in range(count)]


def valued(signal: Signal, value: float) -> Signal:
    return signal.model_copy(update={"value": value, "parts": []})


def later(records: list[Record], old: Baseline, **changes: Any) -> tuple[Baseline, list[Change]]:
    done = refresh(records, old, a_request("faster attention", **changes))
    return done.baseline, done.changes


def test_the_first_approval_says_who_when_from_where_and_why() -> None:
    baseline = a_baseline(runs(BREAKS, OPS))
    (approval,) = baseline.approvals
    assert (approval.by, approval.reason, approval.date.isoformat()) == ("me", "first approval", "2026-07-01")
    assert (approval.runs, approval.rfdetr, approval.rfdetr_source) == (2, "1.11.2", "release 1.11.2")
    assert (approval.suite_commit, approval.host, approval.dirty) == ("c0ffee", "EPYC x8", False)
    assert baseline.made_with == {
        "python": "3.11",
        "transformers": "4.57.1",
        "pytorch_lightning": "2.6.0",
        "rfdetr": "1.11.2",
    }
    breaks = baseline.signal("graph_breaks")
    assert breaks
    assert (breaks.runs, breaks.parts, breaks.history) == ([1, 1], parts(a=1), [])


TRAINING = Case(config="nano", lane="cpu", batch_size=4, workers=0, measure="convergence")
MAP = a_signal("map", 0.8, "quality", direction="higher")


def test_more_seeds_are_taken_though_they_are_inside_the_gate() -> None:
    three = a_baseline(runs_of(MAP, (0.80, 0.82, 0.79), TRAINING))
    same, unchanged = later(runs_of(MAP, (0.80, 0.81, 0.79), TRAINING), three)
    more, changed = later(runs_of(MAP, (0.80, 0.81, 0.79, 0.82, 0.80), TRAINING), three)

    assert (same, unchanged) == (three, [])
    assert [signal.runs for signal in more.signals] == [[0.80, 0.81, 0.79, 0.82, 0.80]]
    assert [change.signal for change in changed] == ["map"]


def test_a_seed_that_two_sessions_trained_is_no_second_one() -> None:
    first, again = (runs_of(MAP, (0.80, 0.82), TRAINING, session=session) for session in ("s1", "s2"))

    with pytest.raises(ValueError, match="the same seed was trained in session s1"):
        a_baseline([*first, *again])


def test_values_inside_the_gate_stay_as_approved() -> None:
    old = a_baseline(runs(BREAKS, OPS))
    baseline, changes = later(runs(BREAKS, valued(OPS, 1005)), old)
    assert baseline == old
    assert changes == []


def test_only_what_is_outside_changes_and_keeps_its_past() -> None:
    old = a_baseline(runs(BREAKS, OPS))
    second, changes = later(runs(valued(BREAKS, 0), valued(OPS, 1005)), old)
    assert changes == [Change("graph_breaks", "", old=1, new=0, first=1)]
    third, changes = later(runs(valued(BREAKS, 3), valued(OPS, 1005)), second)
    assert changes == [Change("graph_breaks", "", old=0, new=3, first=1)]
    breaks, ops = third.signal("graph_breaks"), third.signal("aten_ops")
    assert breaks
    assert ops
    assert [(past.runs, past.approval) for past in breaks.history] == [([1, 1], 0), ([0, 0], 1)]
    assert (breaks.value, breaks.approval, ops.value, ops.approval) == (3, 2, 1000, 0)
    assert [approval.reason for approval in third.approvals] == ["first approval"] + ["faster attention"] * 2


def test_a_refresh_changes_neither_its_input_nor_itself() -> None:
    old = a_baseline(runs(BREAKS))
    before = old.model_copy(deep=True)
    first, again = later(runs(valued(BREAKS, 4)), old), later(runs(valued(BREAKS, 4)), old)
    assert old == before
    assert first == again


def test_new_signals_join_and_vanished_ones_retire_with_their_history() -> None:
    old = a_baseline(runs(BREAKS, OPS))
    second, changes = later(runs(OPS, CALLS), old)
    assert changes == [
        Change("python_calls", "", old=None, new=500, first=None),
        Change("graph_breaks", "", old=1, new=None, first=1),
    ]
    (gone,) = second.retired
    assert (gone.name, gone.approval, gone.history[0].runs) == ("graph_breaks", 1, [1, 1])
    third, _ = later(runs(OPS, CALLS, BREAKS), second)
    back = third.signal("graph_breaks")
    assert back
    assert [past.approval for past in back.history] == [0]
    assert third.retired == []


@pytest.mark.parametrize("kind", ["info", "count-strict"])
def test_a_signal_of_another_kind_does_not_keep_its_approval(kind: Kind) -> None:
    old = a_baseline(runs(BREAKS, OPS))
    baseline, changes = later(runs(BREAKS, OPS.model_copy(update={"kind": kind})), old)
    assert [change.signal for change in changes] == ["aten_ops"]
    assert [signal.name for signal in baseline.retired] == (["aten_ops"] if kind == "info" else [])
    assert [signal.kind for signal in baseline.signals] == ["count-strict"] * len(baseline.signals)


def test_another_transformers_replaces_everything() -> None:
    old = a_baseline(runs(BREAKS, OPS))
    baseline, changes = later(runs(BREAKS, OPS, environment=an_environment(transformers="5.0")), old)
    assert [change.signal for change in changes] == ["graph_breaks", "aten_ops"]
    assert baseline.made_with["transformers"] == "5.0"
    assert {signal.approval for signal in baseline.signals} == {1}


def test_another_python_replaces_only_the_python_calls() -> None:
    old = a_baseline(runs(OPS, CALLS))
    baseline, changes = later(runs(OPS, CALLS, environment=an_environment(python="3.12.1")), old)
    assert [change.signal for change in changes] == ["python_calls"]
    assert baseline.made_with["python"] == "3.12"


def test_a_wall_value_beyond_its_tolerance_is_taken_anew() -> None:
    wall = a_signal("step_time", 100, "wall", "ms")
    old = a_baseline(runs_of(wall, [99, 101, 100], GPU_EAGER))
    _, changes = later(runs_of(wall, [79.5, 80, 79.8], GPU_EAGER), old)
    assert [change.signal for change in changes] == ["step_time"]


@pytest.mark.parametrize("kind", ["wall", "device"])
def test_a_change_of_time_or_memory_has_the_interval_of_its_ratio(kind: Kind) -> None:
    signal = a_signal("it", 0, kind, "ms")
    _, (change,) = later(
        runs_of(signal, [79.5, 80, 79.8], GPU_EAGER), a_baseline(runs_of(signal, [99, 101], GPU_EAGER))
    )
    assert change.interval
    assert change.interval.ratio == pytest.approx(0.7977, abs=1e-4)
    assert change.interval.low < change.interval.ratio < change.interval.high < 1


@pytest.mark.parametrize(
    ("signal", "before", "now"),
    [
        (OPS, [1000, 1000], [2000, 2000]),
        (a_signal("gpu_busy", 0, "device", "ms"), [16], [12]),
        (a_signal("peak_memory", 0, "device", "MB"), [0, 0], [5, 5.1]),
    ],
    ids=["a count", "one run a side", "a value that is not above 0"],
)
def test_what_has_no_ratio_of_runs_has_no_interval(signal: Signal, before: list[float], now: list[float]) -> None:
    _, (change,) = later(runs_of(signal, now, GPU_EAGER), a_baseline(runs_of(signal, before, GPU_EAGER)))
    assert change.interval is None


def test_an_inconclusive_wall_value_stays() -> None:
    wall = a_signal("step_time", 100, "wall", "ms")
    old = a_baseline(runs_of(wall, [99, 101], GPU_EAGER))
    assert later(runs_of(wall, [90, 118], GPU_EAGER), old) == (old, [])


def test_a_change_of_unit_has_no_drift() -> None:
    old = a_baseline(runs_of(a_signal("gpu_busy", 0, "device", "ms"), [16], GPU_EAGER))
    baseline, changes = later(runs_of(a_signal("gpu_busy", 0, "device", "s"), [0.016], GPU_EAGER), old)
    assert changes == [Change("gpu_busy", "s", old=None, new=0.016, first=None)]
    assert baseline.signals[0].history[0].unit == "ms"


DIRTY = an_environment(rfdetr_commit="abc", rfdetr_dirty=True)
OTHER_TORCH = an_environment(torch_minor="2.13")
UNNAMED = an_environment(rfdetr_source="local rf-detr")
REFUSED: dict[str, tuple[list[Record], str]] = {
    "failed": (
        [*runs(OPS), a_record([OPS], run=2, status="failed", error="boom")],
        r"nano-cpu-b2 run 2 \(session s1\) is failed, not finished",
    ),
    "running": (runs(OPS, status="running"), "run 0 .* is running, not finished"),
    "no records": ([], "the runs of one case, not of none"),
    "two cases": ([a_record([OPS]), a_record([OPS], GPU_EAGER)], "one case, not of nano-cpu-b2, nano-b4"),
    "two devices": ([a_record([OPS]), a_record([OPS], run=1, environment=H200)], "device cpu and nvidia-h200"),
    "two minors": ([a_record([OPS]), a_record([OPS], run=1, environment=OTHER_TORCH)], "torch_minor 2.14 and 2.13"),
    "dirty": (runs(OPS, environment=DIRTY), "rfdetr had uncommitted changes"),
    "dirty suite": (runs(OPS, environment=an_environment(suite_dirty=True)), "rfdetr-perf had uncommitted changes"),
    "unnamed": (runs(OPS, environment=UNNAMED), "neither a commit nor a release"),
    "too few": (runs(OPS, count=1), "1 runs, and the baseline has 2; measure 2, or pass --allow-fewer-runs"),
    "half a signal": ([a_record([OPS, CALLS]), a_record([OPS], run=1)], "'python_calls' is in 1 of 2 runs"),
    "nothing to hold": (runs(a_signal("step_time", 1, "wall", "s")), "no signal that a baseline could hold"),
    "not compiled": (runs(OPS, *proof(9, 2), case=CPU_COMPILED), "not compiled, so no baseline"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_become_a_baseline(name: str) -> None:
    records, why = REFUSED[name]
    old = a_baseline(runs(OPS)) if records and records[0].case == CPU_EAGER else None
    with pytest.raises(ValueError, match=why):
        refresh(records, old, a_request("because"))


def test_every_refused_run_is_named() -> None:
    records = [a_record([OPS], status="failed"), a_record([OPS], run=1), a_record([OPS], run=2, status="running")]
    with pytest.raises(ValueError, match=r"run 0 .* is failed, .*\n.* run 2 .* is running"):
        refresh(records, None, a_request("because"))


@pytest.mark.parametrize("reason", ["", " \n"])
def test_a_refresh_needs_a_reason(reason: str) -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        refresh(runs(OPS), None, a_request(reason))


@pytest.mark.parametrize("environment", [DIRTY, UNNAMED])
def test_a_dirty_source_can_be_insisted_on(environment: Any) -> None:
    done = refresh(runs(OPS, environment=environment), None, a_request(allow_dirty=True))
    assert done.baseline.approvals[0].dirty == bool(environment.rfdetr_dirty)


def test_fewer_runs_can_be_insisted_on() -> None:
    baseline, _ = later(runs(valued(OPS, 5), count=1), a_baseline(runs(OPS)), allow_fewer_runs=True)
    assert baseline.signals[0].runs == [5]


def test_a_commit_is_a_named_source() -> None:
    environment = H200.model_copy(update={"rfdetr_source": "git+https://x", "rfdetr_commit": "abc"})
    records = runs(OPS, case=GPU_EAGER, environment=environment)
    assert a_baseline(records).approvals[0].rfdetr_commit == "abc"
