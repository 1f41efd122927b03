"""How much the suite's own timing adds to a step: suite-timed and bare steps, alternating in one process.

Run: pytest tests/benchmarks/test_overhead.py -s [--case ID]   (its first line on stdout is the result)
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from perf.case import Lane, find_case
from perf.probes.step_time import timed_step
from perf.rfdetr_api import Stepper, build, fit
from perf.rfdetr_steering import steered
from perf.session import gpu_count
from perf.suites import suite as cases_of
from perf.workload import make_samples

# What the issue allows: the suite's figure over the bare loop's.
MOST = 1.01
ROUNDS = {"cpu": 40, "gpu": 60}


def _bare_step(stepper: Stepper, batch: Any) -> float:
    """Time one step with nothing of the suite around it; return seconds."""
    started = time.perf_counter()
    stepper.step(batch)
    stepper.synchronize()
    return time.perf_counter() - started


def _alternate(stepper: Stepper, benchmark: Any, rounds: int) -> tuple[float, float]:
    """Return the median seconds of suite-timed and of bare steps, one of each in turn."""
    bare: list[float] = []

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        bare.append(_bare_step(stepper, stepper.prepare()))
        return (stepper, stepper.prepare()), {}

    for _ in range(5):
        timed_step(stepper, stepper.prepare())
    benchmark.pedantic(timed_step, setup=setup, rounds=rounds, iterations=1)
    return median(benchmark.stats.stats.data), median(bare[-rounds:])


@pytest.mark.filterwarnings("default")
def test_overhead(benchmark: Any, tmp_path: Path, request: pytest.FixtureRequest, capsys: Any) -> None:
    lane: Lane = "gpu" if gpu_count() else "cpu"
    asked = request.config.option.case
    case = find_case(asked[0]) if asked else cases_of("main", lane)[0]
    found: list[tuple[float, float]] = []
    with steered(case):
        built = build(case, tmp_path)
        samples = make_samples(case, built.resolution)
        fit(built, samples, lambda stepper: found.append(_alternate(stepper, benchmark, ROUNDS[case.lane])))
    [(suite, bare)] = found
    with capsys.disabled():
        print(f"\n{case.id}: suite {1e3 * suite:.3f} ms, bare {1e3 * bare:.3f} ms, ratio {suite / bare:.4f}")
    assert suite / bare <= MOST
