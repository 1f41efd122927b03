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
# Sign flips of fewer pairs prove no change of time (perf.sequential.least_pairs).
_PAIRS = 8

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
)

TABLE: tuple[Replay, ...] = _COMPILING
