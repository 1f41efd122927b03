"""The table of the replay: what RF-DETR's releases did, and what the suite must say of each.

Expected counts are those of torch 2.14 on the cpu lane; ``source`` says where the cause stands in the released wheels.
Needs the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

_MATRIX_MINOR = "2.14"


@dataclass(frozen=True)
class Claim:
    """What the suite must say of one signal: its verdict, and what attributes it.

    ``part``, ``where`` and ``told`` are regexes: of a part that moved in the verdict's direction (of a time: that
    carries most of the change), of one of its source lines, and of the message. ``by`` is the signal of the head's
    record whose parts attribute it, where that is another one.
    """

    signal: str
    verdict: str
    part: str = ""
    where: str = ""
    told: str = ""
    by: str = ""


@dataclass(frozen=True)
class Replay:
    """One regression or repair: the head is judged against the base, or alone where there is none.

    ``verdict`` is that of the case as a whole, ``what`` says what happened, ``source`` where it can be read. ``pairs``:
    so many runs a side, since it is judged by time; 0: by counts, from one. ``patch``: a file that both sides import.
    ``ci``: of the ten-minute selection. ``recorded``: not run, but read from the compile matrix's store, for torch
    ``minor``.
    """

    name: str
    base: str | None
    head: str
    case: str
    verdict: str
    claims: tuple[Claim, ...]
    what: str
    source: str
    pairs: int = 0
    patch: str = ""
    ci: bool = False
    recorded: bool = False
    minor: str = _MATRIX_MINOR

    @property
    def lane(self) -> str:
        """The lane of its case."""
        return "cpu" if "-cpu-" in self.case else "gpu"

    @property
    def sides(self) -> list[str]:
        """The releases that it measures."""
        return [side for side in (self.base, self.head) if side is not None]

    @property
    def runs(self) -> int:
        """How many runs each side needs."""
        return self.pairs or 1

    @property
    def pair(self) -> str:
        """Its releases in words."""
        return f"{self.base} to {self.head}" if self.base else f"{self.head} alone"

    @property
    def command(self) -> str:
        """What runs it."""
        return f"nox -s replay -- -k {self.name}"


_EAGER, _COMPILED = "nano-cpu-b2", "nano-cpu-b2-compile-eager"
_SIZES = "nano-cpu-b2-compile-eager-per-batch-w0-epoch"
_BACKWARD = "nano-cpu-b2-compile-aot_eager-per-batch"
_GROUPS = "perf/replay_patches/shipped_groups.py"
_TYPE_ERROR = r"TypeError: expected Tensor as element 0 in argument 0, but got torch\.Size"
# Eight are the fewest that prove a change of time (perf.sequential.least_pairs), if all agree: beside other work one in
# eight did not. Of ten that are planned a look at eight may spend nothing (perf.sequential.looks).
_PAIRS = 10

_COMPILING = (
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
        name="hidden-backward",
        base=None,
        head="1.10.1",
        case=_BACKWARD,
        verdict="not-compiled",
        claims=(
            Claim(
                "frames_failed",
                "not-compiled",
                part="interpolate_pos_encoding: BackendCompilerFailed",
                where=r"rfdetr/models/backbone/dinov2_with_windowed_attn\.py:356",
                told="^frames that fell back to eager: ",
            ),
        ),
        what="the gate is open, but away from the base resolution the backward of the interpolated positional encoding "
        "fails in AOTAutograd, and suppress_errors hides it: compile is on and the model eager",
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
                part=r"torch\.compiler\.disable",
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
        name="host-reads-in-the-graph",
        base="1.10.1",
        head="1.11.0",
        case=_COMPILED,
        verdict="regressed",
        claims=(Claim("aten_ops", "improved", part=r"^forward aten::_local_scalar_dense$", told="72 -> 0"),),
        what="the compiled forward no longer reads 72 numbers from tensors, each a sync on a GPU. The case regressed "
        "by its graph breaks, and both are told",
        source="1.11.0 rfdetr/models/transformer.py:679-688",
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
)

_WORK = (
    Replay(
        name="two-stage-ops",
        base="1.10.1",
        head="1.11.0",
        case=_EAGER,
        patch=_GROUPS,
        verdict="regressed",
        claims=(Claim("aten_ops", "improved", part=r"^(forward|backward) aten::mm$", told=r"31307 -> 28062"),),
        what="the heads of the 13 query groups are one batched product: 10 % fewer ATen ops, forward and backward. The "
        "case regressed by what two-stage-checks has",
        source="1.11.0 rfdetr/models/transformer.py:717",
        ci=True,
    ),
    Replay(
        name="two-stage-checks",
        base="1.10.1",
        head="1.11.0",
        case=_EAGER,
        patch=_GROUPS,
        verdict="regressed",
        claims=(
            Claim(
                "python_calls",
                "regressed",
                part="Transformer._two_stage_batching_eligible",
                where=r"rfdetr/models/transformer\.py:4\d\d",
                told=r"22906 -> 25723",
            ),
            Claim("c_calls", "regressed", part="forward builtins.len"),
        ),
        what="every step asks anew whether the 13 groups may be batched: 12 % more Python calls a step, in 1.11.2 too",
        source="1.11.0 rfdetr/models/transformer.py:375",
        ci=True,
    ),
    Replay(
        name="optimizer-groups",
        base="1.9.4",
        head="1.10.0",
        case=_EAGER,
        verdict="improved",
        claims=(
            Claim("python_calls", "improved", part=r"^optimizer torch/optim/adam\.py", told=r"24169 -> 20508"),
            Claim("c_calls", "improved"),
        ),
        what="one optimizer group a parameter became one a distinct setting: AdamW's loop over groups shrinks",
        source="1.10.0 rfdetr/training/param_groups.py:133-156",
        ci=True,
    ),
    Replay(
        name="one-matching-for-all-layers",
        base="1.9.4",
        head="1.10.0",
        case=_EAGER,
        verdict="improved",
        claims=(
            Claim("aten_ops", "improved", part=r"^criterion aten::_local_scalar_dense .*_detection_inputs_are_safe"),
            Claim("aten_ops", "improved", part=r"^criterion aten::cdist"),
        ),
        what="all layers are matched by one stacked cost, and asked once whether it is finite: the host reads one "
        "number in place of four, each a sync on a GPU",
        source="1.10.0 rfdetr/models/matcher.py:505-615",
        ci=True,
    ),
    Replay(
        name="mask-loss-reads",
        base="1.10.0",
        head="1.10.1",
        case="seg-nano-cpu-b2",
        verdict="pass",
        claims=(
            Claim(
                "aten_ops", "pass", part=r"_local_scalar_dense in .*SetCriterion\.loss_masks", told=r"25125 -> 25081"
            ),
        ),
        what="the mask losses of every layer read the number of boxes into a Python float, a sync on a GPU; it stays a "
        "tensor from here on. 44 ops of 25125 are inside the gate: they pass, and the read is listed with its function",
        source="1.10.0 rfdetr/models/criterion.py:771",
        ci=True,
    ),
    Replay(
        name="repairs-leave-the-step",
        base="1.11.0",
        head="1.11.1",
        case=_EAGER,
        verdict="pass",
        claims=(
            Claim(
                "aten_ops",
                "pass",
                part="forward aten::arange",
                where=r"rfdetr/models/transformer\.py:14\d",
                told=r"22109 -> 22111",
            ),
            Claim("python_calls", "pass"),
        ),
        what="the release that mended decoding and recompiles has the same step but for two ops: nothing may fail, and "
        "the two are listed",
        source="1.11.1 rfdetr/models/transformer.py:137-141",
        ci=True,
    ),
)

_INPUT = "nano-cpu-b2-input"
_PHOTOGRAPHS = "perf/replay_patches/large_photographs.py"
_READING = (
    Replay(
        name="bmp-decode",
        base="1.10.1",
        head="1.11.0",
        case=_INPUT,
        patch=_PHOTOGRAPHS,
        pairs=_PAIRS,
        verdict="regressed",
        claims=(Claim("getitem_bmp_large", "regressed", part="^decode,"),),
        what="what is no JPEG was decoded to an image, to an array and to an image again: large BMPs take several "
        "times as long, and nothing else of reading a sample",
        source="1.11.0 rfdetr/datasets/io_utils.py:113 and coco.py:583",
    ),
    Replay(
        name="bmp-decode-repaired",
        base="1.11.0",
        head="1.11.1",
        case=_INPUT,
        patch=_PHOTOGRAPHS,
        pairs=_PAIRS,
        verdict="improved",
        claims=(Claim("getitem_bmp_large", "improved", part="^decode,"),),
        what="the picture that Pillow has decoded is taken as it is",
        source="1.11.1 rfdetr/datasets/io_utils.py:102-123",
    ),
)

_FLOOR = tuple(
    Replay(
        name=f"torch-{minor}",
        base=None,
        head="1.11.2",
        case=_EAGER,
        verdict="failed",
        claims=(Claim("outcome", "cannot be imported", told="cannot import name 'BackboneConfigMixin'"),),
        what=f"installs with torch {minor} and cannot be imported: no transformers that rfdetr allows takes that torch",
        source="perf/matrix.py, and docs/compile-matrix.jsonl",
        recorded=True,
        minor=minor,
    )
    for minor in ("2.2", "2.3")
)

_GPU = (
    Replay(
        name="gpu-gate-closed",
        base=None,
        head="1.10.0",
        case="nano-b4-compile-per-batch",
        verdict="not-compiled",
        claims=(Claim("frames", "not-compiled", told="no frame was compiled"),),
        what="gate-closed with the real gate and Inductor",
        source="1.10.0 rfdetr/training/module_model.py:422",
    ),
    Replay(
        name="gpu-hidden-backward",
        base=None,
        head="1.10.1",
        case="nano-b4-compile-per-batch",
        verdict="not-compiled",
        claims=(Claim("frames_failed", "not-compiled", part="rfdetr/models/backbone/"),),
        what="hidden-backward with Inductor",
        source="1.10.1 rfdetr/training/module_model.py:446",
    ),
    Replay(
        name="gpu-mask-loss-sync",
        base="1.10.0",
        head="1.10.1",
        case="seg-nano-b4",
        verdict="improved",
        claims=(Claim("host_syncs", "improved", part="loss_masks"),),
        what="mask-loss-reads where a read is a sync",
        source="1.10.0 rfdetr/models/criterion.py:771",
    ),
    Replay(
        name="gpu-mask-head-lock",
        base="1.11.1",
        head="1.11.2",
        case="seg-nano-b4-compile",
        verdict="not-compiled",
        claims=(Claim("frames_failed", "not-compiled", part=r"models/heads/segmentation\.py"),),
        what="a lock around the segmentation head's convolutions, taken on CUDA only, does not go into a graph: two "
        "frames run eager",
        source="1.11.2 rfdetr/models/heads/segmentation.py:40",
    ),
)

TABLE: tuple[Replay, ...] = (*_COMPILING, *_WORK, *_READING, *_FLOOR, *_GPU)
