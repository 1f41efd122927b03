"""Traces: one step under torch.profiler, as a flat list of events, each with the phase it belongs to."""

from __future__ import annotations

import bisect
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.probes.phases import OTHER, phase_hooks
from perf.rfdetr_api import Stepper

MARK = "perf-phase:"
LAUNCHES = ("cuda_runtime", "cuda_driver")
KERNEL = "kernel"
OP = "cpu_op"
ON_GPU = (KERNEL, "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Event:
    """One profiler event. ``category`` is Kineto's (``cpu_op``, ``kernel``, ``cuda_runtime``, ...); times in us."""

    category: str
    name: str
    start: float
    duration: float
    phase: str


def capture(stepper: Stepper) -> list[Event]:
    """Run one step under the profiler and return its events.

    The device is synchronized before the profiler stops, so that every kernel of the step is in it; that
    synchronization is outside the step and is left out.
    """
    from torch.profiler import record_function

    def enter(phase: str) -> None:
        with record_function(MARK + phase):
            pass

    batch = stepper.prepare()
    stepper.synchronize()
    with phase_hooks(stepper, enter), profiling(stepper) as profiler:
        enter(OTHER)
        stepper.step(batch)
        enter("end")
        stepper.synchronize()
    return parse(export(profiler))


def without_ops(events: list[Event]) -> list[Event]:
    """Return ``events`` less the host's ops: most of them, and not needed of every step."""
    return [event for event in events if event.category != OP]


def profiling(stepper: Stepper) -> Any:
    """Return torch's profiler of the host and of the device that the model is on: a context manager."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if stepper.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities)


def export(profiler: Any) -> list[dict[str, Any]]:
    """Return the events of a profile that have a duration, as a Chrome trace has them."""
    return _lasting(export_all(profiler))


def export_all(profiler: Any) -> list[dict[str, Any]]:
    """Return the events of a profile as a Chrome trace has them: those of an instant, such as allocations, too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return _events(path)


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Return the events of the Chrome trace at ``path`` that have a duration."""
    return _lasting(_events(path))


def _events(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def _lasting(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event.get("ph") == "X"]


def parse(raw: Iterable[dict[str, Any]]) -> list[Event]:
    """Return the events of a Chrome trace that lie inside the step.

    A GPU event belongs to the phase in which the host launched it, found by CUPTI's correlation id.
    """
    raw = list(raw)
    marks = sorted((e["ts"], e["name"].removeprefix(MARK)) for e in raw if e["name"].startswith(MARK))
    launched = {correlation(e): e["ts"] for e in raw if e.get("cat") in LAUNCHES and correlation(e) is not None}
    events = []
    for event in raw:
        on_gpu = event.get("cat") in ON_GPU
        time = launched.get(correlation(event), event["ts"]) if on_gpu else event["ts"]
        phase = phase_at(marks, time)
        if phase is not None and not event["name"].startswith(MARK):
            events.append(Event(event.get("cat", ""), event["name"], event["ts"], event.get("dur", 0.0), phase))
    return events


def correlation(event: dict[str, Any]) -> Any:
    """Return the number that a GPU event shares with the call that launched it; None where it has none."""
    return event.get("args", {}).get("correlation")


def phase_at(marks: list[tuple[float, str]], time: float) -> str | None:
    """Return the phase that runs at ``time``, or None before the first mark and after the last."""
    index = bisect.bisect_right(marks, time, key=lambda mark: mark[0]) - 1
    return None if index < 0 or marks[index][1] == "end" else marks[index][1]
