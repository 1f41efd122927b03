from __future__ import annotations

import ast

import pytest

from perf.faults import FAULTS, FOLDER, Fault, line_of, selected

# As issue 9 lists them.
KINDS = {
    *(
        "graph_break",
        "recompile",
        "fall_back",
        "host_sync",
        "kernel",
        "aten_op",
        "python_work",
        "gpu_work",
        "host_time",
    ),
    *("matcher", "memory_leak", "peak_memory", "decode", "workers", "cuda_graph", "validation", "loss_term"),
    *("mirrored_boxes", "learning_rate", "ema"),
}


def test_every_kind_is_there_at_both_sizes() -> None:
    assert {fault.kind for fault in FAULTS} == KINDS
    assert {(fault.kind, fault.size) for fault in FAULTS} == {
        (kind, size) for kind in KINDS for size in ("small", "blatant")
    }
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


def test_every_patch_is_of_a_fault_and_says_in_one_line_what_it_does() -> None:
    assert {fault.patch for fault in FAULTS} == set(FOLDER.glob("*.py"))
    for path in FOLDER.glob("*.py"):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert told, path
        assert "\n" not in told, path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_line_to_be_told_is_one_line_of_the_patch(fault: Fault) -> None:
    line = line_of(fault)
    assert bool(line) == bool(fault.line)
    assert not line or line.startswith(f"{fault.patch}:")


def test_a_line_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"aten_op_small.py: no line holds 'no such code'"):
        line_of(Fault("aten_op", "small", "nano-cpu-b2", ("aten_ops",), "no such code"))


def test_only_blatant_faults_have_to_fail_everywhere() -> None:
    assert {fault.expected for fault in FAULTS if fault.size == "blatant"} == {"fails"}


def test_faults_are_selected_by_what_their_id_holds() -> None:
    assert [fault.id for fault in selected(["graph_break_small"])] == ["graph_break_small.nano-cpu-b2-compile-eager"]
    assert {fault.lane for fault in selected(["host_sync"])} == {"cpu", "gpu"}
    assert selected([]) == list(FAULTS)
    with pytest.raises(ValueError, match="--select graph_brake: no such fault; kinds are graph_break, recompile"):
        selected(["graph_brake"])
