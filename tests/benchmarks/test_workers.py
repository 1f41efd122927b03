"""How much faster several workers compile a set of cases than one. Run: pytest tests/benchmarks/test_workers.py -s

On a GPU: ``-s --case nano-b4-compile --case small-b4-compile ...`` with one worker a case; every compile is cold.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perf.case import Lane
from perf.session import gpu_count
from perf.suites import suite

# Of the whole set of configs on a machine of 16 cores; two cores cannot.
LEAST_ON_A_GPU = 3
ROOT = Path(__file__).resolve().parents[2]


def _seconds(ids: list[str], folder: Path, *arguments: str) -> float:
    """Return how long the suite takes to count ``ids`` once, with an Inductor cache of its own."""
    cases = [argument for case_id in ids for argument in ("--case", case_id)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/suite",
        "-q",
        "-p",
        "no:cacheprovider",
        "--untimed",
        "--runs",
        "1",
    ]
    started = time.perf_counter()
    done = subprocess.run(
        ["env", f"TORCHINDUCTOR_CACHE_DIR={folder / 'inductor'}", *command, *cases, "--records", folder, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stdout  # 3: no baseline yet
    return time.perf_counter() - started


def test_several_workers_are_faster_than_one(request: pytest.FixtureRequest, tmp_path: Path, capsys: Any) -> None:
    lane: Lane = "gpu" if gpu_count() else "cpu"
    compiled = [case.id for case in suite("configs", lane) if case.compile]
    ids = request.config.option.case or compiled[: 14 if lane == "gpu" else 2]
    one = _seconds(ids, tmp_path / "one")
    several = _seconds(ids, tmp_path / "several", "-n", str(len(ids)))
    with capsys.disabled():
        print(f"\n{len(ids)} cases: {one:.0f} s one after another, {several:.0f} s by {len(ids)} workers")
        print(f"{one / several:.2f} times as fast")
    assert one / several > (LEAST_ON_A_GPU if lane == "gpu" else 1)
