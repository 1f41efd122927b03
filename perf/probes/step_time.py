"""Step time, by pytest-benchmark in pedantic mode."""

from __future__ import annotations

from statistics import median
from typing import Any

from perf.record import Signal
from perf.rfdetr_api import Stepper


def timed_step(stepper: Stepper, batch: Any) -> None:
    """Run one step and wait for the device: what a timer goes around."""
    stepper.step(batch)
    stepper.synchronize()


def step_time(stepper: Stepper, benchmark: Any, rounds: int) -> Signal:
    """Return the wall time per step in ms over ``rounds`` steps, taken by the pytest-benchmark fixture.

    Preparing the batch is outside the timed part. The value is the run's median, robust against the host's
    stray pauses; every sample is kept.
    """

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (stepper, stepper.prepare()), {}

    benchmark.pedantic(timed_step, setup=setup, rounds=rounds, iterations=1, warmup_rounds=0)
    samples = [1e3 * seconds for seconds in benchmark.stats.stats.data]
    return Signal(name="step_time", kind="wall", unit="ms", value=median(samples), samples=samples)
