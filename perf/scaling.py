"""Scaling: what a case costs through DDP, and what more devices bring, against one process without it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perf.case import Case
from perf.pool import by_case, host, pooled_value
from perf.ranked import rate
from perf.record import Record
from perf.stats import RatioInterval, ratio_interval


class Point(NamedTuple):
    """One case of a family. ``rates`` are images per second, of all ranks together, one a finished and timed run.

    ``efficiency`` is the rate a rank over the rate of one process without DDP, with its 95 % interval; ``busy`` the
    same of GPU busy per step. None where a side has fewer than two runs. ``hosts`` are what it ran on: the processor,
    with the cores that its ranks might use together.
    """

    case: Case
    rates: list[float]
    efficiency: RatioInterval | None = None
    busy: RatioInterval | None = None
    hosts: frozenset[str] = frozenset()

    @property
    def rate(self) -> float:
        """The rate that stands for the runs, in images per second."""
        return pooled_value(self.rates, "wall", "higher")


def scaling(records: Sequence[Record]) -> list[list[Point]]:
    """Return the points of each family of cases that differ only in how many ranks train them, and how.

    The first point is the one process without DDP; a family without it, or of nothing else, is left out.

    Raises:
        ValueError: the runs of one case cannot be pooled; names them.
    """
    families: dict[Case, dict[Case, list[Record]]] = {}
    for runs in by_case(records).values():
        timed = [record for record in runs if _rate(record)]
        if timed:
            families.setdefault(alone(timed[0].case), {})[timed[0].case] = timed
    found = [_points(base, members) for base, members in families.items()]
    return [points for points in found if len(points) > 1]


def alone(case: Case) -> Case:
    """Return the same work in one process without DDP."""
    apart = {"devices", "nodes", "strategy", "optimize_ddp"}
    return Case.model_validate(case.model_dump(exclude=apart))


def _points(base: Case, members: dict[Case, list[Record]]) -> list[Point]:
    if base not in members:
        return []
    first = members[base]
    order = sorted((case for case in members if case != base), key=lambda case: (case.ranks, case.id))
    return [Point(base, _rates(first), hosts=_hosts(first)), *(_point(case, members[case], first) for case in order)]


def _point(case: Case, runs: list[Record], base: list[Record]) -> Point:
    efficiency = _ratio(_rates(base), [found / case.ranks for found in _rates(runs)])
    busy = _ratio(_values(base, "gpu_busy"), _values(runs, "gpu_busy"))
    return Point(case, _rates(runs), efficiency, busy, _hosts(runs))


def _hosts(records: list[Record]) -> frozenset[str]:
    return frozenset(host(record.environment) for record in records)


def _ratio(base: list[float], now: list[float]) -> RatioInterval | None:
    return ratio_interval(base, now) if min(len(base), len(now)) > 1 else None


def _rates(records: list[Record]) -> list[float]:
    return [found for record in records if (found := _rate(record))]


def _rate(record: Record) -> float:
    """Return images per second of a run; 0 where it did not finish or took no time."""
    step_time = record.signal("step_time")
    if record.status != "finished" or step_time is None or step_time.value <= 0:
        return 0.0
    return rate(step_time, record.case.batch_size * record.case.ranks).value


def _values(records: list[Record], name: str) -> list[float]:
    found = (record.signal(name) for record in records)
    return [signal.value for signal in found if signal and signal.value > 0]
