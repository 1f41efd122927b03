"""The report as one HTML page with figures: the same verdicts as on the terminal and in the comment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from perf.baselines import Baseline, find_baseline
from perf.gates import interval_text
from perf.pool import by_case
from perf.record import Record, Signal
from perf.report import humanize
from perf.report.charts import Show, bars, course, dots, events
from perf.report.comment import UNKNOWN, Origin, headline
from perf.report.html import Html, details, join, page, table, tag
from perf.report.section import Placed, Section, rank, rows_of
from perf.report.terminal import remarks, settings
from perf.report.timeline import Event
from perf.verdicts import FAILING, SignalVerdict

HEADINGS = ("verdict", "case", "signal", "old", "new", "change", "interval", "where")
# Of the signals of a case, so that a page with hundreds of cases stays one that a browser opens.
MOST_FIGURES = 8
MOST_PARTS = 20

Timelines = Mapping[tuple[str, str], Mapping[str, Sequence[Event]]]


def render(
    sections: Sequence[Section],
    origin: Origin = Origin(),  # noqa: B008  (immutable)
    baselines: Mapping[tuple[str, str], Baseline] = MappingProxyType({}),
    timelines: Timelines = MappingProxyType({}),
) -> str:
    """Return the page; ``baselines`` and ``timelines``, both by section and case, are drawn where given."""
    sentence = headline(sections).replace("`", "")
    told = [f"{name} {value}" for name, value in origin._asdict().items() if value]
    body = [tag("h1", sentence), tag("p", ", ".join(told)) if told else Html("")]
    for section in sections:
        body += _section(section, baselines, timelines)
    return page("rfdetr-perf", *body)


def approved_in(sections: Sequence[Section], folder: Path) -> dict[tuple[str, str], Baseline]:
    """Return the stored baselines of what was measured, by section and case.

    Raises:
        ValueError: one cannot be used; names the file.
    """
    found = {}
    for section in sections:
        for case_id, runs in by_case(section.head).items():
            approved = find_baseline(folder, runs[0])
            if approved:
                found[section.title, case_id] = approved
    return found


def _section(section: Section, baselines: Mapping[tuple[str, str], Baseline], timelines: Timelines) -> Iterator[Html]:
    yield tag("h2", section.title)
    rows = sorted(rows_of([section]), key=lambda placed: rank(placed.row))
    urgent = [placed for placed in rows if placed.row.verdict in (*FAILING, *UNKNOWN) or placed.row.listed]
    chosen = {id(placed) for placed in urgent}
    others = [placed for placed in rows if id(placed) not in chosen]
    yield _rows(urgent)
    yield from (_detail(placed.row) for placed in urgent)
    if others:
        yield details(f"{len(others)} signals that pass or are shown", _rows(others))
    yield from _figures(section, baselines, timelines)
    records = [*section.head, *section.base]
    if records:
        lines = [*settings(records), *remarks(records)]
        yield details("How it was measured", tag("ul", *(tag("li", line) for line in lines)))


def _rows(placed: Sequence[Placed]) -> Html:
    return table(HEADINGS, [_cells(one.row) for one in placed]) if placed else Html("")


def _cells(row: SignalVerdict) -> list[str]:
    verdict = row.verdict or "shown"
    return [
        tag("span", f"{verdict}{', listed' if row.listed else ''}", class_=verdict),
        row.case_id,
        row.signal,
        *(humanize.number(value, row.kind, row.unit) for value in (row.baseline, row.now)),
        humanize.change(row),
        interval_text(row.interval) if row.interval else "",
        join([tag("code", line) + Html(" ") for line in row.where[:2]]),
    ]


def _detail(row: SignalVerdict) -> Html:
    first, *parts = row.message.split("\n")
    lines = [tag("p", first)] if first else []
    if parts:
        lines.append(tag("ul", *(tag("li", tag("code", part)) for part in parts[:MOST_PARTS])))
    commands = [f"{name}: {told}" for name, told in (("reproduce", row.reproduce), ("refresh", row.refresh)) if told]
    lines += [tag("pre", "\n".join(commands))] if commands else []
    return details(f"{row.case_id} {row.signal}: {row.verdict or 'shown'}", *lines)


def _figures(section: Section, baselines: Mapping[tuple[str, str], Baseline], timelines: Timelines) -> Iterator[Html]:
    head, base = by_case(section.head), by_case(section.base)
    for case_id, runs in head.items():
        approved = baselines.get((section.title, case_id))
        drawn = [
            *_distributions(runs, base.get(case_id, []), approved),
            *_phases({"head": runs, "base": base.get(case_id, [])}),
            *_recompiles(timelines.get((section.title, case_id), {})),
            *(_histories(approved) if approved else []),
        ]
        if drawn:
            yield details(f"Figures of {case_id}", *drawn)


def _captioned(caption: str, figure: Html) -> Html:
    return tag("figure", tag("figcaption", caption), figure)


def _distributions(head: Sequence[Record], base: Sequence[Record], approved: Baseline | None) -> Iterator[Html]:
    """Yield the values of the runs of each timed signal: those of base and head, and the approved ones."""
    timed = [s for s in head[0].signals if s.kind in ("wall", "device", "quality")][:MOST_FIGURES]
    for signal in timed:
        known = approved.signal(signal.name) if approved else None
        groups = {
            "baseline": list(known.runs) if known and known.unit == signal.unit else [],
            "base": _values(base, signal.name),
            "head": _values(head, signal.name),
        }
        caption = f"{signal.name}: a dot is one run, its own median; the line is the median of the runs"
        yield _captioned(caption, dots(groups, _shown(signal)))


def _values(runs: Sequence[Record], name: str) -> list[float]:
    return [found.value for run in runs if (found := run.signal(name)) is not None]


def _shown(signal: Signal) -> Show:
    return lambda value: humanize.number(value, signal.kind, signal.unit)


def _phases(sides: Mapping[str, Sequence[Record]]) -> Iterator[Html]:
    """Yield GPU busy by phase of the step, of the last run of each side."""
    found = {side: signal for side, runs in sides.items() if runs and (signal := runs[-1].signal("gpu_busy"))}
    groups = {side: {part.name: part.value for part in signal.parts} for side, signal in found.items() if signal.parts}
    if groups:
        yield _captioned("gpu_busy by phase, of the last run", bars(groups, _shown(next(iter(found.values())))))


def _recompiles(runs: Mapping[str, Sequence[Event]]) -> Iterator[Html]:
    groups = {name: [(event.seconds, event.what) for event in told] for name, told in runs.items() if told}
    if groups:
        caption = "graph breaks and recompiles since the first of them; the number is how many"
        yield _captioned(caption, events(groups))


def _histories(baseline: Baseline) -> Iterator[Html]:
    """Yield the approved values of each signal that was approved more than once."""
    moved = [signal for signal in baseline.signals if signal.history][:MOST_FIGURES]
    for signal in moved:
        earlier = [one for one in signal.as_earlier() if one.unit == signal.unit]
        names = [
            f"{baseline.approvals[one.approval].date}, {baseline.approvals[one.approval].reason}" for one in earlier
        ]
        values = [signal.model_copy(update={"runs": one.runs}).value for one in earlier]
        yield _captioned(f"{signal.name}: approved values", course(values, names))
