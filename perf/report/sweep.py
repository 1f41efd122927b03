"""A sweep's plan and cells, and what is recommended from them -> text and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from perf.case import Case, find_case
from perf.cells import Cell
from perf.environment import Environment
from perf.levers import LEVERS, Lever, lever_of
from perf.recommend import Advice, Check, Payback, model_arguments, train_arguments
from perf.report.humanize import minutes, number
from perf.report.markdown import table, text
from perf.sweep_plan import FIRST_BATCH
from perf.sweep_time import Estimate

HEADINGS = (
    *("config", "precision", "lever", "batch", "images/s", "95 % interval", "GPU busy", "memory", "first step"),
    "result",
)
ROW_HEADINGS = (
    *("GPU", "model", "batch size", "precision", "compile", "CUDA graphs", "images/s", "GPU busy", "peak memory"),
    "source",
)


def plan_text(
    cases: Sequence[Case], done: int, estimate: Estimate, runs: int, budget: float | None, *, refined: bool
) -> str:
    """Return the plan: how many cells at most, of which kind, and how long they take; with a budget, about how many.

    ``refined``: sizes between two doublings follow, which nobody knows yet.
    """
    count, limit = (
        (f"{len(cases)} cells at most", "at most") if budget is None else (f"about {len(cases)} cells", "about")
    )
    lines = [f"plan: {count}" + (f", {done} measured already" if done else "")]
    total = 0.0
    for lever in LEVERS:
        of = [case for case in cases if lever_of(case) == lever]
        seconds = sum(runs * estimate.seconds(case, lever) for case in of)
        total += seconds
        if of:
            sizes = sorted({case.batch_size for case in of})
            precisions = ", ".join(dict.fromkeys(case.precision for case in of))
            lines.append(f"  {lever}: {len(of)} cells, {precisions}, batch {_sizes(sizes)}: {minutes(seconds)}")
    basis = "as cells took so far" if estimate.known else "by rule of thumb: nothing was measured here yet"
    lines.append(f"  {limit} {minutes(total)} ({basis}); a series ends where memory runs out")
    if refined:
        lines.append("  up to two sizes a series between two doublings come on top, where its rate saturates")
    if budget is not None:
        lines.append(f"  budget {minutes(budget)}: the most telling cells first (docs/sweep.md), each only if it fits")
    return "\n".join(lines)


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if len(sizes) < 4 else f"{sizes[0]}, {sizes[1]} ... {sizes[-1]}"


def cells_table(cells: Iterable[Cell], unsupported: Mapping[str, str]) -> str:
    """Return all cells as a Markdown table, which reads as text, and what could not be tried below it."""
    rows = [_row(cell) for cell in sorted(cells, key=_order)]
    return "\n".join([table(HEADINGS, rows), *refused_lines(unsupported)])


def refused_lines(unsupported: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why settings, by the id of their case, cannot be tried here."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for case_id, why in unsupported.items():
        case = find_case(case_id)
        found.setdefault((case.config, case.precision, why), []).append(lever_of(case))
    return [f"unsupported here: {one} {two} {', '.join(of)}: {why}" for (one, two, why), of in found.items()]


def _order(cell: Cell) -> tuple[str, str, int, int]:
    return cell.case.config, cell.case.precision, LEVERS.index(cell.lever), cell.case.batch_size


def _row(cell: Cell) -> tuple[str, ...]:
    case, measured = cell.case, cell.outcome in ("measured", "fell back")
    asked = f", asked for {cell.asked / 2**20:.0f} MiB" if cell.asked else ""
    told = f": {cell.detail}" if cell.detail and cell.outcome != "out of memory" else ""
    return (
        case.config,
        case.precision,
        cell.lever,
        str(case.batch_size),
        f"{cell.rate:.4g}" if measured else "-",
        f"{cell.low:.4g} to {cell.high:.4g}" if measured else "-",
        _percent(cell.busy),
        _percent(cell.memory),
        number(cell.first_step, "info", "s"),
        text(f"{cell.outcome}{asked}{told}"),
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def advice_text(advice: Advice, device: str, images: int, headroom: float) -> str:
    """Return what is recommended for a config, and why, in lines."""
    reduced = ", a reduced model: it says nothing of the real one" if advice.cells[0].case.lane == "cpu" else ""
    lines = [f"{advice.config} on {device}{reduced}"]
    if advice.fastest is None:
        kept = f"keeps {100 * headroom:.0f} % of the memory free and that rfdetr has keywords for"
        return "\n".join([*lines, f"  nothing to recommend: no cell was measured that {kept}"])
    fastest, smallest = advice.fastest, advice.smallest
    lines.append(f"  fastest with {100 * headroom:.0f} % of the memory free: {setting(fastest)}")
    lines.append(f"    {_measured(fastest)}")
    if smallest and smallest is not fastest:
        lines.append(f"  smallest batch within 2 % of it: {setting(smallest)}, {smallest.rate:.4g} images/s")
    if fastest.memory is None:
        lines.append("  the share of memory is not known, so the headroom was not checked")
    lines += [f"  {line}" for line in (*_payback(advice.payback, images), *_changes(advice)) if line]
    return "\n".join(lines)


def setting(cell: Cell) -> str:
    """Return a cell's setting in words."""
    return f"batch {cell.case.batch_size}, {cell.case.precision}, {cell.lever}"


