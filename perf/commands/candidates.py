"""``candidates``: changes to rfdetr that may be faster, whether they apply, and whether they compute the same."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from perf.candidate_losses import Check, judged, read_checks
from perf.commands.arguments import Command
from perf.commands.output import say
from perf.suites import LANES
from perf.verdicts import EXIT_NOTHING_JUDGED

if TYPE_CHECKING:
    from perf.candidates import Candidate
    from perf.case import Case


FAILED = 1


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument(
        "--check", action="store_true", help="hold the losses of each against those without it, and against float64"
    )
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--case", metavar="ID", help="whose losses; default: Nano, eager")


def _candidates(options: argparse.Namespace) -> int:
    from perf.candidates import CANDIDATES, find_candidate

    chosen = [find_candidate(name) for name in options.name] or list(CANDIDATES)
    case = _case(options)
    codes = []
    for candidate in chosen:
        say(f"{candidate.name}: {candidate.what}\n")
        code, told = _checked(candidate, case) if options.check else (0, _commands(candidate))
        say(f"{told}\n")
        codes.append(code)
    return FAILED if FAILED in codes else max(codes)


def _case(options: argparse.Namespace) -> Case:
    from perf.case import find_case
    from perf.session import lacking, lane_here

    default = "nano-b4" if lane_here(options.lane) == "gpu" else "nano-cpu-b2"
    case = find_case(options.case or default)
    if options.check and (why := lacking(case)):
        msg = f"{case.id}: {why}"
        raise ValueError(msg)
    return case


def _commands(candidate: Candidate) -> str:
    patch = f"--head-patch perf/candidates/{candidate.path.name}"
    return (
        f"  losses: rfdetr-perf candidates {candidate.name} --check\n"
        f"  speed and counts: rfdetr-perf ab --case {candidate.case} {patch}\n"
        f"  mAP: rfdetr-perf ab --suite convergence {patch}"
    )


def _checked(candidate: Candidate, case: Case) -> tuple[int, str]:
    """Return the exit code and what the candidate's losses are against those without it."""
    command = [sys.executable, "-m", "perf.rfdetr_candidates", case.id, str(candidate.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return FAILED, f"  failed: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}"
    told = json.loads(done.stdout.splitlines()[-1])
    if "does_not_apply" in told:
        return EXIT_NOTHING_JUDGED, f"  {told['does_not_apply']}"
    return compared(candidate, read_checks(told["checks"]), on_cpu=case.lane == "cpu")


def compared(candidate: Candidate, checks: list[Check], *, on_cpu: bool) -> tuple[int, str]:
    """Return the exit code and what each check found: 0 where the losses of all are right."""
    results = [judged(candidate, check) for check in checks]
    lines = [told for _, told in results]
    right = all(fine for fine, _ in results)
    if right and on_cpu and candidate.on_gpu:
        lines.append("  it changes nothing on a CPU, so that this proves nothing of it")
    return 0 if right else FAILED, "\n".join(lines)


CANDIDATES_COMMAND = Command(
    "candidates", "list changes to rfdetr that may be faster, and check what they compute", _declare, _candidates
)
