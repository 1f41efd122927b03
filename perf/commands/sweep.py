"""``sweep``: which settings train fastest on this machine, measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perf.commands.arguments import Command, duration, positive
from perf.commands.output import resumable, say, say_aside
from perf.suites import LANES
from perf.verdicts import EXIT_NOTHING_JUDGED

if TYPE_CHECKING:
    from perf.case import Lane
    from perf.cells import Cell
    from perf.sweep import Sweep

FAILED = 1


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--config", action="append", default=[], metavar="NAME", help="repeatable; default: nano")
    parser.add_argument("--precision", type=_words, metavar="NAME,...", help="of bf16, fp16, fp32, fp8; default: all")
    parser.add_argument("--lever", type=_words, metavar="NAME,...", help="eager, compile, graphs, both, ...: all")
    parser.add_argument(
        "--batch-sizes", type=_numbers, default=(), metavar="N,...", help="default: doubled until memory runs out"
    )
    parser.add_argument("--most", type=positive, default=1024, metavar="N", help="largest batch; default: %(default)s")
    parser.add_argument("--runs", type=positive, default=1, metavar="N", help="processes a cell; default: %(default)s")
    parser.add_argument("--budget", type=duration, metavar="TIME", help="such as 20m: the most telling cells first")
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--session", metavar="NAME", help="name it, to go on with it later; default: the time")
    parser.add_argument("--resume", metavar="SESSION", help="go on with this sweep; what is measured is not repeated")
    parser.add_argument("--again", action="store_true", help="measure cells that raised anew")
    parser.add_argument("--plan", action="store_true", help="print the plan and stop")
    parser.add_argument("--run-timeout", type=float, default=1800.0, metavar="SECONDS")


def _words(text: str) -> tuple[str, ...]:
    found = tuple(word for word in text.split(",") if word)
    if not found:  # as of a shell variable that is not set: that is not all of them
        msg = f"{text!r} names none"
        raise argparse.ArgumentTypeError(msg)
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(word) for word in text.split(",")}))


def _sweep(options: argparse.Namespace) -> int:
    from perf.launch import RunFailed
    from perf.sweep import measure

    sweep = sweep_of(options)
    say(plan(sweep) + "\n")
    if options.plan:
        return 0
    try:
        with resumable(sweep.folder.name):
            cells = measure(sweep)
    except RunFailed as failure:
        say_aside(f"rfdetr-perf: a cell left no record, so that no other would: {failure}")
        return FAILED
    return _tell(sweep, cells)


def sweep_of(options: argparse.Namespace) -> Sweep:
    """Return the sweep that the command line asks for.

    Raises:
        ValueError: an unknown config, lever or precision, no GPU on the gpu lane, or no such sweep to go on with.
    """
    from perf.levers import LEVERS, PRECISIONS, machine_here
    from perf.session import NO_GPU, gpu_count, lane_here, new_name
    from perf.sweep import Asked, Sweep
    from perf.sweep_plan import Grid

    lane: Lane = "cpu" if lane_here(options.lane) == "cpu" else "gpu"
    if lane == "gpu" and not gpu_count():
        msg = f"the gpu lane {NO_GPU}; --lane cpu sweeps the reduced model"
        raise ValueError(msg)
    _check("--config", options.config, _configs())
    _check("--precision", options.precision or (), PRECISIONS)
    _check("--lever", options.lever or (), LEVERS)
    grid = Grid(
        configs=tuple(options.config or ["nano"]),
        lane=lane,
        precisions=options.precision or (("fp32",) if lane == "cpu" else PRECISIONS),
        levers=options.lever or LEVERS,
        batch_sizes=options.batch_sizes,
        most=options.most if lane == "gpu" else min(options.most, 16),
    )
    name = options.resume or options.session or f"sweep-{new_name()}"
    folder = options.records / name
    if options.resume and not folder.is_dir():
        msg = f"--resume {name}: no such sweep in {options.records}"
        raise ValueError(msg)
    asked = Asked(grid=grid, runs=options.runs, budget=options.budget)
    machine = machine_here(grid.lane)
    return Sweep(asked, machine, folder.resolve(), say_aside, options.run_timeout, options.again, _warm())


def _configs() -> Sequence[str]:
    from perf.configs import config_names

    return config_names()


def _check(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        msg = f"{option} {unknown[0]}: unknown; known: {', '.join(known)}"
        raise ValueError(msg)


def _warm() -> bool:
    """Return whether Inductor has compiled anything here: then a compile is taken to be in its cache."""
    import getpass
    import os
    import tempfile

    default = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", default))
    return folder.is_dir() and any(folder.iterdir())


def plan(sweep: Sweep) -> str:
    """Return the plan with its estimate and what cannot be tried here.

    Raises:
        ValueError: nothing that was asked for can be tried here; says why.
    """
    from perf.report.sweep import plan_text, refused_lines
    from perf.sweep import by_id, known, not_tried
    from perf.sweep_plan import foreseen
    from perf.sweep_time import estimate_of

    records = known(sweep) if sweep.folder.is_dir() else []
    grid, cells = sweep.asked.grid, by_id(records)
    cases = foreseen(grid, sweep.machine, cells, telling=sweep.telling)
    told = refused_lines(not_tried(sweep))
    if not cases and not cells:
        raise ValueError("\n".join(["nothing to measure", *told]))
    estimate = estimate_of(grid.lane, records, warm=sweep.warm)
    asked, refined = sweep.asked, not grid.batch_sizes and not sweep.telling
    return "\n".join([plan_text(cases, len(cells), estimate, asked.runs, asked.budget, refined=refined), *told])


def _tell(sweep: Sweep, cells: Sequence[Cell]) -> int:
    """Print all cells, and return the exit code: that something was measured is what a sweep is for."""
    from perf.report.sweep import cells_table
    from perf.sweep import read_asked

    say(cells_table(cells, read_asked(sweep.folder).unsupported) + "\n")
    say_aside(f"records: {sweep.folder}; rfdetr-perf recommend {sweep.folder}")
    if any(cell.measured for cell in cells):
        return 0
    too_small = [cell for cell in cells if cell.outcome == "out of memory" and cell.case.batch_size == 1]
    for cell in too_small:
        asked = f" (it asked for {cell.asked / 2**20:.0f} MiB more)" if cell.asked else ""
        say_aside(f"rfdetr-perf: too little memory here for {cell.case.id}, at batch 1 already{asked}")
    if not too_small:
        say_aside("rfdetr-perf: no cell was measured: see the results above")
    return EXIT_NOTHING_JUDGED if too_small else FAILED


SWEEP = Command(
    "sweep",
    "measure batch sizes, precisions, compile and CUDA graphs together on this machine",
    _declare,
    _sweep,
    "Measure batch sizes, precisions, compile and CUDA graphs together on this machine, each cell in a fresh process. "
    "See docs/sweep.md.",
)
