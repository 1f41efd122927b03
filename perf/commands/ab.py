"""``ab`` and ``compare``: a head against a base, measured here side by side, or from records."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perf.commands.arguments import Command, add_baselines, add_measuring, add_output, add_place, margin, positive
from perf.commands.output import resumable, say_aside, tell
from perf.judge import Options
from perf.quality_gates import MARGIN
from perf.record import Record
from perf.record_files import Narrowing, take
from perf.suites import SUITES


def _declare_ab(parser: argparse.ArgumentParser) -> None:
    for side in ("base", "head"):
        parser.add_argument(f"--{side}", default=side, metavar="TEXT", help=f"what the {side} is, for the report")
        parser.add_argument(f"--{side}-python", type=Path, metavar="FILE", help="its interpreter; default: this one")
        parser.add_argument(f"--{side}-patch", type=Path, metavar="FILE", help="Python file to import before rfdetr")
    parser.add_argument("--same", action="store_true", help="allow both sides to be the same, to see what noise does")
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--base-case", metavar="ID", help="let the base train this case: eager against compiled, say")
    parser.add_argument("--data", type=Path, metavar="DIR", help="train on this data set: COCO 2017, Roboflow or YOLO")
    parser.add_argument("--margin", type=margin, default=MARGIN, help="mAP that a head may lose; default: %(default)s")
    parser.add_argument(
        "--at-once", type=positive, metavar="N", help="trainings, or runs where no time decides, at a time"
    )
    parser.add_argument("--pairs", type=positive, metavar="N", help="most pairs of runs a case; default: 10, seeds 8")
    add_measuring(parser)
    add_baselines(parser)
    add_output(parser)


def _ab(options: argparse.Namespace) -> int:
    from perf.ab import measure
    from perf.experiment import experiment_of

    experiment = experiment_of(options, say_aside)
    with resumable(experiment.folder.name):
        judgement = measure(experiment)
    before, after = ([r for case in experiment.cases for r in experiment.records(s, case)] for s in ("base", "head"))
    _say_sides(before, after)
    code = tell(options, judgement, after, experiment.folder, before)
    say_aside(f"records: {experiment.folder}")
    return code


def _declare_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help="a folder of records, or a whole A/B session")
    parser.add_argument("head", type=Path, nargs="?", metavar="HEAD", help="needed unless BASE is an A/B session")
    add_place(parser)
    add_baselines(parser)
    add_output(parser)


def _compare(options: argparse.Namespace) -> int:
    from perf.ab import judge_again
    from perf.compare import compare, session_of, sides
    from perf.experiment import recorded

    base, head = sides(options.base, options.head)
    session = session_of(base, head)
    which = Narrowing(device=options.device, torch_minor=options.torch)
    before, after = (list(take(side, which).values()) for side in (base, head))
    if session:
        judgement = judge_again(recorded(session, options.baselines))
        _say_sides(before, after)
    else:
        judgement = compare(before, after, Options(gate=options.gate, records_path=head))
    return tell(options, judgement, after, session or head, before)


def _say_sides(base: Sequence[Record], head: Sequence[Record]) -> None:
    """Say on stderr which rfdetr each side really was."""
    for name, records in (("base", base), ("head", head)):
        found = {f"rfdetr {r.environment.rfdetr} ({r.environment.rfdetr_source})": None for r in records}
        say_aside(f"{name}: {', '.join(found) or 'no record'}")


AB = Command(
    "ab",
    "measure base and head on this machine, interleaved, and judge the head",
    _declare_ab,
    _ab,
    "Measure base and head on this machine, interleaved, and judge the head. "
    "`nox -s ab-2.14 -- --base ... --head ...` installs both sides, then runs this. See docs/comparing.md.",
)
COMPARE = Command(
    "compare", "hold one set of records against another: a head against a base", _declare_compare, _compare
)
