"""The trend of signals as text, SVG and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perf.gates import percent
from perf.report import humanize
from perf.report.charts import course
from perf.report.html import Html, join, page, table, tag
from perf.trend import Change, Night, series

BLOCKS = "▁▂▃▄▅▆▇█"
# Columns of a line of blocks.
MOST_BLOCKS = 80
COMMIT = 12


class Trend(NamedTuple):
    """One signal of one case over its nights; ``hint`` says why there are no change points, where that is so."""

    nights: Sequence[Night]
    signal: str
    changes: Sequence[Change]
    hint: str = ""

    @property
    def title(self) -> str:
        """What it is of."""
        last = self.nights[-1]
        return f"{last.case_id} {self.signal} on {last.device}, torch {last.torch_minor}"


def lines(trend: Trend) -> list[str]:
    """Return the trend in lines of text: the values as blocks, the last value, and each change with its commits."""
    points = series(trend.nights, trend.signal)
    shape = points[-1][0].values[trend.signal]
    values = [value for _, value in points]
    last = humanize.number(values[-1], shape.kind, shape.unit)
    told = [f"{trend.title}: {len(values)} nights, last {last}", f"  {blocks(values[-MOST_BLOCKS:])}"]
    told += [f"  {change_text(change)}" for change in trend.changes] or ["  no change"]
    return [humanize.printable(line) for line in [*told, *([f"  {trend.hint}"] if trend.hint else [])]]


def change_text(change: Change) -> str:
    """Return a change in words: when, from what to what, and the commits it lies between."""
    old, new = (humanize.number(value, change.kind, change.unit) for value in (change.old, change.new))
    moved = f" ({percent((change.new - change.old) / abs(change.old))})" if change.old else ""
    return f"{change.since.when:%Y-%m-%d}: {old} -> {new}{moved}, commits {change.commits}"


def blocks(values: Sequence[float]) -> str:
    """Return values as a line of blocks."""
    low, high = min(values), max(values)
    if high == low:
        return BLOCKS[0] * len(values)
    return "".join(BLOCKS[round((value - low) / (high - low) * (len(BLOCKS) - 1))] for value in values)


def figure(trend: Trend) -> Html:
    """Return the trend as SVG."""
    points = series(trend.nights, trend.signal)
    shape = points[-1][0].values[trend.signal]
    names = [f"{night.when:%Y-%m-%d} {night.commit[:COMMIT]}" for night, _ in points]
    marks = [change.at for change in trend.changes]
    return course(
        [value for _, value in points], names, marks, lambda value: humanize.number(value, shape.kind, shape.unit)
    )


def document(trends: Sequence[Trend]) -> str:
    """Return all trends as one HTML page."""
    return page("rfdetr-perf trend", tag("h1", "Trend"), *(_part(trend) for trend in trends))


def _part(trend: Trend) -> Html:
    rows = [
        [
            f"{change.since.when:%Y-%m-%d}",
            *(humanize.number(v, change.kind, change.unit) for v in (change.old, change.new)),
            tag("code", change.commits),
        ]
        for change in trend.changes
    ]
    told = table(("since", "old", "new", "commits"), rows) if rows else tag("p", trend.hint or "no change")
    return join([tag("h2", trend.title), tag("figure", figure(trend)), told])
