"""The terminal report: one sentence, one table, then what each row that does not pass needs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perf.evidence import links
from perf.gates import interval_text, percent
from perf.record import Record
from perf.refresh import Change
from perf.report import humanize
from perf.report.section import rank
from perf.turns import BESIDE
from perf.verdicts import SEVERITY, CaseVerdict, Judgement, SignalVerdict

if TYPE_CHECKING:
    # rich takes a fifth of a second to import, and most commands print no table.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

HEADINGS = ("verdict", "case", "signal", "baseline", "now", "change", "where")
CHANGE_HEADINGS = ("signal", "old", "new", "change", "95 % interval", "drift since first")
# Below this a source line is unreadable in a column; then it stands below the table only.
LEAST_WHERE = 16
LOG_WIDTH = 120
# Wider than any table of changes.
UNCUT = 1000
# Columns between two cells: one of padding, one of the box.
GAP = 2
SHOWN = "shown"
_STYLES = {
    "failed": "bold red",
    "not-compiled": "bold red",
    "regressed": "bold red",
    "improved": "bold magenta",
    "incompatible": "yellow",
    "inconclusive": "yellow",
    "no-baseline": "yellow",
    "pass": "green",
    SHOWN: "dim",
}

Row = tuple[str, ...]


def open_console(width: int | None = None) -> Console:
    """Return a console on stdout, ``width`` columns wide; by default the terminal's width, or that of a log."""
    from rich.console import Console

    # Where there is no terminal rich takes 80 columns, too few for source lines.
    fixed = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=width or (None if fixed else LOG_WIDTH))


def render(judgement: Judgement, records: Sequence[Record], width: int = LOG_WIDTH, folder: Path | None = None) -> str:
    """Return the report as plain text, ``width`` columns wide where names and numbers allow it."""
    from rich.console import Console

    text = io.StringIO()
    print_report(Console(file=text, width=width, color_system=None, force_terminal=False), judgement, records, folder)
    return text.getvalue()


def print_report(console: Console, judgement: Judgement, records: Sequence[Record], folder: Path | None = None) -> None:
    """Print the report to ``console``; with the ``folder`` of the records, where the evidence lies too."""
    _line(console, judgement.summary, style="bold")
    for line in settings(records):
        _line(console, line)
    rows = table_rows(judgement)
    if rows:
        _print_table(console, rows)
    for case in sorted(judgement.cases, key=lambda case: SEVERITY.index(case.verdict)):
        _print_case(console, case)
    for line in [*remarks(records), *(links(records, folder) if folder else [])]:
        _line(console, line)


def print_changes(console: Console, case_id: str, changes: Sequence[Change], first_on: str = "") -> None:
    """Print what a refresh of one case changes: old, new, change, its interval, and drift since the first approval.

    ``first_on`` says where the case gets its first baseline.
    """
    table = _new_table(*CHANGE_HEADINGS)
    for change in changes:
        table.add_row(*_cells(change_cells(change)))
    _line(console, f"{case_id}: {what_changes(changes, first_on)}")
    if changes:
        _print_whole(console, table, max(console.width, UNCUT))


def change_cells(change: Change) -> list[str]:
    """Return the cells of one line of a refresh, under :data:`CHANGE_HEADINGS`."""
    values = [humanize.number(value, "info", change.unit) for value in (change.old, change.new)]
    moved, drift = (_relative(change.new, since) for since in (change.old, change.first))
    return [change.signal, *values, moved, interval_text(change.interval) if change.interval else "-", drift]


def what_changes(changes: Sequence[Change], first_on: str) -> str:
    """Return in words how much a refresh of one case changes."""
    number = f"{len(changes)} signal{'' if len(changes) == 1 else 's'}"
    if first_on:
        return f"first baseline of this case on {first_on}, {number}"
    return f"{number} change{'s' if len(changes) == 1 else ''}" if changes else "nothing changes"


def table_rows(judgement: Judgement) -> list[Row]:
    """Return the cells of the table, worst first: what does not pass, what is listed, what passes, what is shown."""
    ranked = sorted((row for case in judgement.cases for row in case.signals), key=rank)
    shares = {case.case_id: _busy_share(case) for case in judgement.cases}
    rows: list[Row] = []
    for row in ranked:
        rows.append(_row(row))
        if row.signal == "step_time" and shares[row.case_id]:
            rows.append((SHOWN, row.case_id, "GPU busy share", *shares[row.case_id], ""))
    return rows


def _row(row: SignalVerdict) -> Row:
    verdict = row.verdict or SHOWN
    more = f" (+{len(row.where) - 1})" if len(row.where) > 1 else ""
    return (
        f"{verdict}, listed" if row.listed else verdict,
        row.case_id,
        row.signal,
        humanize.number(row.baseline, row.kind, row.unit),
        humanize.number(row.now, row.kind, row.unit),
        humanize.change(row),
        f"{row.where[0]}{more}" if row.where else "",
    )


