from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import in_fit

from perf.probes.growth import by_step, step_memory
from perf.record import Signal
from perf.rfdetr_api import Stepper

MIB = 2**20


def measured(at_batch_start: Any = None) -> dict[str, Signal]:
    def body(stepper: Stepper) -> list[Signal]:
        for _ in range(2):  # the optimizer's state is made in the first
            stepper.step(stepper.prepare())
        return step_memory(stepper)

    return {
        signal.name: signal for signal in in_fit(body, **({"at_batch_start": at_batch_start} if at_batch_start else {}))
    }


def test_a_step_that_leaves_nothing_behind_does_not_grow() -> None:
    growth = measured()["memory_growth"]

    assert (growth.kind, growth.unit, growth.value) == ("count-strict", "B", 0)


def test_what_every_step_keeps_is_counted_to_the_byte() -> None:
    kept: list[Any] = []
    found = measured(lambda: kept.append(torch.zeros(1000)))

    assert found["memory_growth"].value == 4000


def test_what_only_one_step_keeps_is_no_growth() -> None:
    kept: list[Any] = []

    def once() -> None:
        if not kept:
            kept.append(torch.zeros(1000))

    assert measured(once)["memory_growth"].value == 0


def test_what_waits_for_the_garbage_collector_is_no_growth() -> None:
    def circle() -> None:
        ring: list[Any] = [torch.zeros(1000)]
        ring.append(ring)

    assert measured(circle)["memory_growth"].value == 0
    assert gc.isenabled()


def test_the_most_that_a_step_holds_is_counted_though_it_is_freed_again() -> None:
    plain = measured()["step_memory"]
    more = measured(lambda: torch.zeros(MIB).sum())["step_memory"]

    assert plain.kind == "count-volume"
    assert plain.value < MIB < 4 * MIB <= more.value < 5 * MIB


def test_events_are_taken_in_order_between_the_marks_and_only_those_of_the_host() -> None:
    def memory(at: float, size: int, device: int = 0) -> dict[str, Any]:
        return {"name": "[memory]", "ts": at, "args": {"Bytes": size, "Device Type": device}}

    def mark(at: float) -> dict[str, Any]:
        return {"name": "perf-step", "ts": at}

    events = [
        memory(9, -3),
        mark(2),
        mark(6),
        memory(1, 100),
        memory(5, -8),
        memory(3, 8),
        memory(4, 7, 1),
        {"name": "x"},
    ]

    assert by_step(events) == [[8, -8]]


def test_on_a_gpu_the_allocator_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = iter([100, 612, 1124, 2000])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: next(allocated))
    stepper: Any = SimpleNamespace(
        device=torch.device("cuda"), prepare=lambda: 0, step=lambda _: None, synchronize=lambda: None
    )

    [growth] = step_memory(stepper, steps=3)

    assert (growth.name, growth.value) == ("memory_growth", 512)
