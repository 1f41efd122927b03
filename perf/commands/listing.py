"""``cases``, ``matrix`` and ``seeds``: what there is to measure, and what was found of compiling and of trainings."""

from __future__ import annotations

import argparse
from pathlib import Path

from perf.commands.arguments import Command, positive
from perf.commands.output import say
from perf.compile_matrix import DOCUMENT, STORE
from perf.experiment import SEED_PAIRS
from perf.suites import LANES, SUITES, suite


def _declare_matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", type=Path, nargs="*", metavar="RECORDS", help="folders with *.record.json")
    parser.add_argument("--store", type=Path, default=STORE, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=DOCUMENT, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--steps-per-epoch", type=positive, metavar="N", help="default: COCO 2017 train's")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")


def _matrix(options: argparse.Namespace) -> int:
    from perf.report.compile_matrix import regenerate

    code, said = regenerate(options.records, options.store, options.out, options.steps_per_epoch, options.check)
    say(said)
    return code


def _cases(_options: argparse.Namespace) -> int:
    for name in SUITES:
        for lane in LANES:
            lines = [f"  {case.id}\n" for case in suite(name, lane)]
            say(f"suite {name}, {lane} lane\n" + "".join(lines))
    return 0


def _declare_seeds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with *.record.json")
    parser.add_argument(
        "--pairs", type=positive, default=SEED_PAIRS, metavar="N", help="to simulate; default: %(default)s"
    )


def _seeds(options: argparse.Namespace) -> int:
    from perf.record import read_records
    from perf.seeds import lessons, text

    say(text(lessons(read_records(options.records)), options.pairs) + "\n")
    return 0


CASES = Command("cases", "list the known cases", lambda _: None, _cases)
MATRIX = Command("matrix", "make docs/compile-matrix.md from its store, new records first", _declare_matrix, _matrix)
SEEDS = Command("seeds", "say how the seeds of trainings scatter and what they can defend", _declare_seeds, _seeds)
