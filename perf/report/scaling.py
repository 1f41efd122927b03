"""The scaling of a session's cases -> a Markdown table, which reads as text too."""

from __future__ import annotations

from collections.abc import Sequence

from perf.record import Record
from perf.report.markdown import table
from perf.scaling import Point, scaling
from perf.stats import RatioInterval

HEADINGS = ("case", "ranks", "runs", "images/s", "images/s a rank, against one process", "GPU busy, against it")


def render_scaling(records: Sequence[Record]) -> str:
    """Return a table of each family of cases with several ranks, and which of them ran on another part of a host.

    Empty where there is no such family.

    Raises:
        ValueError: as :func:`perf.scaling.scaling`.
    """
    return "\n".join(_family(points) for points in scaling(records))


def _family(points: Sequence[Point]) -> str:
    base, *others = points
    unlike = [
        f"- {one.case.id} ran on {_on(one)}; {base.case.id} on {_on(base)}" for one in others if one.hosts != base.hosts
    ]
    told = ["What ran on other cores cannot tell what more ranks bring:", "", *unlike, ""] if unlike else []
    return "\n".join([table(HEADINGS, [_row(point) for point in points]), *told])


def _on(point: Point) -> str:
    return " and ".join(sorted(point.hosts))


def _row(point: Point) -> tuple[str, ...]:
    base = not point.case.distributed
    shown = ["-", "-"] if base else [_ratio(point.efficiency), _ratio(point.busy)]
    return point.case.id, str(point.case.ranks), str(len(point.rates)), f"{point.rate:.4g}", *shown


def _ratio(interval: RatioInterval | None) -> str:
    if interval is None:
        return "-"
    low, high = (f"{100 * end:.2f}" for end in (interval.low, interval.high))
    return f"{100 * interval.ratio:.2f} % ({low} to {high})"
