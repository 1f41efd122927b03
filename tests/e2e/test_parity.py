"""Parity on the real rfdetr: a compiled step that computes something else than the eager one fails."""

from __future__ import annotations

from pathlib import Path

from running import run_suite

PARITY = "nano-cpu-b2-compile-eager-parity"


def test_a_compiled_step_that_computes_something_else_fails(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", PARITY, patch="wrong_when_compiled.py")
    mismatches = outcome.signal(PARITY, "parity_mismatches")
    assert outcome.exit_code == 1
    assert mismatches.verdict == "failed"
    assert "the compiled step computes something else than the eager one" in outcome.output
    assert "loss_bbox 1" in mismatches.message
    assert outcome.signal(PARITY, "model_frames").now == 1
