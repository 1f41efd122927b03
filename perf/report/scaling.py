"""The scaling of a session's cases -> a Markdown table, which reads as text too."""

from __future__ import annotations

from collections.abc import Sequence

from perf.record import Record
from perf.report.markdown import table
from perf.scaling import Point, scaling
from perf.stats import RatioInterval

HEADINGS = ("case", "ranks", "runs", "images/s", "images/s a rank, against one process", "GPU busy, against it")


def render_scaling(records: Sequence[Record]) -> str:
    """Return a table of each family of cases with several ranks; empty where there is none.

    Raises:
        ValueError: as :func:`perf.scaling.scaling`.
    """
    return "\n".join(table(HEADINGS, [_row(point) for point in points]) for points in scaling(records))


def _row(point: Point) -> tuple[str, ...]:
    base = not point.case.distributed
    shown = ["-", "-"] if base else [_ratio(point.efficiency), _ratio(point.busy)]
    return point.case.id, str(point.case.ranks), str(len(point.rates)), f"{point.rate:.4g}", *shown


def _ratio(interval: RatioInterval | None) -> str:
    if interval is None:
        return "-"
    low, high = (f"{100 * end:.2f}" for end in (interval.low, interval.high))
    return f"{100 * interval.ratio:.2f} % ({low} to {high})"
