"""How long it takes to collect the suite, beside importing torch. Run: pytest tests/benchmarks/test_collect.py -s"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 1.0
COLLECT = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/suite"]
# Names what a collection has imported that it must not have.
WATCHED = "import sys, pytest; pytest.main(sys.argv[1:]); print([n for n in ('torch', 'rfdetr') if n in sys.modules])"


def _seconds(*arguments: str) -> float:
    """Return the best of three wall times of ``python`` with these arguments."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def test_collecting_imports_neither_torch_nor_rfdetr() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *COLLECT[2:]], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "test_measure[nano-cpu-b2-run0]" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_collecting_takes_under_a_second(capsys: Any) -> None:
    collect, torch = _seconds(*COLLECT), _seconds("-c", "import torch")
    with capsys.disabled():
        print(f"\ncollect tests/suite: {collect:.2f} s; import torch: {torch:.2f} s")
    assert collect < MOST_SECONDS
