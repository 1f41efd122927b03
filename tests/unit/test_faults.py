from __future__ import annotations

import ast
from typing import Any

import pytest

from perf.faults import FAULTS, FOLDER, Fault, line_of, selected
from perf.patch_file import import_patch

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


@pytest.mark.filterwarnings("default")
def test_the_graph_that_skips_a_cuda_graph_changes_an_input_that_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor replays a graph that changes a parameter or a buffer, and moves ops on a CPU: neither skips one."""
    import torch
    from rfdetr.models.backbone import dinov2_with_windowed_attn as dinov2
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.compile_fx import compile_fx

    encoder = dinov2.WindowedDinov2WithRegistersEncoder
    monkeypatch.setattr(encoder, "forward", encoder.forward)
    import_patch(FOLDER / "cuda_graph_small.py")
    graphs: list[list[bool]] = []

    def lowered(graph: torch.fx.GraphModule, inputs: Any, static_input_idxs: Any = (), **_: Any) -> Any:
        found = [node for node in graph.graph.nodes if node.op == "placeholder"]
        moving = [node for index, node in enumerate(found) if index not in (static_input_idxs or ())]
        graphs.append([user.target is torch.ops.aten.copy_.default for node in moving for user in node.users])
        return make_boxed_func(graph)

    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "window_block_indexes": [0]}
    config = dinov2.WindowedDinov2WithRegistersConfig(**sizes, attn_implementation="eager", out_features=["stage1"])
    backend = lambda *graph: compile_fx(*graph, inner_compile=lowered)  # noqa: E731
    with torch.no_grad():
        torch.compile(encoder(config), backend=backend)(torch.ones(1, 5, 8))

    assert [any(graph) for graph in graphs] == [True]
