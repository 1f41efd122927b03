"""Section of an investigation about syncs: where the host waits for the GPU, how often, and at most for how long."""

from __future__ import annotations

from collections.abc import Sequence

from perf.findings import Runs, Spread
from perf.investigation import Found
from perf.report.blocks import Block, Code, Heading, Paragraph, Table, Text, joined, pieces
from perf.report.humanize import over_runs
from perf.report.investigation_cost import cost
from perf.report.investigation_step import MOST_ROWS, made_by, shown
from perf.report.missing import Missing

# Of the lines of a function the first; the rest is in the records.
MOST_LINES = 3


def sync_section(found: Found, missing: Missing) -> list[Block]:
    """Return the table of syncs by function, and what taking some out does."""
    title: list[Block] = [Heading("Host syncs")]
    fit = found.of("fit")
    wait, count = (fit.spread(name) if fit else None for name in ("sync_wait", "sync_counts"))
    if fit is None or (wait is None and count is None):
        return [*title, *missing.say("host syncs by line, their number and wait", fit, "sync_wait")]
    waits, counts = fit.parts("sync_wait"), fit.parts("sync_counts")
    lines = {**fit.where("sync_counts"), **{k: v for k, v in fit.where("sync_wait").items() if v}}
    names = sorted({**waits, **counts}, key=lambda name: -(waits[name].median if name in waits else 0.0))
    rows: list[list[Text]] = [
        [Code(name), _lines(name, lines.get(name, [])), _counted(counts.get(name)), shown(waits.get(name))]
        for name in names[:MOST_ROWS]
    ]
    rows.insert(0, ["sum", "", _counted(count), shown(wait)])
    told = "A wait is an upper bound of what a sync costs: whoever does not wait there may wait at the next one. "
    table = Table(("sync", "line", "syncs a step", "host waits, at most"), rows)
    return [*title, table, *_more_rows(len(names)), Paragraph((told, *_taken_out(fit, missing))), *made_by(found, fit)]


def _counted(spread: Spread | None) -> str:
    """Return a number of syncs without the word: the column has it."""
    return "-" if spread is None else over_runs(spread.values, "count-volume", "")


def _lines(name: str, where: Sequence[str]) -> Text:
    """Return the first lines and how many there are more; without the file where ``name`` has it already."""
    told = [Code(line.rpartition(":")[2] if line.rpartition(":")[0] in name else line) for line in where[:MOST_LINES]]
    more = len(where) - MOST_LINES
    return joined([*told, f"and {more} more"] if more > 0 else told)


def _more_rows(count: int) -> list[Block]:
    more = count - MOST_ROWS
    if more <= 0:
        return []
    return [Paragraph(f"{more} more {'function is' if more == 1 else 'functions are'} in the records.")]


def _taken_out(fit: Runs, missing: Missing) -> tuple[str, ...]:
    """Return what was taken out, and what a step was shorter by then."""
    if fit.spread("sync_cost") is None:
        missing.say("cost of syncs, by taking them out", fit, "sync_cost")
        return ("What taking them out saves was not measured: ", Code(fit.missing("sync_cost")))
    what = joined([Code(name) for name in fit.parts("sync_cost")])
    return ("What taking some out saves a step (", *pieces(what), f"): {cost(fit, 'sync_cost')}.")
