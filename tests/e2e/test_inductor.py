"""The compiled case that ``nox -s perf`` measures without a GPU: a cold compile takes minutes on two cores."""

from __future__ import annotations

from pathlib import Path

from running import run_suite

INDUCTOR = "nano-cpu-b2-compile"


def test_inductor_really_compiles_the_shipped_recipe_and_passes(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", INDUCTOR)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.signal(INDUCTOR, "graphs").now == outcome.signal(INDUCTOR, "graphs").baseline
    assert outcome.signal(INDUCTOR, "frames_failed").now == 0
    assert "compiling (first step)" in outcome.output
