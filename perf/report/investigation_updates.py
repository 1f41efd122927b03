"""How the updates of a run scatter: their picture, and what is said of those that took far longer than the others."""

from __future__ import annotations

import statistics

from perf.findings import Runs
from perf.record import Signal
from perf.report.blocks import Block, Figure, Items, Paragraph, Text
from perf.report.figures import Run, strips
from perf.report.humanize import number

# An update that took as many times the run's median is one that something got in the way of: in the runs on an H200's
# host the others lie within 0.7 to 1.3 of it.
OUTLYING = 2.0


def updates_told(fit: Runs) -> list[Block]:
    """Return which runs have updates that stand out, since they are in the means of the phases; nothing for none."""
    lines: list[Text] = [
        f"run {record.run}: {told}"
        for record in fit.finished
        if (signal := record.signal("fit_step")) and (told := _outliers(signal, record.signal("kernel_compiles")))
    ]
    if not lines:
        return []
    told = f"Phases are means, and these updates, {OUTLYING:g} times their run's median or more, are in them:"
    return [Paragraph(told), Items(lines)]


def _outliers(signal: Signal, compiles: Signal | None) -> str:
    long = sorted(sample for sample in signal.samples if _stands_out(sample, signal))
    if not long:
        return ""
    rest = [sample for sample in signal.samples if not _stands_out(sample, signal)]
    low, high, middle, mean = (
        number(one, signal.kind, signal.unit)
        for one in (long[0], long[-1], statistics.median(signal.samples), statistics.fmean(rest))
    )
    took = high if len(long) == 1 else f"{low} to {high}"
    told = f"{len(long)} of {len(signal.samples)} updates took {took} (median {middle}; mean of the others {mean})"
    return told + _compiled(signal, compiles)


def _compiled(signal: Signal, compiles: Signal | None) -> str:
    """Return in how many of those that stand out Triton compiled kernels, and which it compiled in all updates."""
    if compiles is None or len(compiles.samples) != len(signal.samples):
        return ""
    pairs = zip(signal.samples, compiles.samples, strict=True)
    during = sum(count > 0 and _stands_out(sample, signal) for sample, count in pairs)
    names = f" ({', '.join(part.name for part in compiles.parts)})" if during else ""
    return f"; in {during} of them Triton compiled a kernel{names}"


def _stands_out(sample: float, signal: Signal) -> bool:
    return sample >= OUTLYING * statistics.median(signal.samples) > 0


def strips_of(fit: Runs) -> list[Block]:
    """Return every update as a dot; those that stand out at the end of the axis, so that the others keep their room."""
    signals = [(record.run, signal) for record in fit.finished if (signal := record.signal("fit_step"))]
    rows = [Run(f"run {run}", signal.samples, signal.value) for run, signal in signals]
    most = max(
        (one for _, s in signals for one in (s.value, *(v for v in s.samples if not _stands_out(v, s)))), default=0.0
    )
    beyond = any(sample > most for row in rows for sample in row.samples)
    told = "Every update that was timed, a row a run; the line is the run's mean."
    return [Figure(strips(rows, "ms", most), f"{told}{' Hollow: longer than the axis.' if beyond else ''}")]
