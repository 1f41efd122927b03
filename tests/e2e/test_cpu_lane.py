"""The real cpu lane on the real rfdetr: unmodified it passes, and each thing broken on purpose is seen.

Judged against the committed baselines, so this is also the project's own regression gate without a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from running import PATCHES, Outcome, line_in, run_suite

EAGER = "nano-cpu-b2"
CAPTURED = "nano-cpu-b2-compile-eager"


@pytest.fixture(scope="module")
def unmodified(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_suite(tmp_path_factory.mktemp("records"), "--case", EAGER, "--case", CAPTURED)


def test_unmodified_rfdetr_passes_without_a_single_changed_count(unmodified: Outcome) -> None:
    assert unmodified.exit_code == 0, unmodified.output
    assert unmodified.judgement.summary == "2 of 2 cases pass on cpu, torch 2.14"
    gated = [row for case in unmodified.judgement.cases for row in case.signals if row.verdict]
    assert len(gated) == 26
    for name in ("first_loss", "optimizer_groups", "memory_growth", "step_memory"):
        assert [unmodified.signal(case, name).verdict for case in (EAGER, CAPTURED)] == ["pass", "pass"]
    assert [row.signal for row in gated if row.change] == []


def test_compilation_is_proven_not_assumed(unmodified: Outcome) -> None:
    frames = unmodified.signal(CAPTURED, "frames").now
    assert frames is not None
    assert frames > 0
    assert unmodified.signal(CAPTURED, "frames_failed").now == 0
    assert unmodified.signal(EAGER, "frames").now == 0


def test_extra_graph_break_is_a_regression_at_its_line(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", CAPTURED, patch="extra_graph_break.py")
    breaks = outcome.signal(CAPTURED, "graph_breaks")
    assert outcome.exit_code == 1
    assert breaks.verdict == "regressed"
    line = line_in("extra_graph_break.py", "graph_break()")
    assert breaks.where[0] == line
    assert f"at {line}" in outcome.output
    # The new break itself, and the wrapper as one more frame that the break at the pos-embed goes through.
    assert [part.new - part.old for part in breaks.parts] == [1, 1]


def test_extra_aten_op_is_listed_at_its_line(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", EAGER, patch="extra_aten_op.py")
    ops = outcome.signal(EAGER, "aten_ops")
    assert outcome.exit_code == 0, outcome.output
    assert (ops.verdict, ops.listed, ops.change) == ("pass", True, 1)
    [part] = ops.parts
    assert part.name == f"forward aten::neg in {PATCHES / 'extra_aten_op.py'}:forward"
    assert part.where == [line_in("extra_aten_op.py", "torch.neg")]
    assert part.where[0] in outcome.output


def test_extra_python_call_is_listed_at_its_line(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", EAGER, patch="extra_python_call.py")
    calls = outcome.signal(EAGER, "python_calls")
    assert outcome.exit_code == 0, outcome.output
    assert (calls.verdict, calls.listed, calls.change) == ("pass", True, 1)
    [part] = calls.parts
    assert part.where == [line_in("extra_python_call.py", "def forward")]
    assert outcome.signal(EAGER, "aten_ops").change == 0
    assert part.where[0] in outcome.output


def test_many_aten_ops_are_a_regression(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", EAGER, patch="many_aten_ops.py")
    ops = outcome.signal(EAGER, "aten_ops")
    assert outcome.exit_code == 1
    assert (ops.verdict, ops.change) == ("regressed", 400)
    assert "rfdetr-perf refresh" not in outcome.output  # what a patch does makes no baseline
    assert f"--case {EAGER} --patch {PATCHES / 'many_aten_ops.py'}" in outcome.output
