"""The rows of the replay that are about compiling: raises, gates, graphs, breaks and recompiles.

Expected counts are those of torch 2.14 on the cpu lane; ``source`` says where the cause stands in the released wheels.
Needs the standard library only.
"""

from __future__ import annotations

from perf.replay_claims import Claim, Replay

_COMPILED = "nano-cpu-b2-compile-eager"
_SIZES = "nano-cpu-b2-compile-eager-per-batch-w0-epoch"
_BACKWARD = "nano-cpu-b2-compile-aot_eager-per-batch"
_MASKS = "seg-nano-cpu-b2-compile-eager"
_TYPE_ERROR = r"TypeError: expected Tensor as element 0 in argument 0, but got torch\.Size"

COMPILING: tuple[Replay, ...] = (
    Replay(
        name="compile-raises",
        base=None,
        head="1.9.4",
        case=_COMPILED,
        verdict="failed",
        claims=(
            Claim(
                "run 0",
                "failed",
                told=_TYPE_ERROR,
                by="graph_breaks",
                part="TypeError when making fake tensor call",
                where=r"rfdetr/models/transformer\.py:332",
            ),
        ),
        what="compile=True raised: torch._shape_as_tensor inside the graph gives Dynamo a torch.Size, no tensor",
        source="1.9.4 rfdetr/models/transformer.py:329-334",
        ci=True,
    ),
    Replay(
        name="compile-raises-repaired",
        base="1.9.4",
        head="1.10.0",
        case=_COMPILED,
        verdict="no-baseline",
        claims=(Claim("base", "no-baseline", told=_TYPE_ERROR), Claim("graph_breaks", "no-baseline")),
        what="compiles from here on: the shapes come from as_tensor while compiling. The base has nothing to compare "
        "with, and the suite says so rather than pass",
        source="1.10.0 rfdetr/models/transformer.py:362",
        ci=True,
    ),
    Replay(
        name="gate-closed",
        base=None,
        head="1.10.0",
        case="nano-cpu-b2-compile-eager-per-batch",
        verdict="not-compiled",
        claims=(Claim("frames", "not-compiled", told="no frame was compiled: the step ran eager"),),
        what="compile=True with the default multi_scale was silently eager: the gate excludes multi_scale",
        source="1.10.0 rfdetr/training/module_model.py:422",
        ci=True,
    ),
    Replay(
        name="gate-opened",
        base="1.10.0",
        head="1.10.1",
        case="nano-cpu-b2-compile-eager-per-batch",
        verdict="no-baseline",
        claims=(
            Claim("base", "no-baseline", told="the base did not compile: compile=True, and no frame was compiled"),
            Claim("graphs", "no-baseline"),
        ),
        what="the gate no longer asks for multi_scale: the same case compiles, since Dynamo's eager backend has no "
        "backward that could fail (hidden-backward)",
        source="1.10.1 rfdetr/training/module_model.py:427",
        ci=True,
    ),
    Replay(
        name="hidden-backward",
        base=None,
        head="1.10.1",
        case=_BACKWARD,
        verdict="not-compiled",
        claims=(
            Claim(
                "frames_failed",
                "not-compiled",
                told="^frames that fell back to eager: ",
                part="interpolate_pos_encoding: BackendCompilerFailed",
                where=r"rfdetr/models/backbone/dinov2_with_windowed_attn\.py:356",
            ),
        ),
        what="the gate is open, but away from the base resolution the backward of the interpolated positional encoding "
        "fails in AOTAutograd, and suppress_errors hides it: each frame from the model's forward down to the "
        "interpolation runs eager, and only what they call is compiled, piece by piece",
        source="1.10.1 rfdetr/training/module_model.py:446",
    ),
    Replay(
        name="hidden-backward-repaired",
        base="1.10.1",
        head="1.11.0",
        case=_BACKWARD,
        verdict="no-baseline",
        claims=(Claim("base", "no-baseline", told="the base did not compile"), Claim("frames_failed", "no-baseline")),
        what="the interpolation is kept out of the graph and suppress_errors is gone: the model compiles",
        source="1.11.0 rfdetr/models/backbone/dinov2_with_windowed_attn.py:356",
    ),
    Replay(
        name="graph-breaks",
        base="1.10.1",
        head="1.11.0",
        case=_COMPILED,
        verdict="regressed",
        claims=(
            Claim(
                "graph_breaks",
                "regressed",
                part=r"torch\.compiler\.disable.* 0 -> 6$",
                where=r"rfdetr/models/backbone/dinov2_with_windowed_attn\.py:461",
                told=r"^0 -> 6",
            ),
            Claim("graphs", "regressed", told=r"^1 -> 7"),
        ),
        what="1 graph and no break became 7 graphs and 6 breaks: the interpolation of the positional encoding is kept "
        "out of the graph",
        source="1.11.0 rfdetr/models/backbone/dinov2_with_windowed_attn.py:356",
        ci=True,
    ),
    Replay(
        name="validation-recompiles",
        base="1.10.1",
        head="1.11.0",
        case=_COMPILED,
        verdict="regressed",
        claims=(
            Claim(
                "eval_recompiles",
                "regressed",
                part="GLOBAL_STATE changed: grad_mode",
                where=r"dinov2_with_windowed_attn\.py:461",
                told=r"^2 -> 12",
            ),
            Claim("eval_graph_breaks", "regressed", told=r"^0 -> 6"),
        ),
        what="validation compiles every piece of the broken graph again, since gradients are off there: 12 recompiles "
        "in place of 2",
        source="1.11.0 rfdetr/models/backbone/dinov2_with_windowed_attn.py:356",
        ci=True,
    ),
    Replay(
        name="static-shapes",
        base="1.10.1",
        head="1.11.0",
        case=_COMPILED,
        verdict="regressed",
        claims=(Claim("aten_ops", "improved", part=r"^forward aten::_local_scalar_dense 72 -> 0$"),),
        what="without multi_scale the model is compiled for static shapes: with dynamic=True Dynamo had handed 72 "
        "Python floats, epsilons and dropout rates, to the graph as tensors that it then reads. The case regressed by "
        "its graph breaks, and both are told",
        source="1.11.0 rfdetr/training/module_model.py:513-526",
        ci=True,
    ),
    Replay(
        name="recompiles-by-size",
        base="1.11.0",
        head="1.11.1",
        case=_SIZES,
        verdict="improved",
        claims=(
            Claim(
                "recompiles",
                "improved",
                part=r"tensors' size mismatch",
                where=r"rfdetr/models/lwdetr\.py:477",
                told=r"^13 -> 6",
            ),
        ),
        what="each of 8 input sizes had recompiled what follows the backbone (linspace's step count specialised); "
        "1.11.1 takes arange. What is left are one guard at the breaks and five of the matcher's compiled cost",
        source="1.11.1 rfdetr/models/transformer.py:137-141",
    ),
    Replay(
        name="one-recompile-more",
        base="1.11.1",
        head="1.11.2",
        case=_SIZES,
        verdict="regressed",
        claims=(Claim("recompiles", "regressed", part=r"sym_min\(50", where=r"transformer\.py:862", told=r"^6 -> 7"),),
        what="a test whether any query is left after the two-stage selection became a guard on the size",
        source="1.11.2 rfdetr/models/transformer.py:862",
    ),
    Replay(
        name="mask-head-flags",
        base=None,
        head="1.11.1",
        case=_MASKS,
        verdict="not-compiled",
        claims=(
            Claim(
                "frames_failed",
                "not-compiled",
                told="^frames that fell back to eager: 2, ",
                part=r"models/heads/segmentation\.py:sparse_forward: Unsupported",
                where=r"rfdetr/models/heads/segmentation\.py:71",
            ),
        ),
        what="compile=True of a model with masks left two frames of its head eager: cuDNN is off around the head's "
        "convolutions, on any device, and the flags for that go into no graph",
        source="1.11.1 rfdetr/models/heads/segmentation.py:71",
    ),
    Replay(
        name="mask-head-flags-repaired",
        base="1.11.1",
        head="1.11.2",
        case=_MASKS,
        verdict="no-baseline",
        claims=(
            Claim("base", "no-baseline", told="the base did not compile: frames that fell back to eager: 2, "),
            Claim("frames_failed", "no-baseline"),
        ),
        what="the flags are set for CUDA only, and so the head compiles on a CPU. On CUDA a lock around them keeps two "
        "frames eager still, which perf/matrix.py knows of torch 2.11",
        source="1.11.2 rfdetr/models/heads/segmentation.py:140",
    ),
)
