"""Running the suite as a user does, for the end-to-end tests."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from perf.verdicts import CaseVerdict, Judgement, SignalVerdict

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path("tests/e2e/patches")


@dataclass(frozen=True)
class Outcome:
    """What a session of the suite printed, how it ended, and what `rfdetr-perf judge` makes of its records."""

    exit_code: int
    output: str
    judgement: Judgement

    def case(self, case_id: str) -> CaseVerdict:
        return next(case for case in self.judgement.cases if case.case_id == case_id)

    def signal(self, case_id: str, name: str) -> SignalVerdict:
        return next(row for row in self.case(case_id).signals if row.signal == name)


def run_suite(
    records: Path, *arguments: str, patch: str | None = None, runs: int | None = None, untimed: bool = False
) -> Outcome:
    """Run the suite as a user would, then judge its records once more by the command line; both must agree.

    ``arguments`` go to both: ``--case``, ``--baselines`` and ``--gate``.
    """
    measuring = ["--records", str(records), *(["--patch", str(PATCHES / patch)] if patch else [])]
    counted = [*(["--runs", str(runs)] if runs else []), *(["--untimed"] if untimed else [])]
    done = python("-m", "pytest", "tests/suite", "-p", "no:cacheprovider", *measuring, *counted, *arguments)
    judged = python("-m", "perf.cli", "judge", str(records), "--json", *arguments)
    assert judged.returncode == done.returncode, f"{done.stdout}\n{judged.stdout}\n{judged.stderr}"
    return Outcome(done.returncode, done.stdout, Judgement.model_validate(json.loads(judged.stdout)))


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with ``arguments`` in the project's root."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def line_in(patch: str, code: str) -> str:
    """Return ``file:line`` of the line of ``patch`` that holds ``code``."""
    lines = (ROOT / PATCHES / patch).read_text(encoding="utf-8").splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if code in line]
    return f"{PATCHES / patch}:{number}"