def _busy_share(case: CaseVerdict) -> tuple[str, str, str] | tuple[()]:
    """Return GPU busy over wall per step: baseline, now, change. At a small share the step is host-bound."""
    rows = {row.signal: row for row in case.signals}
    busy, wall = rows.get("gpu_busy"), rows.get("step_time")
    if busy is None or wall is None:
        return ()
    old = _ratio(busy.baseline, busy.unit, wall.baseline, wall.unit)
    now = _ratio(busy.now, busy.unit, wall.now, wall.unit)
    return (_share(old), _share(now), "") if now is not None else ()


def _ratio(above: float | None, above_unit: str, below: float | None, below_unit: str) -> float | None:
    if above is None or not below:
        return None
    top, bottom = humanize.seconds(above, above_unit), humanize.seconds(below, below_unit)
    return top / bottom if top is not None and bottom else None


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _relative(new: float | None, old: float | None) -> str:
    if new is None:
        return "retired"
    if old is None:
        return "new"
    return percent((new - old) / abs(old)) if old else f"{new - old:+.6g}"


def _new_table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _print_table(console: Console, rows: Sequence[Row]) -> None:
    """Print the table. Names and numbers are never cut: the source line yields, and then the console's width."""
    from rich.cells import cell_len

    cleaned = [tuple(map(humanize.printable, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(HEADINGS, *cleaned, strict=True)]
    names = sum(widths[:-1]) + GAP * (len(widths) - 2)
    where = min(console.width - names - GAP, widths[-1])
    if where < min(LEAST_WHERE, widths[-1]):
        widths, where = widths[:-1], 0
    table = _new_table(*HEADINGS[: len(widths)])
    if where:
        last = table.columns[-1]
        last.no_wrap, last.overflow, last.width = False, "fold", where
    for row in cleaned:
        table.add_row(*_cells(row[: len(widths)]), style=_STYLES[row[0].partition(",")[0]])
    _print_whole(console, table, max(console.width, names))


def _print_whole(console: Console, table: Table, width: int) -> None:
    """Print ``table`` in ``width`` columns, be the console narrower: a terminal wraps what rich would cut."""
    asked, console.width = console.width, width
    console.print(table)
    console.width = asked


def _cells(texts: Iterable[str]) -> list[Text]:
    from rich.text import Text

    # Text, not str: a str would be read as markup.
    return [Text(humanize.printable(text)) for text in texts]


def _print_case(console: Console, case: CaseVerdict) -> None:
    """Print what the rows of a case that need attention say, and once the commands that they share."""
    rows = [row for row in case.signals if row.verdict not in ("pass", None) or row.listed]
    if not rows:
        return
    _line(console, "")
    _line(console, f"{case.case_id}: {case.verdict}", style="bold")
    for message, signals in _by_message(rows).items():
        first, *parts = message.split("\n")
        _line(console, f"  {', '.join(signals)}: {first}")
        for part in parts:
            _line(console, f"    {part}")
    for label, command in _commands(rows):
        _line(console, f"  {label}: {command}")


def _by_message(rows: Sequence[SignalVerdict]) -> dict[str, list[str]]:
    merged: dict[str, list[str]] = {}
    for row in sorted(rows, key=rank):
        merged.setdefault(_message(row), []).append(row.signal)
    return merged


def _message(row: SignalVerdict) -> str:
    head, *parts = row.message.split("\n")
    verdict = f"{row.verdict or SHOWN}{', listed' if row.listed else ''}"
    if row.interval and row.kind != "wall":
        head += f" (interval {interval_text(row.interval)})"
    return "\n".join([f"{verdict}; {head}", *parts])


def _commands(rows: Sequence[SignalVerdict]) -> list[tuple[str, str]]:
    pairs = [("reproduce", row.reproduce) for row in rows] + [("refresh", row.refresh) for row in rows]
    return [pair for pair in dict.fromkeys(pairs) if pair[1]]


def settings(records: Sequence[Record]) -> list[str]:
    """Return one line for each combination of versions and machine among the records."""
    lines = []
    for record in records:
        e = record.environment
        gpu = f"{e.gpu_name}, " if e.gpu_name and e.device != "cpu" else ""
        versions = f"torch {e.torch}, Python {e.python}, transformers {e.transformers or '?'}"
        lines.append(f"rfdetr {e.rfdetr} ({e.rfdetr_source}), {versions}, {gpu}{e.cpu_model} x{e.cpu_count}")
    return list(dict.fromkeys(lines))


def remarks(records: Sequence[Record]) -> list[str]:
    """Return what the records say about how they were made, each remark once."""
    remarks = [f"note: {text}" for record in records for text in (*record.adaptations, *record.notes)]
    for record in records:
        for state in (*record.gpu_before, *record.gpu_after):
            if state.other_processes and BESIDE not in record.notes:
                remarks.append(f"note: GPU {state.index} was shared with other processes during {record.case_id}")
            if state.throttle_reasons:
                reasons = ", ".join(state.throttle_reasons)
                remarks.append(f"note: GPU {state.index} throttled during {record.case_id}: {reasons}")
    return list(dict.fromkeys(remarks))


def _line(console: Console, text: str, style: str | None = None) -> None:
    # soft_wrap: a command must stay one line that can be copied.
    console.print(humanize.printable(text), style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)
