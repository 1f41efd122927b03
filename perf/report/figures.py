"""Numbers -> pictures: SVG as text, to stand inside an HTML page whose style has the colours.

All of them are rows of bars, placed in percent of the width, with text of a fixed size: so they are as readable on a
narrow screen as on a wide one, which a scaled picture is not. Names come from elsewhere and are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perf.report.blocks_html import COLOURS
from perf.report.html import escape

ROW = 40
BAR = 18
# Room for the label above a bar: 12 px of text and what hangs below it.
ABOVE = 16
# What fits at 12 px into the 368 px that a page of 400 px leaves.
LONGEST = 44


class Bar(NamedTuple):
    """One bar: its name, its length, and what is written beside the name."""

    name: str
    value: float
    told: str


class Run(NamedTuple):
    """One run: its name, its samples in the order they were taken, and the value that stands for it."""

    name: str
    samples: Sequence[float]
    value: float


def swatch(index: int) -> str:
    """Return the CSS class of a colour; those of a long list come again."""
    return f"c{index % len(COLOURS)}"


def stacked(rows: Mapping[str, Mapping[str, float]], names: Sequence[str], whole: float) -> str:
    """Return a stacked bar for each of ``rows`` (its label -> value by name), in the order and colours of ``names``.

    ``whole`` is the value that the full width stands for; what a row lacks of it stays empty.
    """
    shown = [_stack(place * ROW, label, values, names, whole) for place, (label, values) in enumerate(rows.items())]
    return _svg(len(rows) * ROW, ", ".join(rows), shown)


def _stack(top: int, label: str, values: Mapping[str, float], names: Sequence[str], whole: float) -> str:
    found, left = [_label(top, label), _rail(top)], 0.0
    for name in names:
        width = max(0.0, min(_part(values.get(name, 0.0), whole), 100 - left))
        if width > 0:
            title = f"<title>{escape(f'{name}: {values[name]:.4g}')}</title>"
            place = f'x="{left:.3f}%" y="{top + ABOVE}" width="{width:.3f}%" height="{BAR}"'
            found.append(f'<rect class="{swatch(list(names).index(name))}" {place}>{title}</rect>')
        left += width
    return "".join(found)


def bars(rows: Sequence[Bar], mark: tuple[float, str] | None = None) -> str:
    """Return a bar for each of ``rows``; ``mark`` is a line across all of them, at a value, with what it says."""
    most = max([row.value for row in rows] + ([mark[0]] if mark else []), default=0.0)
    found = [_bar(place * ROW, row, most) for place, row in enumerate(rows)]
    height = len(rows) * ROW
    if mark:
        x = f"{_part(mark[0], most):.3f}%"
        anchor = "end" if _part(mark[0], most) > 50 else "start"
        spans = [(place * ROW + ABOVE - 2, place * ROW + ABOVE + BAR + 2) for place in range(len(rows))]
        found += [f'<line class="mark" x1="{x}" x2="{x}" y1="{top}" y2="{end}"/>' for top, end in spans]
        found.append(f'<text x="{x}" y="{height + 14}" text-anchor="{anchor}">{escape(mark[1])}</text>')
        height += 20
    return _svg(height, ", ".join(row.name for row in rows), found)


def _bar(top: int, row: Bar, most: float) -> str:
    width = _part(row.value, most)
    rect = f'<rect class="bar" x="0" y="{top + ABOVE}" width="{width:.3f}%" height="{BAR}"/>'
    told = f'<text x="100%" y="{top + 12}" text-anchor="end" class="faint">{escape(row.told)}</text>'
    return f"{_label(top, row.name, LONGEST - len(row.told))}{told}{_rail(top)}{rect}"


def strips(rows: Sequence[Run], unit: str, most: float = math.inf) -> str:
    """Return for each run a dot a sample on a common axis, and a line at the value that stands for the run.

    The axis ends at ``most``: what is beyond stands at its end, hollow, and the axis says so.
    """
    values = [value for row in rows for value in (*row.samples, row.value)]
    low, beyond = min(values, default=0.0), max(values, default=0.0) > most
    high = max((value for value in values if value <= most), default=low)
    found = [_strip(place * ROW, row, low, high - low, unit) for place, row in enumerate(rows)]
    bottom = len(rows) * ROW
    more = " or more" if beyond else ""
    ends = ((0, "start", f"{low:.4g} {unit}"), (100, "end", f"{high:.4g} {unit}{more}"))
    found += [
        f'<text x="{x}%" y="{bottom + 12}" text-anchor="{anchor}">{escape(told)}</text>' for x, anchor, told in ends
    ]
    return _svg(bottom + 18, ", ".join(row.name for row in rows), found)


def _strip(top: int, row: Run, low: float, width: float, unit: str) -> str:
    middle = top + ABOVE + BAR // 2
    dots = [
        f'<circle class="{"dot" if one - low <= width else "beyond"}" cx="{min(100, _part(one - low, width)):.2f}%" '
        f'cy="{middle}" r="4"/>'
        for one in row.samples
    ]
    x = f"{min(100, _part(row.value - low, width)):.2f}%"
    line = f'<line class="middle" x1="{x}" x2="{x}" y1="{top + ABOVE - 2}" y2="{top + ABOVE + BAR + 2}"/>'
    told = f"{row.name}: {row.value:.4g} {unit}, {len(row.samples)} steps"
    return f"{_label(top, told)}{_rail(top)}{''.join(dots)}{line}"


def _svg(height: int, label: str, found: Sequence[str]) -> str:
    # No viewBox: it would scale the text with the width.
    lines = "\n".join(found)
    return f'<svg role="img" height="{height}" aria-label="{escape(label)}">\n{lines}\n</svg>'


def _label(top: int, label: str, longest: int = LONGEST) -> str:
    return f'<text x="0" y="{top + 12}"><title>{escape(label)}</title>{escape(shortened(label, longest))}</text>'


def _rail(top: int) -> str:
    return f'<rect class="rail" x="0" y="{top + ABOVE}" width="100%" height="{BAR}"/>'


def shortened(text: str, longest: int) -> str:
    """Return a text of ``longest`` characters at most, its middle left out: both ends of a kernel's name tell."""
    if len(text) <= longest:
        return text
    half = max(1, (longest - 1) // 2)
    return f"{text[:half]}…{text[-half:]}"


def _part(value: float, whole: float) -> float:
    return 100 * value / whole if whole > 0 else 0.0
