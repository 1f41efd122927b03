"""Launching: one run in a fresh process, followed while it goes and cleaned up whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from perf.progress import Follower
from perf.record import Record, read_record
from perf.run_order import Order

ROOT = Path(__file__).resolve().parent.parent
ONE_RUN = ROOT / "tests" / "suite" / "one_run.py"
_POLL_SECONDS = 0.3
_GRACE_SECONDS = 10.0
_LOG_TAIL_LINES = 30


class RunFailed(Exception):  # noqa: N818  (says what happened)
    """A run that left no finished record; the message says why and where its log is."""


def run_in_fresh_process(order: Order, tell: Callable[[str], None], timeout: float) -> Record:
    """Measure ``order`` in a process of its own and return its record; ``tell`` gets each line of progress.

    Raises:
        RunFailed: the run raised, crashed, or took more than ``timeout`` seconds.
    """
    order.stem.parent.mkdir(parents=True, exist_ok=True)
    follower = Follower(order.progress_path)
    with order.log_path.open("wb") as log:
        process = subprocess.Popen(
            command_line(order),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            _follow(process, follower, tell, timeout)
        finally:
            _end(process)
    return _finished_record(order, process.returncode)


def command_line(order: Order) -> list[str]:
    """Return the command of the child: pytest on the single test that measures."""
    benchmark = order.stem.with_suffix(".benchmark.json")
    options = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", f"--benchmark-json={benchmark}"]
    patch = ["--patch", str(order.patch.resolve())] if order.patch else []
    told = ["--case", order.case.id, "--one-run", str(order.run), "--session", order.session]
    records = ["--records", str(order.folder.resolve().parent)]
    return [sys.executable, "-m", "pytest", str(ONE_RUN), *options, *told, *records, *patch]


def _environment() -> dict[str, str]:
    # pytest-benchmark refuses to measure where it believes xdist spreads tests; the child is alone.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Set iteration order reaches Python call counts.
    return {**kept, "PYTHONHASHSEED": "0"}


def _follow(process: subprocess.Popen[bytes], follower: Follower, tell: Callable[[str], None], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        _tell_new(follower, tell)
        if time.monotonic() > deadline:
            msg = f"no end after {timeout:.0f} s (--run-timeout); stopped"
            raise RunFailed(msg)
        time.sleep(_POLL_SECONDS)
    _tell_new(follower, tell)


def _tell_new(follower: Follower, tell: Callable[[str], None]) -> None:
    for line in follower.new_lines():
        tell(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the run behind; SIGINT first, so that it can write its record."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
    finally:
        # The whole group: a run that crashed leaves its data loader's or its compiler's workers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _finished_record(order: Order, returncode: int) -> Record:
    if not order.record_path.exists():
        msg = f"exit code {returncode} before a record was begun; {_log_tail(order)}"
        raise RunFailed(msg)
    record = read_record(order.record_path)
    if record.status == "finished":
        return record
    last = (record.error or f"exit code {returncode} in mid-run").strip().splitlines()[-1]
    msg = f"{last}\nrecord: {order.record_path}; {_log_tail(order)}"
    raise RunFailed(msg)


def _log_tail(order: Order) -> str:
    lines = order.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"log: {order.log_path}", *lines[-_LOG_TAIL_LINES:]])
