"""A real A/B session on the cpu lane: interrupted, taken up again, and told what the head adds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from running import PATCHES, ROOT, python

from perf.verdicts import Judgement

CASE = "nano-cpu-b2"
PATCH = "many_aten_ops.py"


def _command(records: Path, *more: str) -> list[str]:
    gate = ("--gate", "count-strict,count-volume")
    sides = ("--base", "1.11.2", "--head", "with a patch", "--head-patch", str(PATCHES / PATCH))
    return ["-m", "perf.cli", "ab", *sides, "--case", CASE, "--pairs", "2", "--records", str(records), *gate, *more]


def _finished(records: Path) -> list[Path]:
    return [p for p in sorted(records.rglob("*.record.json")) if json.loads(p.read_text())["status"] == "finished"]


def _interrupt_after_one_run(records: Path) -> None:
    """Start the session and press Ctrl-C while its second run is going."""
    process = subprocess.Popen([sys.executable, *_command(records)], cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not (_finished(records) and len(list(records.rglob("*.record.json"))) > 1) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said.decode()
    assert said.decode().splitlines()[-1].startswith("interrupted; the same command with --resume ab-")


def test_an_interrupted_session_goes_on_and_finds_what_the_head_adds(tmp_path: Path) -> None:
    _interrupt_after_one_run(tmp_path)
    [first] = _finished(tmp_path)
    measured = first.stat().st_mtime_ns
    [session] = tmp_path.iterdir()

    done = python(*_command(tmp_path, "--resume", session.name, "--json"))

    assert done.returncode == 1, done.stderr
    assert first.stat().st_mtime_ns == measured
    assert len(_finished(tmp_path)) == 4
    judgement = Judgement.model_validate(json.loads(done.stdout))
    [ops] = [row for row in judgement.cases[0].signals if row.signal == "aten_ops"]
    assert ops.verdict == "regressed"
    assert PATCH in ops.where[0]
    compared = python("-m", "perf.cli", "compare", str(session), "--json", "--gate", "count-strict,count-volume")
    assert compared.returncode == 1
    assert "many_aten_ops.py" in compared.stdout
