"""``investigate`` and ``traceml``: where the time of a training goes, as a report; and TraceML's answer beside it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf.commands.arguments import Command, duration, positive
from perf.commands.output import resumable, say, say_aside
from perf.run_order import MINOR_VARIABLE
from perf.suites import LANES

if TYPE_CHECKING:
    from perf.case import Case
    from perf.investigate import Task

# Some runs did not finish: the report is written, and lacks what they would have told.
EXIT_INCOMPLETE = 1
# Beside each other, not instead of each other: without a candidate nobody needs trainings.
RUNS, BUDGET = 3, 360.0
DEFAULT_QUESTIONS = ("fit", "step", "compile", "input")


def _declare(parser: argparse.ArgumentParser) -> None:
    _add_workload(parser)
    parser.add_argument(
        "--runs", type=positive, metavar="N", help=f"runs a case; default: as many as fit into --budget, {RUNS} at most"
    )
    parser.add_argument(
        "--budget",
        type=duration,
        metavar="TIME",
        help=f"such as 15m: every case runs once, and again while it fits; cold compiles and trainings come on top; "
        f"default without --runs: {BUDGET / 60:g}m",
    )
    parser.add_argument(
        "--ask",
        metavar="QUESTION,...",
        help="only these: fit (the training loop), step and compile (one fixed batch), input, map (trainings); "
        f"default: {','.join(DEFAULT_QUESTIONS)}, with --patch map too",
    )
    parser.add_argument("--patch", type=Path, metavar="FILE", help="a candidate: measured before and after it")
    parser.add_argument("--resume", action="store_true", help="go on with the investigation in --out")
    parser.add_argument("--run-timeout", type=float, default=3600.0, metavar="SECONDS")


def _add_workload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default="nano", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--batch-size", type=positive, metavar="N", help="default: 4, on the cpu lane 2")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="of the loader; default: %(default)s")
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--data", type=Path, metavar="DIR", help="train on this data set: COCO 2017, Roboflow or YOLO")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where report and records go; default: investigations/ and the time"
    )


def _investigate(options: argparse.Namespace) -> int:
    from perf.investigate import measure
    from perf.report.investigation import write_report

    task = _task(options)
    with resumable(""):
        failed = measure(task, resume=options.resume)
    for path in write_report(task.folder):
        say(f"{path}: written\n")
    if failed:
        say_aside(f"{failed} runs did not finish: the report says which; --resume tries them again")
    return EXIT_INCOMPLETE if failed else 0


def _task(options: argparse.Namespace) -> Task:
    from perf.case import find_case
    from perf.dataset import read_data_set
    from perf.investigate import Task, asked_of, cases_of, on
    from perf.investigation import PHOTOGRAPHS
    from perf.session import lacking, lane_here

    _check(options)
    lane: Any = lane_here(options.lane)
    cases: Sequence[Case] = cases_of(options.config, lane, options.batch_size, _questions(options), options.workers)
    for case in cases:
        find_case(case.id)  # says which configs there are
        if why := lacking(case):
            msg = f"{case.id}: {why}"
            raise ValueError(msg)
    if options.data:
        read_data_set(options.data)  # what is wrong with it is told before anything runs
    folder = _folder(options)
    data, patch = options.data and options.data.resolve(), options.patch and options.patch.resolve()
    # Its name is known before it is written, which waits until the folder is known to be for this investigation.
    data = data or folder / "data" / PHOTOGRAPHS
    cases = on(cases, data)
    budget = options.budget or (None if options.runs else BUDGET)
    command = _command("investigate", options)
    asked = asked_of(cases, options.runs or RUNS, patch, options.data, command, budget)
    return Task(asked, cases, folder, say_aside, patch, data, options.run_timeout)


def _folder(options: argparse.Namespace) -> Path:
    """Return where everything goes; nothing that is there may be one of another investigation."""
    from perf.session import new_name

    out: Path = options.out or Path("investigations") / new_name()
    return out.resolve()


def _check(options: argparse.Namespace) -> None:
    if options.patch and not options.patch.is_file():
        msg = f"--patch {options.patch}: no such file"
        raise ValueError(msg)
    if options.resume and options.out is None:
        msg = "--resume: give the folder of the investigation with --out"
        raise ValueError(msg)
    if options.workers < 0:
        msg = f"--workers {options.workers}: 0 or more"
        raise ValueError(msg)


def _questions(options: argparse.Namespace) -> Sequence[str]:
    if options.ask is not None:
        return str(options.ask).split(",")
    return (*DEFAULT_QUESTIONS, "map") if options.patch else DEFAULT_QUESTIONS


def _command(name: str, options: argparse.Namespace) -> str:
    """Return the command line without where its results go."""
    minor = os.environ.get(MINOR_VARIABLE)
    words = [f"nox -s {name}-{minor} --" if minor else f"rfdetr-perf {name}"]
    for told in ("config", "batch_size", "workers", "lane", "runs", "ask"):
        value = getattr(options, told, None)
        words += [f"--{told.replace('_', '-')} {shlex.quote(str(value))}"] if value is not None else []
    if getattr(options, "budget", None):
        words.append(f"--budget {options.budget:g}s")
    for told in ("data", "patch"):
        path = getattr(options, told, None)
        words += [f"--{told} {shlex.quote(path.name)}"] if path else []
    return " ".join(words)


def _declare_traceml(parser: argparse.ArgumentParser) -> None:
    _add_workload(parser)
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS")


def _traceml(options: argparse.Namespace) -> int:
    from perf.investigate import cases_of, on
    from perf.investigate_data import generated_data
    from perf.investigation import MANIFEST
    from perf.investigation import TRACEML as BESIDE
    from perf.session import lane_here
    from perf.traceml_run import find_traceml, run_traceml

    lane: Any = lane_here(options.lane)
    folder = _folder(options)
    [fit] = cases_of(options.config, lane, options.batch_size, ["fit"], options.workers)
    find_traceml()
    data = options.data.resolve() if options.data else generated_data(folder / "data", fit)
    [case] = on([fit], data)
    summary = run_traceml(case, folder / BESIDE, data, _command("traceml", options), options.timeout, say_aside)
    say(f"{summary}: written\n")
    if (folder / MANIFEST).is_file():
        from perf.report.investigation import write_report

        say("".join(f"{path}: written\n" for path in write_report(folder)))
    return 0


INVESTIGATE = Command(
    "investigate",
    "measure where the time of a training goes, and write it down as a report",
    _declare,
    _investigate,
    "Measure where the time of a training goes, and write report.md, ready to post, and report.html beside the "
    "records. See docs/investigate.md.",
)
TRACEML = Command(
    "traceml",
    "have TraceML measure the same eager training, beside an investigation",
    _declare_traceml,
    _traceml,
    "Have TraceML (PyPI: traceml-ai) measure the same eager training; `nox -s traceml-2.14` installs it. With the "
    "--out of an investigation its report gets both.",
)