def _measured(cell: Cell) -> str:
    runs = "its own steps" if cell.runs == 1 else f"{cell.runs} runs"
    told = [f"{cell.rate:.4g} images/s ({cell.low:.4g} to {cell.high:.4g} by {runs})"]
    told += [f"GPU busy {_percent(cell.busy)}"] if cell.busy is not None else []
    told += [f"memory {_percent(cell.memory)}"] if cell.memory is not None else []
    return ", ".join(told)


def _payback(found: Payback | None, images: int) -> list[str]:
    if found is None:
        return ["when compile pays back: not measured (it needs a compiled and an eager cell of one batch size)"]
    pair = f"{found.cell.lever} against eager at batch {found.cell.case.batch_size}"
    if found.epochs is None:
        return [f"compile does not pay back: {pair} is no faster"]
    cache = "cold" if found.cold else "warm"
    epochs = f"{found.epochs:.2g}" if found.epochs < 10 else f"{found.epochs:.0f}"
    return [f"compile pays back after {epochs} epochs of {images} images ({pair}, {cache} cache)"]


def _changes(advice: Advice) -> list[str]:
    lines = [f"change first: {one.what}, {one.gain:.2f} times as fast" for one in advice.changes[:1]]
    lines += [f"then: {one.what}, {one.gain:.2f} times by itself" for one in advice.changes[1:]]
    return [*lines, *_default(advice), _workers(advice), advice.busy_note]


def _default(advice: Advice) -> list[str]:
    """Return what changes were held against where that is not clear: rfdetr's default batch is taken for granted."""
    if advice.default is None:
        needed = f"it needs eager at batch {FIRST_BATCH} beside other batch sizes or levers"
        return [] if advice.changes else [f"what to change first: not measured ({needed})"]
    if not advice.changes:
        return [f"no batch size or lever by itself is 5 % faster than {setting(advice.default)}"]
    usual = advice.default.case.batch_size == FIRST_BATCH
    return (
        [] if usual else [f"each against {setting(advice.default)}: no eager cell of batch {FIRST_BATCH} was measured"]
    )


def _workers(advice: Advice) -> str:
    if advice.workers is None or advice.fastest is None:
        return f"workers: the loader was not measured here with {advice.config}; give its records too"
    yielded = advice.loader[advice.workers]
    limit = ": input is the limit, with any number that was measured" if yielded < advice.fastest.rate else ""
    return f"workers: {advice.workers} yield {yielded:.4g} images/s{limit}"


def rows(advices: Iterable[Advice], environment: Environment) -> list[tuple[str, ...]]:
    """Return the cookbook's rows: for each config what is recommended and the best of each other lever, as measured.

    The best has the headroom where a cell of that lever has it.
    A lever without a cell has a row too, ``not measured``: nothing is guessed.
    """
    device = environment.gpu_name or environment.cpu_model
    found = []
    for advice in advices:
        found += [_lever_row(advice, lever, device) for lever in LEVERS]
    return found


def _lever_row(advice: Advice, lever: Lever, device: str) -> tuple[str, ...]:
    fastest = next((cell for cell in advice.levers if cell.lever == lever), None)
    flags = _flag(lever in ("compile", "both", "reduce-overhead")), _flag(lever in ("graphs", "both"))
    if fastest is None:
        return (device, advice.config, "-", "-", *_mode(lever, flags), "-", "-", "-", "not measured")
    mark = "measured, recommended" if fastest is advice.fastest else "measured"
    peak = number(fastest.peak, "info", "B")
    return (
        device,
        advice.config,
        str(fastest.case.batch_size),
        fastest.case.precision,
        *_mode(lever, flags),
        f"{fastest.rate:.4g}",
        _percent(fastest.busy),
        peak,
        f"{mark}: {fastest.record}",
    )


def _flag(on: bool) -> str:
    return "yes" if on else "no"


def _mode(lever: Lever, flags: tuple[str, str]) -> tuple[str, str]:
    return ("reduce-overhead", "by Inductor") if lever == "reduce-overhead" else flags


def rows_table(found: Sequence[tuple[str, ...]]) -> str:
    """Return rows as the cookbook's table."""
    return table(ROW_HEADINGS, [[cell if cell == "-" else text(cell) for cell in row] for row in found])


def class_stem(config: str) -> str:
    """Return how rfdetr writes the name of a config: ``Seg2XLarge`` for ``seg-2xlarge``."""
    words = (re.match(r"(\d*)(x?)(.*)", word) for word in config.split("-"))
    return "".join(found[1] + found[2].upper() + found[3].capitalize() for found in words if found)


def arguments_text(cell: Cell, workers: int | None) -> str:
    """Return the Python that trains with a setting."""
    class_name = f"RFDETR{class_stem(cell.case.config)}"
    model = ", ".join(f"{name}={value!r}" for name, value in model_arguments(cell.case).items())
    train = "".join(f"    {name}={value!r},\n" for name, value in train_arguments(cell.case, workers).items())
    return f"model = {class_name}({model})\nmodel.train(\n    dataset_dir=...,\n{train})\n"


def check_text(found: Sequence[Check]) -> str:
    """Return how far each recommendation is from the best of an exhaustive sweep."""
    return "\n".join(
        f"{one.best.case.config}: {_settings(one.recommended)} has {100 * one.share:.1f} % of the best rate "
        f"({setting(one.best)}): {'within' if one.holds else 'NOT within'} 2 %"
        for one in found
    )


def _settings(recommended: Cell | None) -> str:
    return setting(recommended) if recommended else "nothing is recommended, which"
