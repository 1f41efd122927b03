"""Section of an investigation about input: what a sample costs, how fast loaders are, and whether that binds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perf.findings import Runs, Spread
from perf.input_rate import fewest_workers, input_bound, loader_rates, rate_name
from perf.investigation import Found
from perf.report.blocks import Block, Code, Figure, Heading, Paragraph, Table, Text
from perf.report.figures import Bar, bars
from perf.report.humanize import number
from perf.report.investigation_step import made_by, share, shown
from perf.report.missing import Missing

_GETITEM = re.compile(r"getitem(_.*)?")
_PARTS = ("decode", "resize", "other")


def input_section(found: Found, missing: Missing) -> list[Block]:
    """Return the tables of samples and loaders, and what they say together with the step."""
    title: list[Block] = [Heading("Input")]
    runs = found.of("input")
    if runs is None or not runs.finished:
        return [*title, *missing.say("samples, loaders and augmentation", runs, "getitem")]
    sections = (*_samples(runs, missing), *_loaders(runs, found, missing), *_augmented(runs, missing))
    return [*title, *sections, *made_by(found, runs)]


def _samples(runs: Runs, missing: Missing) -> list[Block]:
    # The case's own data first: it is what the training reads.
    names = sorted((name for name in _names(runs) if _GETITEM.fullmatch(name)), key=lambda name: name != "getitem")
    if not names:
        return missing.say("the time of a sample", runs, "getitem")
    rows: list[list[Text]] = []
    for name in names:
        parts = runs.parts(name)
        cells = [_with_share(parts.get(part), runs.spread(name)) for part in _PARTS]
        rows.append([(_what(name), " (", Code(name), ")"), shown(runs.spread(name)), *cells])
    return [Table(("one sample, one thread", "all of it", *_PARTS), rows)]


def _names(runs: Runs) -> list[str]:
    return list(dict.fromkeys(signal.name for record in runs.finished for signal in record.signals))


def _what(name: str) -> str:
    rest = name.removeprefix("getitem").strip("_").split("_")
    if rest == [""]:
        return "the case's own data"
    if rest[0].isdecimal():
        return f"photographs, JPEG, at {rest[0]} px"
    return f"photographs, {rest[0].upper()}{', large' if 'large' in rest else ''}"


def _with_share(part: Spread | None, whole: Spread | None) -> str:
    if part is None or whole is None or not whole.median:
        return "-"
    return f"{number(part.median, part.kind, part.unit)}, {share(part.median, whole.median)}"


def _loaders(runs: Runs, found: Found, missing: Missing) -> list[Block]:
    counts = sorted({workers for record in runs.finished for workers in loader_rates(record.signals)})
    rates = {count: spread for count in counts if (spread := runs.spread(rate_name(count)))}
    if not rates:
        return missing.say("rates of loaders", runs, rate_name(runs.case.workers))
    step, fit = _step_rate(found), found.of("fit")
    taken = (fit or runs).case.batch_size * (fit or runs).case.accumulate
    rows: list[list[Text]] = [
        [f"{count} workers", shown(spread), _binds(spread.median, step) if count else _by_itself(spread.median, taken)]
        for count, spread in rates.items()
    ]
    drawn = [
        Bar(f"{count} workers", spread.median, f"{spread.median:.4g} samples/s") for count, spread in rates.items()
    ]
    mark = (step, f"a step takes {step:.4g} samples/s") if step else None
    table = Table(("loader alone", "rate", "binds against the step here"), rows)
    figure = Figure(bars(drawn, mark), "What a loader yields by number of workers; dashed: what the step could take.")
    return [table, figure, _verdict({c: s.median for c, s in rates.items()}, step), *_same_data(runs, found.of("fit"))]


def _step_rate(found: Found) -> float | None:
    """Return the samples/s of a step that waits for no input; None where it was not measured."""
    fit = found.of("fit")
    step, parts = (fit.spread("fit_step"), fit.parts("fit_step")) if fit else (None, {})
    if fit is None or step is None or "input_wait" not in parts:
        return None
    working = step.median - parts["input_wait"].median
    return 1000 * fit.case.batch_size * fit.case.accumulate / working if working > 0 else None


def _binds(rate: float, step: float | None) -> str:
    if step is None:
        return "not known: no step was measured"
    if rate <= 0:
        return "not known: this loader yielded nothing"
    return {True: "yes", False: "no", None: "too close to call"}[input_bound(rate, step)]


def _by_itself(rate: float, taken: int) -> str:
    """Return what a loader without workers adds to each step: nothing loads while the loop computes."""
    if rate <= 0:
        return "not known: this loader yielded nothing"
    told = number(1000 * taken / rate, "wall", "ms")
    return f"in every step: the loop loads by itself, {told} for its {taken} samples"


def _verdict(rates: dict[int, float], step: float | None) -> Paragraph:
    if step is None:
        return Paragraph("Whether input binds is not known: no step of the training loop was measured.")
    # Without workers no rate is enough: a step waits for each of its samples.
    enough = fewest_workers({count: rate for count, rate in rates.items() if count and rate > 0}, step)
    told = f"enough with {enough} workers or more" if enough is not None else "not enough with any number tried"
    return Paragraph(
        f"The step could take {step:.4g} samples/s, were there no wait for input; a loader alone is {told}. "
        "While training, workers share the CPU with the loop."
    )


def _same_data(runs: Runs, fit: Runs | None) -> Sequence[Block]:
    """Return a warning where loader and step did not read the same."""
    read = [one.records[0].environment.workload or "?" for one in (runs, fit) if one and one.records]
    if len(set(read)) < 2:
        return []
    told = "Loader and step did not read the same data, so that their rates do not compare; give both one with --data: "
    return [Paragraph((told, Code(read[0]), " and ", Code(read[1])))]


def _augmented(runs: Runs, missing: Missing) -> list[Block]:
    rows: list[list[Text]] = []
    rest: list[Block] = []
    for name in ("augment_cpu", "augment_gpu"):
        spread = runs.spread(name)
        if spread is None:
            rest += missing.say(f"augmentation_backend={name.removeprefix('augment_')!r}", runs, name)
        else:
            rows.append([Code(f"augmentation_backend={name.removeprefix('augment_')!r}"), shown(spread)])
    if memory := runs.spread("memory_per_worker"):
        rows.append(["memory of a worker", shown(memory)])
    return [*([Table(("a batch", "value"), rows)] if rows else []), *rest]
