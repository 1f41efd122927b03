from __future__ import annotations

import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import in_fit, squared_error

from perf.probes.step_time import step_time, timed_step
from perf.record import Signal
from perf.rfdetr_api import Stepper


def test_a_timed_step_waits_for_the_device() -> None:
    did: list[Any] = []
    stepper: Any = SimpleNamespace(step=did.append, synchronize=lambda: did.append("synchronize"))

    timed_step(stepper, "batch")

    assert did == ["batch", "synchronize"]


@pytest.mark.filterwarnings("default")
def test_step_time_is_the_median_of_every_round_in_ms(benchmark: Any) -> None:
    def slow(outputs: Any, targets: Any) -> Any:
        time.sleep(0.004)
        return squared_error(outputs, targets)

    def body(stepper: Stepper) -> tuple[Signal, int]:
        return step_time(stepper, benchmark, rounds=5), stepper.built.module.steps

    signal, steps = in_fit(body, slow)

    assert (signal.name, signal.kind, signal.unit) == ("step_time", "wall", "ms")
    assert len(signal.samples) == steps == 5
    assert signal.value == median(signal.samples)
    assert 4 <= min(signal.samples) < 1000


@pytest.mark.filterwarnings("default")
def test_preparing_the_batch_is_not_timed(benchmark: Any) -> None:
    prepared: list[float] = []

    def prepare() -> None:
        prepared.append(time.monotonic())
        time.sleep(0.1)

    signal = in_fit(lambda stepper: step_time(stepper, benchmark, rounds=3), at_batch_start=prepare)

    assert len(prepared) >= 3
    assert min(signal.samples) < 100
