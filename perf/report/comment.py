"""The comment on a pull request, which is its step summary too: verdicts -> Markdown of a limited length.

Every name, message and path in it may have been written by the pull request: each goes through
:func:`perf.report.markdown.code`, where nothing means anything, or is a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from perf.gates import interval_text
from perf.record import Record
from perf.report import humanize
from perf.report.markdown import code, text
from perf.report.section import Placed, Section, case_words, place_words, rank, rows_of
from perf.report.terminal import remarks, settings
from perf.verdicts import FAILING, PREDICATES, SEVERITY, WHOLE_CASE, SignalVerdict, Verdict, reason, worst

# By which the suite knows its own comment again.
MARKER = "<!-- rfdetr-perf -->"
# GitHub takes 65536 characters.
LIMIT = 65_000
# Of one name, message or command; a record may hold longer ones.
MOST_TEXT = 400
# Verdicts by which nothing is known.
UNKNOWN: tuple[Verdict, ...] = ("incompatible", "inconclusive", "no-baseline")
PARTS = 5
PLACES = 4


class Origin(NamedTuple):
    """Where a report is from: what was measured against what, and the page of the workflow run."""

    head: str = ""
    base: str = ""
    link: str = ""


Item = TypeVar("Item")


class _Page:
    """Text that grows up to a limit, and what did not fit. A block has a share of the room that is left."""

    def __init__(self, limit: int) -> None:
        self.lines: list[str] = []
        self.cut: list[str] = []
        self.left = limit

    def add(self, *lines: str) -> None:
        """Add lines that have room, as all but those of :meth:`fill` have."""
        self.lines += lines
        self.left -= sum(len(line) + 1 for line in lines)

    def fill(self, items: Sequence[Item], render: Callable[[Item], str], share: float, what: str) -> None:
        """Add what the items are rendered as while their share of the room lasts; note how many of ``what`` are cut."""
        room = share * self.left
        for number, item in enumerate(items):
            block = render(item)
            room -= len(block) + 1
            if room < 0:
                self.cut.append(f"{len(items) - number} {what}")
                return
            self.add(block)


def headline(sections: Sequence[Section]) -> str:
    """Return one sentence: how many signals have the worst verdict, where, and the first reason."""
    placed = [one for one in rows_of(sections) if one.row.verdict is not None]
    verdict = worst(one.row.verdict for one in placed)
    if verdict is None:
        return "Nothing was judged: no job left a signal."
    hits = [one for one in placed if one.row.verdict == verdict]
    counted = f"{len(hits)} of {len(placed)} {'signal' if len(placed) == 1 else 'signals'} {PREDICATES[verdict]}"
    first = f"{counted} on {_places(hits)}"
    if verdict == "pass":
        listed = sum(one.row.listed for one in hits)
        return first + (f"; {listed} changed inside the gate." if listed else ".")
    return f"{first}: {_first_reason(hits[0])}{_others(placed, verdict)}."


def _places(hits: Sequence[Placed]) -> str:
    found = sorted({text(_short(place_words(one.case.device, one.case.torch_minor))) for one in hits})
    return " and ".join([*found[:PLACES], *([f"{len(found) - PLACES} more"] if len(found) > PLACES else [])])


def _others(placed: Sequence[Placed], verdict: Verdict) -> str:
    """Return how many signals have the other verdicts that are no pass."""
    counts = Counter(one.row.verdict for one in placed)
    others = [other for other in SEVERITY if other not in (verdict, "pass") and counts[other]]
    return "".join(f"; {counts[other]} {PREDICATES[other]}" for other in others)


def _first_reason(first: Placed) -> str:
    case, row = first.case, first.row
    # A whole job is no case; its row says which job it is.
    job = case.case_id.startswith("(")
    told = reason(case) if case.verdict == row.verdict and not job else row.message.partition("\n")[0]
    name = row.signal if job else case_words(case.case_id)
    return f"{text(_short(name))}, {_words(_short(told))}"


def _words(told: str) -> str:
    """Return text that may begin with a sign as it is, where it is plain."""
    signed = told[:1] in ("+", "-") and text(told[1:]) == told[1:]
    return told if signed else text(told)


def comment(sections: Sequence[Section], origin: Origin = Origin(), limit: int = LIMIT) -> str:  # noqa: B008
    """Return the comment, shorter than ``limit`` characters; what had to be left out is said at its end."""
    # What the end takes: the sentence about what was cut, and the lines that close what is folded.
    page = _Page(limit - 1_500)
    rows = sorted(rows_of(sections), key=lambda placed: rank(placed.row))
    page.add(MARKER, f"**{headline(sections)}**", "", *_origin(origin))
    failing = [placed for placed in rows if placed.row.verdict in FAILING]
    unknown = [placed for placed in rows if placed.row.verdict in UNKNOWN]
    if failing:
        page.add("### Regressed, failed, or better than the baseline", "", *_heading())
        page.fill(failing, _line, 0.4, "rows of signals that regressed or failed")
        page.add("")
        page.fill(list(_grouped(failing).items()), _details, 0.5, "cases with their details")
        page.add("")
    if unknown:
        page.add("### Inconclusive or not measured", "")
        page.fill(unknown, _open, 0.5, "signals that are inconclusive or were not measured")
        page.add("")
    _folded(page, [placed for placed in rows if placed.row.verdict == "pass"], "passed", 0.5)
    _folded(page, [placed for placed in rows if placed.row.verdict is None], "shown, not gated", 0.7)
    _made(page, sections)
    if page.cut:
        page.add("", f"Cut to what a comment may hold: {'; '.join(page.cut)}. All of it is in the run's `report.html`.")
    return "\n".join(page.lines) + "\n"


def _origin(origin: Origin) -> list[str]:
    told = [f"head {code(_short(origin.head))}"] if origin.head else []
    told += [f"base {code(_short(origin.base))}"] if origin.base else []
    # The link is GitHub's own answer; as text, it cannot be anything else.
    told += [f"run {code(_short(origin.link))}"] if origin.link else []
    return [", ".join(told), ""] if told else []


def _heading() -> list[str]:
    names = ("verdict", "job", "case", "signal", "old", "new", "change", "interval", "where")
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]


def _line(placed: Placed) -> str:
    section, _, row = placed
    interval = interval_text(row.interval) if row.interval else "-"
    cells = [
        f"{row.verdict or 'shown'}{', listed' if row.listed else ''}",
        *(code(_short(name)) for name in (section.title, row.case_id, row.signal)),
        *(_number(row, value) for value in (row.baseline, row.now)),
        humanize.change(row) or "-",
        interval,
        _where(row),
    ]
    return f"| {' | '.join(cells)} |"


def _number(row: SignalVerdict, value: float | None) -> str:
    return text(_short(humanize.number(value, row.kind, row.unit))) if value is not None else "-"


def _where(row: SignalVerdict) -> str:
    more = f" (+{len(row.where) - 1})" if len(row.where) > 1 else ""
    return f"{code(_short(row.where[0]))}{more}" if row.where else "-"


def _grouped(placed: Sequence[Placed]) -> dict[tuple[str, str], list[SignalVerdict]]:
    groups: dict[tuple[str, str], list[SignalVerdict]] = {}
    for section, _, row in placed:
        groups.setdefault((section.title, row.case_id), []).append(row)
    return groups


def _details(group: tuple[tuple[str, str], Sequence[SignalVerdict]]) -> str:
    """Return what the rows of one case say, and its commands."""
    (title, case_id), rows = group
    head = f"#### {code(_short(case_id))} in {code(_short(title))}"
    return "\n".join([head, "", *_messages(rows), *_commands(rows), ""])


def _messages(rows: Sequence[SignalVerdict]) -> Iterator[str]:
    shared: dict[str, list[str]] = {}
    for row in rows:
        shared.setdefault(row.message, []).append(row.signal)
    for number, (message, names) in enumerate(shared.items()):
        if number == PARTS:
            yield f"- and {len(shared) - PARTS} more messages"
            return
        first, *parts = message.split("\n")
        signals = ", ".join(code(_short(name)) for name in names[:PARTS])
        yield f"- {signals}{_and_more(names)}: {code(_short(first))}"
        yield from (f"  - {code(_short(part))}" for part in parts[:PARTS])
        yield from [f"  - and {len(parts) - PARTS} more"] if len(parts) > PARTS else []


def _and_more(names: Sequence[str]) -> str:
    return f" and {len(names) - PARTS} more" if len(names) > PARTS else ""


def _commands(rows: Sequence[SignalVerdict]) -> list[str]:
    told = {
        "reproduce": dict.fromkeys(row.reproduce for row in rows if row.reproduce),
        "refresh, once approved": dict.fromkeys(row.refresh for row in rows if row.refresh),
    }
    return [f"- {what}: {code(_short(each))}" for what, commands in told.items() for each in list(commands)[:PARTS]]


def _open(placed: Placed) -> str:
    section, _, row = placed
    signal = "" if row.signal == WHOLE_CASE else f" {code(_short(row.signal))}"
    message = code(_short(row.message.partition("\n")[0]))
    return f"- {row.verdict}: {code(_short(section.title))} {code(_short(row.case_id))}{signal}: {message}"


def _folded(page: _Page, rows: Sequence[Placed], what: str, share: float) -> None:
    if not rows:
        return
    page.add(f"<details><summary>{len(rows)} {what}</summary>", "", *_heading())
    page.fill(rows, _line, share, f"rows of signals that are {what}" if "shown" in what else "rows that passed")
    page.add("", "</details>", "")


def _made(page: _Page, sections: Sequence[Section]) -> None:
    records: list[Record] = [record for section in sections for record in (*section.head, *section.base)]
    lines = [*settings(records), *remarks(records)]
    if not lines:
        return
    page.add("<details><summary>How it was measured</summary>", "")
    page.fill(lines, lambda line: f"- {code(_short(line))}", 0.9, "notes on how it was measured")
    page.add("", "</details>")


def _short(value: str) -> str:
    return value if len(value) <= MOST_TEXT else f"{value[: MOST_TEXT - 1]}…"
