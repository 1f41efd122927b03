"""Charts as SVG, for a page or by themselves: runs as dots, parts as bars, events over time, a signal over commits.

Drawn here and not by matplotlib, which takes a second to import and is not there where reports are read.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perf.report.html import Html, tag

WIDTH, ROW, LEFT, RIGHT, TOP, AXIS = 760, 24, 190, 90, 8, 22
COLOURS = ("#1565c0", "#ef6c00", "#2e7d32", "#8e24aa", "#6d4c41", "#00838f")
# Of a name at the left; the whole name is its tooltip.
MOST_NAME = 30

Show = Callable[[float], str]


class Scale(NamedTuple):
    """Maps values from ``low`` to ``high`` to the columns of a figure."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the column of a value."""
        share = 0.5 if self.high == self.low else (value - self.low) / (self.high - self.low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def around(values: Sequence[float]) -> Scale:
    """Return a scale with a little room on both sides of the values."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.01 * abs(high) or 1.0
    return Scale(low - room, high + room)


def dots(groups: Mapping[str, Sequence[float]], show: Show = "{:.4g}".format) -> Html:
    """Return the values of each group as dots on one scale, with the group's median as a line and in words."""
    named = {name: sorted(values) for name, values in groups.items() if values}
    scale = around([value for values in named.values() for value in values])
    parts: list[Html] = []
    for index, (name, values) in enumerate(named.items()):
        y, colour, middle = _y(index), COLOURS[index % len(COLOURS)], statistics.median(values)
        parts += [_name(name, y), _line(scale.at(middle), y - 8, scale.at(middle), y + 8, colour)]
        parts += [_dot(scale.at(value), y, colour, show(value)) for value in values]
        parts.append(_text(WIDTH - RIGHT + 8, y + 4, show(middle)))
    return _figure([*parts, *_axis(scale, len(named), show)], len(named))


def bars(groups: Mapping[str, Mapping[str, float]], show: Show = "{:.4g}".format) -> Html:
    """Return the parts of each group as a bar, one behind the other, and below them which colour is which part."""
    most = max((sum(parts.values()) for parts in groups.values()), default=0) or 1.0
    scale, names = Scale(0, most), list(dict.fromkeys(name for parts in groups.values() for name in parts))
    drawn: list[Html] = []
    for index, (group, parts) in enumerate(groups.items()):
        y, since = _y(index), 0.0
        drawn.append(_name(group, y))
        for name, value in parts.items():
            told = f"{name}: {show(value)}"
            drawn.append(_bar(scale.at(since), scale.at(since + value), y, _colour(names, name), told))
            since += value
        drawn.append(_text(WIDTH - RIGHT + 8, y + 4, show(since)))
    return _figure([*drawn, *_legend(names, len(groups))], len(groups) + (len(names) + 4) // 5)


def events(groups: Mapping[str, Sequence[tuple[float, str]]], show: Show = "{:.1f} s".format) -> Html:
    """Return what happened when, a line for each group: a dot for each pair of a time and what it was."""
    named = {name: told for name, told in groups.items() if told}
    scale = Scale(0, max((time for told in named.values() for time, _ in told), default=0) or 1.0)
    parts: list[Html] = []
    for index, (name, told) in enumerate(named.items()):
        y, colour = _y(index), COLOURS[index % len(COLOURS)]
        parts += [_name(name, y), _line(LEFT, y, WIDTH - RIGHT, y, "var(--line,#8884)")]
        parts += [_dot(scale.at(time), y, colour, f"{show(time)}: {what}") for time, what in told]
        parts.append(_text(WIDTH - RIGHT + 8, y + 4, str(len(told))))
    return _figure([*parts, *_axis(scale, len(named), show)], len(named))


def course(
    values: Sequence[float], names: Sequence[str], marks: Sequence[int] = (), show: Show = "{:.4g}".format
) -> Html:
    """Return values one after another as a line; ``names`` say what each is of, ``marks`` where it changed for good."""
    scale, height = around(values), 140.0
    step = (WIDTH - LEFT - RIGHT) / max(1, len(values) - 1)
    points = [
        (round(LEFT + step * index, 1), round(TOP + height * (scale.high - value) / (scale.high - scale.low), 1))
        for index, value in enumerate(values)
    ]
    path = " ".join(f"{x},{y}" for x, y in points)
    parts = [tag("polyline", points=path, fill="none", stroke=COLOURS[0], stroke_width=1.2)]
    parts += [_line(points[mark][0], TOP, points[mark][0], TOP + height, COLOURS[1]) for mark in marks]
    parts += [
        _dot(x, y, COLOURS[1] if index in marks else COLOURS[0], f"{name}: {show(value)}")
        for index, ((x, y), name, value) in enumerate(zip(points, names, values, strict=True))
    ]
    parts += [_text(LEFT - 8, TOP + 8, show(scale.high), "end"), _text(LEFT - 8, TOP + height, show(scale.low), "end")]
    parts += [
        _text(LEFT, TOP + height + 18, _cut(names[0])),
        _text(WIDTH - RIGHT, TOP + height + 18, _cut(names[-1]), "end"),
    ]
    return _figure(parts, 6)


def alone(figure: Html) -> str:
    """Return a figure as a file of its own."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{figure}\n'


def _figure(parts: Sequence[Html], rows: int) -> Html:
    height = TOP + ROW * rows + AXIS
    box = f"0 0 {WIDTH} {height}"
    return tag("svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=box, width=WIDTH, height=height, role="img")


def _y(index: int) -> float:
    return TOP + ROW * index + ROW / 2


def _cut(name: str) -> str:
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"


def _name(name: str, y: float) -> Html:
    return tag("text", tag("title", name), _cut(name), x=LEFT - 8, y=y + 4, text_anchor="end")


def _text(x: float, y: float, text: str, anchor: str = "") -> Html:
    return tag("text", text, x=x, y=y, text_anchor=anchor)


def _dot(x: float, y: float, colour: str, told: str) -> Html:
    return tag("circle", tag("title", told), cx=x, cy=y, r=4, fill=colour, fill_opacity=0.65)


def _bar(start: float, end: float, y: float, colour: str, told: str) -> Html:
    return tag("rect", tag("title", told), x=start, y=y - 8, width=round(end - start, 1), height=16, fill=colour)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=1.5)


def _axis(scale: Scale, rows: int, show: Show) -> list[Html]:
    y = TOP + ROW * rows + 14
    return [
        _line(LEFT, y - 12, WIDTH - RIGHT, y - 12, "#888"),
        _text(LEFT, y, show(scale.low)),
        _text(WIDTH - RIGHT, y, show(scale.high), "end"),
    ]


def _colour(names: Sequence[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]


def _legend(names: Sequence[str], rows: int) -> list[Html]:
    parts = []
    for index, name in enumerate(names):
        x, y = LEFT + 115 * (index % 5), _y(rows + index // 5)
        parts += [_bar(x, x + 10, y, _colour(names, name), name), _text(x + 14, y + 4, _cut(name))]
    return parts
