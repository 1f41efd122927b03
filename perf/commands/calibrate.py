"""``calibrate``: what an A/B session can see on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perf.commands.arguments import Command, add_baselines, add_measuring, percents, positive
from perf.commands.output import resumable, say, say_aside

if TYPE_CHECKING:
    from perf.calibrate import Plan


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=positive, default=10, metavar="N", help="unchanged pairs of runs; default: 10")
    parser.add_argument("--slowdowns", type=percents, default=(5.0,), metavar="PERCENT,...", help="default: 5")
    parser.add_argument("--slowed-pairs", type=positive, metavar="N", help="pairs a slowdown; default: as --pairs")
    parser.add_argument("--sessions", type=positive, default=10_000, metavar="N", help="simulated; default: 10000")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/calibration"), metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--force", action="store_true", help="replace the document of another processor in --out")
    add_measuring(parser)
    add_baselines(parser)


def _calibrate(options: argparse.Namespace) -> int:
    from perf.calibrate import calibrate
    from perf.environment import machine
    from perf.pool import host
    from perf.record import write_atomically
    from perf.report.calibration import document, place

    plan = _plan(options)
    # Before hours of measuring; of a session that goes on, its records say where they are from.
    if options.resume is None:
        place(options.out, *machine(plan.cases[0].lane), force=options.force)
    with resumable(plan.folder.name):
        found = calibrate(plan)
    out = place(options.out, found.environment.device, host(found.environment), force=options.force)
    write_atomically(out, document(found, options.sessions, _command(options)))
    say(f"{out}: written; records: {plan.folder}\n")
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    from perf.calibrate import Plan
    from perf.session import chosen_cases, lane_here, new_name

    session = f"calibrate-{new_name()}" if options.resume is None else options.resume
    if options.resume is not None and not (options.resume and (options.records / session).is_dir()):
        msg = f"--resume {session}: no such session in {options.records}"
        raise ValueError(msg)
    return Plan(
        cases=chosen_cases(options.case, lane_here(options.lane)),
        pairs=options.pairs,
        slowdowns=options.slowdowns,
        folder=options.records / session,
        baselines=options.baselines,
        tell=say_aside,
        python=Path(sys.executable),
        timeout=options.run_timeout,
        slowed_pairs=options.slowed_pairs,
    )


def _command(options: argparse.Namespace) -> str:
    cases = "".join(f" --case {case_id}" for case_id in options.case)
    told = ",".join(f"{percent:g}" for percent in options.slowdowns)
    slowed = f" --slowed-pairs {options.slowed_pairs}" if options.slowed_pairs else ""
    return (
        f"rfdetr-perf calibrate{cases} --pairs {options.pairs} --slowdowns {told}{slowed} --sessions {options.sessions}"
    )


CALIBRATE = Command("calibrate", "measure what an A/B session can see on this machine", _declare, _calibrate)
