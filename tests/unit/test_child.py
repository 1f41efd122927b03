from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perf.child import _of_rank

ROOT = Path(__file__).resolve().parents[2]
SLEEPS = "import time\n\n\ndef test_it():\n    print('it sleeps', flush=True)\n    time.sleep(60)\n"


def start(tmp_path: Path) -> subprocess.Popen[str]:
    (tmp_path / "test_sleep.py").write_text(SLEEPS, encoding="utf-8")
    # As a shell does to a job in the background.
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-m", "perf.child", "-s", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    return subprocess.Popen(
        [sys.executable, "-c", ignoring, *command, str(tmp_path / "test_sleep.py")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_run_is_stopped_by_sigint_although_its_parent_ignores_it(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        assert any("it sleeps" in line for line in process.stdout)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()

    assert process.returncode == 2
    assert "KeyboardInterrupt" in rest
    assert time.monotonic() - started < 20


def test_each_rank_writes_to_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ["one_run.py", "--case", "nano-cpu-b2-x2", "--benchmark-json=/records/run-0.benchmark.json"]
    monkeypatch.setenv("TORCH_TRACE", "/records/run-0.trace")
    for name, value in {"TORCHELASTIC_RUN_ID": "a", "LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)

    assert _of_rank(told) == told
    assert os.environ["TORCH_TRACE"] == "/records/run-0.trace"

    monkeypatch.setenv("RANK", "1")
    for _ in range(2):  # whether or not the launcher has seen to it
        assert _of_rank(told) == told[:3]
        assert os.environ["TORCH_TRACE"] == "/records/run-0-rank-1.trace"
