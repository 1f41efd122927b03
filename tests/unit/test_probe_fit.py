"""What the passes make of what they saw; tests/e2e/test_fit.py runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.probes.fit import FIT_PLANS, FitPlan, turn
from perf.probes.fit_signals import cost_signals


@pytest.mark.parametrize("plan", FIT_PLANS.values())
def test_a_plan_has_updates_for_every_pass(plan: FitPlan) -> None:
    passes = plan.warmup + plan.timed + plan.profiled + plan.named + plan.memory
    # The first, two validations, and two to begin each profile with.
    assert plan.updates >= passes + 3 * plan.compared * plan.block + 1 + 2 + 4


def test_a_trace_that_is_too_large_is_dropped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perf import evidence

    trace = tmp_path / "trace.json"
    trace.write_bytes(bytes(range(256)) * 40)
    assert evidence.keep_profile(tmp_path / "run-0", trace) == []
    assert evidence.left_behind(tmp_path / "run-0") == ["run-0.profile.json.gz"]

    monkeypatch.setattr(evidence, "MOST_PROFILE_BYTES", 100)
    [note] = evidence.keep_profile(tmp_path / "run-0", trace)
    assert "the profiler's trace is not kept: 0 MB compressed" in note
    assert evidence.left_behind(tmp_path / "run-0") == []


def test_a_kept_trace_names_neither_the_machine_nor_its_folders(tmp_path: Path) -> None:
    import gzip
    import json

    from perf import evidence

    told = {"host_name": 'ho"st', "traceName": "/home/somebody/trace.json", "traceEvents": [{"name": "aten::mm"}]}
    (tmp_path / "trace.json").write_text(json.dumps(told), encoding="utf-8")
    assert evidence.keep_profile(tmp_path / "run-0", tmp_path / "trace.json") == []

    kept = json.loads(gzip.decompress((tmp_path / "run-0.profile.json.gz").read_bytes()))
    assert kept == {"host_name": "", "traceName": "", "traceEvents": [{"name": "aten::mm"}]}


def test_a_steady_drift_is_no_cost() -> None:
    """Every block is 1 ms faster than the one before; logging is free."""
    modes, rounds, clock = ["", "logging_cost", "sync_cost"], list[dict[str, float]](), iter(range(100, 0, -1))
    for number in range(6):
        rounds.append({mode: float(next(clock)) for mode in turn(modes, number)})

    assert {signal.name: signal.value for signal in cost_signals(rounds)} == {"logging_cost": 0, "sync_cost": 0}
