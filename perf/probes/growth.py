"""What a steady step does to memory: what it leaves behind, and on a CPU how much it holds at once.

To the byte on a CPU, from the allocator's own events: the resident set of a process says neither.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable
from typing import Any

from perf.gates import GROWTH, HELD
from perf.probes.trace import export_all
from perf.probes.work import collector_off
from perf.record import Signal
from perf.rfdetr_api import Stepper

_MARK, _MEMORY = "perf-step", "[memory]"


def step_memory(stepper: Stepper, steps: int = 4) -> list[Signal]:
    """Return the bytes by which each step makes memory grow, and on a CPU the most that a step holds of its own.

    Growth is the least of ``steps`` in a row: a cache that fills up is no leak. A GPU's peak is ``peak_memory``.
    After each step the garbage collector runs, and never amid one: what it still has to free is no leak either.
    """
    with collector_off():
        gc.freeze()  # what is there already is no step's garbage, and looking through all of torch takes a second
        try:
            return _measured(stepper, steps)
        finally:
            gc.unfreeze()


def _measured(stepper: Stepper, steps: int) -> list[Signal]:
    if stepper.device.type == "cuda":
        return [_growth(_allocated(stepper, steps))]
    changes = by_step(_allocations(stepper, steps))
    return [_growth([sum(step) for step in changes]), _held(changes)]


def _growth(each: list[float]) -> Signal:
    # Below 0 where a step frees what one before left; two that alternate so do not grow.
    return Signal(name=GROWTH, kind="count-strict", unit="B", value=max(0.0, min(each)))


def _held(changes: list[list[float]]) -> Signal:
    most = min(max(itertools.accumulate(step, initial=0.0)) for step in changes)
    return Signal(name=HELD, kind="count-volume", unit="B", value=most)


def _step(stepper: Stepper) -> None:
    stepper.step(stepper.prepare())
    gc.collect()


def _allocated(stepper: Stepper, steps: int) -> list[float]:
    import torch

    found = []
    for _ in range(steps + 1):
        _step(stepper)
        stepper.synchronize()
        found.append(float(torch.cuda.memory_allocated()))
    return [after - before for before, after in itertools.pairwise(found)]


def _allocations(stepper: Stepper, steps: int) -> list[dict[str, Any]]:
    """Return the events of ``steps`` and one before: what that one frees was allocated unseen."""
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(steps + 1):
            _step(stepper)
            with record_function(_MARK):
                pass
    return export_all(profiler)


def by_step(events: Iterable[dict[str, Any]]) -> list[list[float]]:
    """Return the bytes that each step after the first mark allocates and, below 0, frees: in order."""
    steps: list[list[float]] = []
    named = [event for event in events if event.get("name") in (_MARK, _MEMORY)]
    for event in sorted(named, key=lambda event: event["ts"]):
        if event["name"] == _MARK:
            steps.append([])
        elif steps and event["args"].get("Device Type", 0) == 0:
            steps[-1].append(float(event["args"]["Bytes"]))
    return steps[:-1]  # what comes after the last mark is the profiler's end
