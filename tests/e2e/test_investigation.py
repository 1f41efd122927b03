"""An investigation of the reduced Nano from the command line to its report; TraceML beside it where it is installed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perf.investigation import TRACEML
from perf.record import read_records
from perf.traceml import SUMMARY, compared, read_same_steps, read_summary

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def perf(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perf.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_training_loop_is_investigated_and_reported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = perf("investigate", "--lane", "cpu", "--ask", "fit", "--runs", "1", "--out", str(out))

    assert done.returncode == 0, done.stderr
    [record] = read_records(out)
    step = record.signal("fit_step")
    assert step is not None
    assert sum(part.value for part in step.parts) == pytest.approx(step.value, rel=0.01)
    md = (out / "report.md").read_text(encoding="utf-8")
    assert "| `backward` |" in md
    assert "| precision | `auto`: `32-true` |" in md
    assert "`resolution=128`" in md
    assert re.search(r"Made by `.*--case nano-cpu-b2-fit-on-photographs --data FOLDER/data/photographs --runs 1`", md)
    assert (out / "report.html").stat().st_size < 3_000_000
    assert list(out.rglob("*.profile.json.gz"))


def test_a_candidate_is_measured_beside_what_was_before_it(tmp_path: Path) -> None:
    out, patch = tmp_path / "out", ROOT / "tests" / "e2e" / "patches" / "extra_aten_op.py"
    asked = ("--ask", "step", "--runs", "1", "--patch", str(patch))
    done = perf("investigate", "--lane", "cpu", *asked, "--out", str(out))

    assert done.returncode == 0, done.stderr
    counts = {path.parts[-3]: json.loads(path.read_text()) for path in out.rglob("*.record.json")}
    ops = {side: next(s for s in one["signals"] if s["name"] == "aten_ops")["value"] for side, one in counts.items()}
    assert ops["head"] > ops["base"]
    md = (out / "report.md").read_text(encoding="utf-8")
    assert f"| `aten_ops` | `nano-cpu-b2` | {ops['base']} (n=1) | {ops['head']} (n=1) |" in md
    assert "mAP before and after: not measured: `it was not asked for`" in md


@pytest.mark.skipif(importlib.util.find_spec("traceml_ai") is None, reason="needs traceml-ai: nox -s traceml-2.14")
def test_traceml_agrees_on_the_steps_that_both_saw(tmp_path: Path) -> None:
    done = perf("traceml", "--lane", "cpu", "--out", str(tmp_path))

    assert done.returncode == 0, done.stderr
    theirs, ours = read_summary(tmp_path / TRACEML / SUMMARY), read_same_steps(tmp_path / TRACEML / "same_steps.json")
    assert theirs.steps == ours.updates
    assert {row.name: row.agrees for row in compared(theirs, ours) if row.agrees is not None} == {
        "step": True,
        "input wait": True,
    }
