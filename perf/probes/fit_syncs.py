"""Host syncs of a real fit, by source line: how many, and how long the host waits in them.

A wait is an upper bound of what a sync costs. Who does not wait there may wait at the next one, since the device has as
much to do: taking 150 of 164 syncs out of a step once bought 0.23 %.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from perf.probes.fit_profile import Raw, Window
from perf.probes.parts import Tally
from perf.probes.profile import NO_LINE, SYNCS
from perf.probes.source import function_of, line_of, user_frames
from perf.probes.trace import LAUNCHES, correlation
from perf.record import Part, Signal

UNTOLD = "(lines not told)"
_COPY = "cudaMemcpyAsync"
# A copy into or out of memory of the host that is not pinned. CUDA: one to the host returns when it is done, one from
# the host may wait for the stream before it is staged.
_PAGEABLE = "Pageable"


@dataclass(frozen=True)
class Sync:
    """One sync that torch warned of: in which phase, by which function, at which line."""

    phase: str
    function: str
    line: str | None

    @property
    def name(self) -> str:
        """Phase and function, free of line numbers."""
        return f"{self.phase} {self.function}"


@contextlib.contextmanager
def noting(phase: Callable[[], str], syncs: list[Sync]) -> Iterator[None]:
    """Add every sync that ``torch.cuda.set_sync_debug_mode`` warns of to ``syncs``, while the context is open.

    Those of autograd's threads are told when the backward ends, without a line.
    """
    import torch

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" in str(message):
            frame = next(user_frames(sys._getframe(1)), None)
            syncs.append(Sync(phase(), function_of(frame) if frame else NO_LINE, line_of(frame) if frame else None))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def sync_counts(each: Sequence[list[Sync]]) -> Signal:
    """Return the syncs per update that have a warning, of the update with the median count, by function and line."""
    middle = sorted(each, key=len)[(len(each) - 1) // 2]
    tally = Tally()
    for sync in middle:
        tally.add(sync.name, sync.line)
    samples = [float(len(syncs)) for syncs in each]
    return Signal(
        name="sync_counts", kind="info", unit="syncs", value=len(middle), samples=samples, parts=tally.parts()
    )


def sync_wait(seen: Sequence[Window], syncs: Sequence[Sync]) -> Signal:
    """Return how long the host waits in syncs per update, in ms: an upper bound of their cost.

    Times are those of the profiled updates, lines those of another update: they are the same syncs where a phase has as
    many in both, since they come in the same order. Elsewhere the phase stays without lines.
    """
    lines: dict[str, list[Sync]] = defaultdict(list)
    for sync in syncs:
        lines[sync.phase].append(sync)
    totals, where = defaultdict[str, float](float), defaultdict[str, set[str]](set)
    samples = []
    for window in seen:
        found = waits(window)
        samples.append(sum(sum(each) for each in found.values()))
        for phase, each in found.items():
            known = lines[phase] if len(lines[phase]) == len(each) else [Sync(phase, UNTOLD, None)] * len(each)
            for sync, wait in zip(known, each, strict=True):
                totals[sync.name] += wait / len(seen)
                where[sync.name] |= {sync.line} if sync.line else set()
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    parts = [Part(name=name, value=value, where=sorted(where[name])) for name, value in ordered]
    return Signal(name="sync_wait", kind="info", unit="ms", value=fmean(samples), samples=samples, parts=parts)


def waits(window: Window) -> dict[str, list[float]]:
    """Return the ms of each sync by phase, in order.

    A copy with pageable memory of the host waits itself, before the sync that follows it: its time is the sync's. With
    the host's own work on it, since the whole is an upper bound.
    """
    waiting = {correlation(e) for e in window.raw if e.get("cat") == "gpu_memcpy" and _PAGEABLE in e["name"]}
    found: dict[str, list[float]] = defaultdict(list)
    copied = 0.0
    calls = (event for event in window.raw if event.get("cat") in LAUNCHES)
    for event in sorted(calls, key=lambda event: float(event["ts"])):
        if event["name"].startswith(_COPY) and correlation(event) in waiting:
            copied += event.get("dur", 0.0)
        elif event["name"].startswith(SYNCS):
            found[_phase(window, event)].append((copied + event.get("dur", 0.0)) / 1e3)
            copied = 0.0
    return found


def _phase(window: Window, event: Raw) -> str:
    return next(phase for (start, end), phase in window.host if start <= event["ts"] < end)
