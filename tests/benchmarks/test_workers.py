"""How much faster several workers compile a set of cases than one. Run: pytest tests/benchmarks/test_workers.py -s

On a GPU: ``-s --case nano-b4-compile --case small-b4-compile ...`` with one worker a case; every compile is cold.
Without ``--case`` that is every config, which takes over an hour one after another (docs/compiling.md).
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perf.case import Lane
from perf.record import read_any
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
    seconds = time.perf_counter() - started
    # Whatever the verdicts are: a config that falls back compiles too, and takes its time.
    finished = [record.case_id for record in read_any(folder) if record.status == "finished"]
    assert sorted(finished) == sorted(ids), done.stdout
    return seconds


def test_several_workers_are_faster_than_one(request: pytest.FixtureRequest, tmp_path: Path, capsys: Any) -> None:
    lane: Lane = "gpu" if gpu_count() else "cpu"
    compiled = [case.id for case in suite("configs", lane) if case.compile]
    ids = request.config.option.case or (compiled if lane == "gpu" else compiled[:2])
    several = _seconds(ids, tmp_path / "several", "-n", str(len(ids)))
    with capsys.disabled():  # at once: the other takes many times as long, and may be cut off
        print(f"\n{len(ids)} cases: {several:.0f} s by {len(ids)} workers", flush=True)
    one = _seconds(ids, tmp_path / "one")
    with capsys.disabled():
        print(f"{one:.0f} s one after another: {one / several:.2f} times as fast by workers")
    assert one / several > (LEAST_ON_A_GPU if lane == "gpu" else 1)
