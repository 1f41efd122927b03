from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid

import pytest

from perf.processes import MARK, kill_marked, marked

SLEEPS = "import time; time.sleep(60)"
# Leaves a child in a session of its own, and ends: init adopts the child.
LEAVES = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], start_new_session=True)"


def start(script: str, mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script], env=os.environ | {MARK: mark})


def test_what_a_run_left_is_killed_wherever_it_is() -> None:
    mark = uuid.uuid4().hex
    start(LEAVES, mark).wait(30)
    [left] = marked(mark)
    assert left.ppid() != os.getpid()

    kill_marked(mark)
    assert not list(marked(mark))


def test_another_runs_processes_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    other, mark = uuid.uuid4().hex, uuid.uuid4().hex
    with start(SLEEPS, other) as process:
        kill_marked(mark)
        time.sleep(0.1)
        assert process.poll() is None
        assert [found.pid for found in marked(other)] == [process.pid]
        kill_marked(other)
