"""``ci``: the steps of the workflows. Each reads what the workflow tells it from variables of its environment."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from perf.commands.arguments import Command, add_baselines

# What each step does; the function of that name in perf.ci.steps does it.
STEPS = {
    "plan": "decide whether a label asks for something, and which jobs that is",
    "nightly": "plan a night: every torch minor for which nox has a session that can work",
    "check-device": "check that this machine has the GPU that its label promises",
    "report": "judge what the jobs of this run left; the exit code is the verdict",
    "prepare-comment": "judge what another run left, and write the comment on its pull request",
    "comment": "write the comment that an earlier job of this run prepared",
    "trend": "add what a night measured to the data branch, and show what changed",
    "refresh": "approve the records of a run on a branch, and open a pull request",
}


def _declare(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(required=True, metavar="STEP", dest="step")
    for name, what in STEPS.items():
        one = steps.add_parser(name, help=what, description=what)
        one.add_argument("--folder", type=Path, default=Path("ci"), metavar="DIR", help="what the step leaves")
        add_baselines(one)


def _run(options: argparse.Namespace) -> int:
    from perf.ci.context import Context

    step: Callable[[Context, argparse.Namespace], int]
    step = getattr(import_module("perf.ci.steps"), options.step.replace("-", "_"))
    context = Context.here()
    context.stop_commands()
    return step(context, options)


CI = Command("ci", "the steps of the workflows in .github/workflows; see docs/ci.md", _declare, _run)
