"""Section of an investigation: TraceML's decomposition of the same workload beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from perf.findings import Runs
from perf.investigation import TRACEML, Found
from perf.report.blocks import Block, Code, Command, Heading, Items, Paragraph, Table, Text
from perf.report.missing import Missing
from perf.traceml import (
    OF_A_STEP,
    OURS,
    SUMMARY,
    TOLERANCE,
    Row,
    SameSteps,
    Summary,
    compared,
    read_same_steps,
    read_summary,
)


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
    rows, fit = compared(theirs, ours), found.of("fit")
    shown: list[list[Text]] = [
        [row.name, _ms(row.theirs), _ms(row.ours), _agrees(row), _ms(_alone(row, fit))] for row in rows
    ]
    told = (
        f"One process, the same {ours.updates} updates after {ours.warmup} of warm-up, timed by both at once; means. "
        f"TraceML's phases are by its {theirs.clock} clock, step and input wait by the host's, as ours all are. "
    )
    table = Table(("", "TraceML", "fit probe, same steps", "agree", "fit probe, without TraceML"), shown)
    said = Paragraph(
        (told, "TraceML ", Code(ours.traceml), " says of ", Code(ours.case_id), ": ", Code(theirs.diagnosis), ".")
    )
    counted: list[Block] = []
    if theirs.steps != ours.updates:
        counted = [Paragraph(f"It has {theirs.steps} steps in its window, not {ours.updates}.")]
    differs: list[Text] = [f"{row.name}: {row.boundary}{_since(row, fit)}" for row in rows if row.boundary]
    boundaries: list[Block] = [Paragraph("Where they begin and end:"), Items(differs)] if differs else []
    return [said, *counted, table, Paragraph(_verdict(rows, ours.step)), *boundaries, Command(ours.command)]


def _verdict(rows: Sequence[Row], step: float) -> str:
    """Return whether they agree, and by which rule."""
    rule = (
        f"To agree, they have to be within {100 * TOLERANCE:g} % of each other; a wait for input may also be "
        f"{100 * OF_A_STEP:g} % of the step apart ({_ms(OF_A_STEP * step)} here). Other phases are not held against "
        "each other: they begin and end elsewhere. "
    )
    if apart := [row.name for row in rows if row.agrees is False]:
        return f"{rule}They differ in {' and '.join(apart)}: see below for the boundary."
    return f"{rule}Step and input wait agree."


def _alone(row: Row, fit: Runs | None) -> float | None:
    """Return what the other runs, those without TraceML, say of the same; None where there are none."""
    step, parts = (fit.spread("fit_step"), fit.parts("fit_step")) if fit else (None, {})
    if step is None or not row.phases:
        return step.median if step else None
    there = [parts[phase].median for phase in row.phases if phase in parts]
    return sum(there) if there else None


def _since(row: Row, fit: Runs | None) -> str:
    """Return what TraceML itself adds to the phase that its hooks are in."""
    alone = _alone(row, fit)
    if row.name != "host to device" or alone is None or row.ours <= alone:
        return ""
    return f". Without TraceML ours is {_ms(alone)}; which of its hooks take the rest is not known"


def _ms(value: float | None) -> str:
    """Return ms with four digits, all in one unit, since they are to be compared."""
    return "not measured" if value is None else f"{value:#.4g}".rstrip(".") + " ms"


def _agrees(row: Row) -> str:
    if row.by_share:
        return f"yes, within {100 * OF_A_STEP:g} % of the step"
    return {True: f"yes, within {100 * TOLERANCE:g} %", False: "no", None: "not asked"}[row.agrees]
