"""``run``: one run of one case, or one rank of it, in this process: what somebody else's launcher starts."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from perf.case import find_case
from perf.cluster import place, session_name
from perf.commands.arguments import Command
from perf.launch import ROOT, child_command, environment
from perf.run_order import Order


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", required=True, metavar="ID")
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--session", metavar="NAME", help="default: that of the Slurm job or of the torchrun launch")
    parser.add_argument("--run", type=int, default=0, metavar="INDEX", help="default: %(default)s")
    parser.add_argument("--patch", type=Path, metavar="FILE", help="Python file to import before the model is built")
    parser.add_argument("--untimed", action="store_true", help="count only")


def _run(options: argparse.Namespace) -> int:
    order = _order(options)
    order.stem.parent.mkdir(parents=True, exist_ok=True)
    command = child_command(replace(order, rank=0))  # which takes its own rank from the environment, as this did
    variables = environment(order)
    os.chdir(ROOT)
    # In place of this process, which the launcher watches.
    os.execve(command[0], command, variables)


def _order(options: argparse.Namespace) -> Order:
    case = find_case(options.case)
    session = options.session or session_name()
    if session is None:
        msg = "no launcher to name the session after: give --session NAME, the same to every process of the run"
        raise ValueError(msg)
    records = options.records.resolve()
    return Order(
        case=case,
        session=session,
        run=options.run,
        folder=records / session,
        patch=options.patch,
        untimed=options.untimed,
        rank=place(case).rank,
    )


RUN = Command("run", "measure one run here, as one rank of it under torchrun or srun", _declare, _run)
