"""The table of the replay: what RF-DETR's releases did, and what the suite must say of each.

Expected counts are those of torch 2.14 on the cpu lane; ``source`` says where the cause stands in the released wheels.
Needs the standard library only.
"""

from __future__ import annotations

from perf.replay_claims import Claim, Replay
from perf.replay_compiling import COMPILING

_EAGER = "nano-cpu-b2"
_GROUPS = "perf/replay_patches/shipped_groups.py"
# Eight are the fewest that prove a change of time (perf.sequential.least_pairs), if all agree: beside other work one in
# eight did not. Of ten that are planned a look at eight may spend nothing (perf.sequential.looks).
_PAIRS = 10

_WORK = (
    Replay(
        name="two-stage-ops",
        base="1.10.1",
        head="1.11.0",
        case=_EAGER,
        patch=_GROUPS,
        verdict="regressed",
        claims=(Claim("aten_ops", "improved", part=r"^backward aten::mm 306 -> 176$", told=r"^31307 -> 28062"),),
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
                part=r"Transformer\._two_stage_batching_eligible.* 0 -> \d+$",
                where=r"rfdetr/models/transformer\.py:4\d\d",
                told=r"^22906 -> 25723",
            ),
            Claim("c_calls", "regressed", part=r"^forward builtins\.len 275 -> 1141$"),
        ),
        what="every step asks anew whether the 13 groups may be batched: 12 % more Python calls a step",
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
            Claim(
                "python_calls",
                "improved",
                part=r"^optimizer torch/optim/adam\.py 1554 -> 422$",
                told=r"^24169 -> 20508",
            ),
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
            Claim("aten_ops", "improved", part=r"^criterion aten::item 4 -> 1$"),
            Claim(
                "aten_ops",
                "improved",
                part=r"^criterion aten::_local_scalar_dense .*_detection_inputs_are_safe 2 -> 0$",
            ),
            Claim("aten_ops", "improved", part=r"^criterion aten::cdist 2 -> 1$"),
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
                "aten_ops",
                "pass",
                part=r"_local_scalar_dense in .*SetCriterion\.loss_masks 26 -> 24$",
                told=r"^25125 -> 25081",
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
                part="forward aten::arange .* 0 -> 2$",
                where=r"rfdetr/models/transformer\.py:14\d",
                told=r"^22109 -> 22111",
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
        what="what Pillow decodes goes to an array and to an image again: a large BMP, which costs little else to "
        "decode, takes several times as long, and decoding carries it",
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
    Replay(
        name="png-decode",
        base="1.10.1",
        head="1.11.0",
        case=_INPUT,
        patch=_PHOTOGRAPHS,
        pairs=_PAIRS,
        verdict="regressed",
        claims=(Claim("getitem_png_large", "regressed", part="^decode,"),),
        what="the same way through an array costs a PNG as much; since a PNG takes longer to decode, less of its time",
        source="1.11.0 rfdetr/datasets/coco.py:582-583",
    ),
    Replay(
        name="png-decode-repaired",
        base="1.11.0",
        head="1.11.1",
        case=_INPUT,
        patch=_PHOTOGRAPHS,
        pairs=_PAIRS,
        verdict="improved",
        claims=(Claim("getitem_png_large", "improved", part="^decode,"),),
        what="as bmp-decode-repaired",
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
)

TABLE: tuple[Replay, ...] = (*COMPILING, *_WORK, *_READING, *_FLOOR, *_GPU)
