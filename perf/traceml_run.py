"""Running TraceML on a fit: its own launcher starts :mod:`perf.traceml_workload`, and what it leaves is kept."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from perf.case import Case
from perf.launch import ROOT, environment
from perf.run_order import Order
from perf.traceml import OURS, SUMMARY

WORKLOAD = ROOT / "perf" / "traceml_workload.py"
PACKAGE = "traceml_ai"
LOG = "traceml.log"
_TAIL_LINES = 15


def run_traceml(
    case: Case,
    folder: Path,
    data: Path | None,
    command: str,
    timeout: float,
    tell: Callable[[str], None],
    python: Path | None = None,
    patch: Path | None = None,
) -> Path:
    """Have TraceML measure ``case``, an eager fit, and return its summary, which then lies in ``folder``.

    What an earlier run left there goes first, so that nothing of it is taken for this one's. ``command`` is what the
    report says made it. ``python`` has TraceML where this one has not; ``patch`` is imported before
    rfdetr builds anything.

    Raises:
        ValueError: TraceML is not installed, ended with an error, took more than ``timeout`` seconds or left no
            summary; says which and where the log is.
    """
    if python is None:
        find_traceml()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SUMMARY, OURS):
        (folder / name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        words = [*_launcher(Path(scratch), python), *_workload(case, folder / OURS, data, command, patch)]
        tell(f"TraceML measures {case.id}; log: {folder / LOG}")
        problem = _run(words, _environment(case, folder), folder / LOG, timeout)
        left = Path(scratch) / "logs" / "run"
        for name in (SUMMARY, "final_summary.txt"):
            if (left / name).is_file():
                shutil.copyfile(left / name, folder / name)
    missing = [name for name in (SUMMARY, OURS) if not (folder / name).is_file()]
    if problem or missing:
        why = problem or f"it left no {' and no '.join(missing)}"
        msg = f"TraceML: {why}\n{_tail(folder / LOG)}"
        raise ValueError(msg)
    return folder / SUMMARY


def find_traceml() -> None:
    """Raise ValueError where TraceML is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        msg = "TraceML is not installed here: nox -s traceml-2.14 does that, or pip install traceml-ai"
        raise ValueError(msg)


def _launcher(scratch: Path, python: Path | None = None) -> list[str]:
    # Ports of its own: another TraceML on this machine may have the default ones.
    ports = [f"--aggregator-port={_free_port()}", f"--master-port={_free_port()}"]
    logs = ["--mode", "summary", "--logs-dir", str(scratch / "logs"), "--run-name", "run"]
    return [str(python or sys.executable), "-m", f"{PACKAGE}.launcher.cli", "run", str(WORKLOAD), *logs, *ports]


def _workload(case: Case, ours: Path, data: Path | None, command: str, patch: Path | None = None) -> list[str]:
    told = ["--case", case.id, "--out", str(ours), "--command", command]
    files = (("data", data), ("patch", patch))
    return ["--args", *told, *(word for name, path in files if path for word in (f"--{name}", str(path)))]


def _environment(case: Case, folder: Path) -> dict[str, str]:
    """Return what a run of the fit would have in its environment, and where this project is."""
    found = environment(Order(case=case, session=folder.name, run=0, folder=folder))
    return {**found, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), found.get("PYTHONPATH")]))}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _run(words: list[str], variables: dict[str, str], log: Path, timeout: float) -> str:
    """Run it to its end and return what went wrong; whatever ends this, nothing of it is left running."""
    with log.open("wb") as out:
        process = subprocess.Popen(words, env=variables, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return f"no end after {timeout:.0f} s (--timeout); stopped"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"exit code {code}" if code else ""


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"log: {log}", *lines[-_TAIL_LINES:]])
