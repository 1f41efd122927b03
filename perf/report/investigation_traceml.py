"""Section of an investigation: TraceML's decomposition of the same workload beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from perf.investigation import TRACEML, Found
from perf.report.blocks import Block, Code, Command, Heading, Paragraph, Table, Text
from perf.report.missing import Missing
from perf.traceml import OURS, SUMMARY, TOLERANCE, Row, SameSteps, Summary, compared, read_same_steps, read_summary


def traceml_section(found: Found, missing: Missing) -> list[Block]:
    """Return both side by side; where TraceML was not run, how to."""
    title: list[Block] = [Heading("Beside TraceML")]
    folder = found.folder / TRACEML
    if not (folder / SUMMARY).is_file():
        why = "it was not run here: nox -s traceml-2.14 -- --out with this folder"
        missing.lines.append(("TraceML beside it: ", Code(why)))
        return [*title, Paragraph(("Not measured: ", Code(why)))]
    try:
        theirs, ours = read_summary(folder / SUMMARY), read_same_steps(folder / OURS)
    except ValueError as error:
        missing.lines.append(("TraceML beside it: ", Code(str(error))))
        return [*title, Paragraph(("Not measured: ", Code(str(error))))]
    return [*title, *_beside(theirs, ours, found)]


def _beside(theirs: Summary, ours: SameSteps, found: Found) -> list[Block]:
    rows = compared(theirs, ours)
    shown: list[list[Text]] = [[row.name, _ms(row.theirs), _ms(row.ours), _agrees(row), row.boundary] for row in rows]
    by_itself = _by_itself(found)
    told = (
        f"One process, the same {ours.updates} updates after {ours.warmup} of warm-up, timed by both at once; means. "
        f"TraceML's phases are by its {theirs.clock} clock, step and input wait by the host's, as ours all are. "
    )
    table = Table(("", "TraceML", "fit probe, same steps", f"within {100 * TOLERANCE:g} %", "what differs"), shown)
    said = Paragraph(
        (told, "TraceML ", Code(ours.traceml), " says of ", Code(ours.case_id), ": ", Code(theirs.diagnosis), ".")
    )
    counted: list[Block] = []
    if theirs.steps != ours.updates:
        counted = [Paragraph(f"It has {theirs.steps} steps in its window, not {ours.updates}.")]
    return [said, *counted, table, *_verdict(rows), *by_itself, Command(ours.command)]


def _verdict(rows: Sequence[Row]) -> list[Block]:
    apart = [row for row in rows if row.agrees is False]
    if not apart:
        return [Paragraph("They agree on what can be held against each other.")]
    return [Paragraph(f"They differ in {', '.join(row.name for row in apart)}: see the last column for the boundary.")]


def _by_itself(found: Found) -> list[Block]:
    """Return what a step took in the runs without TraceML."""
    fit = found.of("fit")
    step = fit.spread("fit_step") if fit else None
    if step is None:
        return []
    return [Paragraph(f"Without TraceML an update took {_ms(step.median)} (median of {step.n} other runs).")]


def _ms(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g} ms"


def _agrees(row: Row) -> str:
    return {True: "yes", False: "no", None: "-"}[row.agrees]
