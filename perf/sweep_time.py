"""How long the cells of a sweep take: as those before did, else by rule of thumb. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from perf.case import Case, Lane
from perf.levers import Lever, lever_of
from perf.record import Record

# How long a cell takes where none like it was measured yet, in s: starting Python, building and stepping; and what a
# compile adds, with a warm Inductor cache and with a cold one.
# compile with CUDA graphs has symbolic shapes, on which a cold compile takes twenty minutes (docs/compiling.md).
_COLD_BOTH = 1163.0
# Nano on an H200 takes 46 s, and 60 to 75 compiled.
_PRIOR = {"gpu": (45.0, 30.0, 150.0), "cpu": (25.0, 20.0, 20.0)}


class Estimate(NamedTuple):
    """How long cells take, in s. ``known`` are times that were measured here, by lever; ``warm`` the cache."""

    lane: Lane
    known: dict[str, list[float]]
    warm: bool = True

    def seconds(self, case: Case, lever: Lever) -> float:
        """Return how long one cell is likely to take."""
        times = self.known.get(lever, [])
        if times:
            return max(median(times), times[-1])
        plain, warm, cold = _PRIOR[self.lane]
        base = median(self.known["eager"]) if self.known.get("eager") else plain
        if not self.warm and lever == "both":
            cold = _COLD_BOTH
        return base + (warm if self.warm else cold) * case.compile


def estimate_of(lane: Lane, records: Sequence[Record], *, warm: bool) -> Estimate:
    """Return the estimate after ``records``; ``warm``: Inductor's cache holds something, which may be something else.

    A cell that found most of its graphs missing there says that others will too.
    """
    return Estimate(lane, times_of(records), warm and not any(map(_was_cold, records)))


def _was_cold(record: Record) -> bool:
    hits, misses = (record.signal(f"inductor_cache_{what}") for what in ("hits", "misses"))
    return misses is not None and misses.value > (hits.value if hits else 0)


def times_of(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return how long the cells so far took, in s, by lever; the first of a compiled lever may have been cold."""
    found: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda one: one.started):
        if record.seconds is not None:
            found.setdefault(lever_of(record.case), []).append(record.seconds + 5)
    return found
