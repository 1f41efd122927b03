"""Processes that a run started, found by what they inherit: whoever adopted them, and whatever session they are in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import psutil

# The environment variable that is one run's alone.
MARK = "RFDETR_PERF_RUN"
_SECONDS = 5.0


def marked(mark: str) -> Iterator[psutil.Process]:
    """Yield the living processes of the run that has this mark, but for this one."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark and _lives(process):
                yield process


def _lives(process: psutil.Process) -> bool:
    return bool(process.status() != psutil.STATUS_ZOMBIE)


def kill_marked(mark: str) -> None:
    """Kill every process of the run that has this mark, and wait until all are gone."""
    found = list(marked(mark))
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=_SECONDS)
