"""Cases: what a run measures, under a short stable id."""

from __future__ import annotations

import difflib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from perf.configs import config_names

Lane = Literal["gpu", "cpu"]
Precision = Literal["auto", "fp32", "bf16", "fp16", "fp8"]
Backend = Literal["inductor", "aot_eager", "eager"]
MultiScale = Literal["off", "per-batch", "per-sample"]
Dynamic = Literal["rfdetr", "on", "off", "auto"]
Mode = Literal["default", "reduce-overhead", "max-autotune-no-cudagraphs"]
Measure = Literal["step", "epoch", "parity", "convergence", "fit", "input", "throughput", "epochs"]
Strategy = Literal["auto", "ddp"]
OptimizeDdp = Literal["torch", "on", "off", "python-reducer"]
Augmentation = Literal["cpu", "gpu"]
SHAPES = "shapes"


NEED_DATA = ("epoch", "convergence", "fit", "input", "epochs")
TAKE_DATA = ("convergence", "fit", "input", "epochs")
TAKE_STEPS = ("convergence", "fit", "epochs")
NEED_MEASURE = ("measure", "steps", "augmentation", "data", "accumulate")
NEED_COMPILE = ("backend", "dynamic", "mode", "suppress_errors", "capture_scalars", "optimize_ddp")


class Case(BaseModel):
    """One thing to measure. Frozen and hashable; equal cases have equal ids.

    ``lane="cpu"`` means the reduced model sizes of :mod:`perf.rfdetr_configs`, run on a CPU.
    ``measure`` is what a run does: time and count the step on a fixed batch, go through one epoch of the generated
    data set (:mod:`perf.shapes`), hold the compiled step against the eager one, train from random weights and score
    what that learned, say where the time of the training loop goes (``fit``), or read samples as a training would,
    without one (``input``). These three do it on ``data``, the generated set or one of a user's, by the name of its
    folder; the first two of them for ``steps`` optimizer updates; None: those of its :mod:`perf.recipe`, or as many as
    :mod:`perf.probes.fit` needs. ``accumulate`` batches make an update of a fit. ``augmentation`` is rfdetr's backend,
    which needs a data set.
    ``throughput`` is what a cell of a sweep takes of the step: its rate, memory and proof (:mod:`perf.sweep`).
    ``epochs`` are whole ones on ``data`` with their validation, ``steps`` of them.

    The rest needs ``compile``. ``backend``: rfdetr itself always asks for Inductor. ``dynamic`` (``auto`` is None to
    ``torch.compile``) and ``mode`` replace what rfdetr passes; ``suppress_errors`` and ``capture_scalars`` set the
    ``torch._dynamo.config`` of that name after rfdetr has, and None leaves it to rfdetr.

    ``devices`` are those of a node, and each has a process of its own, a rank, with ``batch_size`` images. More ranks
    than one train by DDP, as rfdetr's ``strategy="auto"`` does; ``ddp`` takes a single one through it too.
    ``optimize_ddp`` is the ``torch._dynamo.config`` of that name: what Dynamo does with a model inside DDP; ``torch``
    leaves it to torch, which splits its graphs (``on``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    lane: Lane = "gpu"
    batch_size: int = Field(default=4, ge=1)
    precision: Precision = "auto"
    compile: bool = False
    backend: Backend = "inductor"
    dynamic: Dynamic = "rfdetr"
    mode: Mode = "default"
    suppress_errors: bool | None = None
    capture_scalars: bool | None = None
    cuda_graphs: bool = False
    multi_scale: MultiScale = "off"
    expanded_scales: bool = True
    square: bool = True
    padded: bool = False
    workers: int = Field(default=2, ge=0)
    devices: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    strategy: Strategy = "auto"
    optimize_ddp: OptimizeDdp = "torch"
    measure: Measure = "step"
    steps: int | None = Field(default=None, ge=2)
    augmentation: Augmentation = "cpu"
    data: str = Field(default=SHAPES, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    accumulate: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _only_with_compile(self) -> Case:
        changed = [name for name in NEED_COMPILE if getattr(self, name) != type(self).model_fields[name].default]
        if self.measure == "parity":
            changed.append("measure")
        if changed and not self.compile:
            msg = f"{changed[0]}={getattr(self, changed[0])!r} needs compile=True"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _nothing_inert(self) -> Case:
        """Refuse what would change the id and nothing else."""
        if self.backend != "inductor" and (self.mode != "default" or self.cuda_graphs):
            msg = f"mode and cuda_graphs are Inductor's: {self.backend} has neither"
            raise ValueError(msg)
        if self.padded and self.measure in NEED_DATA:
            msg = "padded is of the fixed batch: an epoch pads as its images do"
            raise ValueError(msg)
        if self.strategy == "ddp" and self.ranks > 1:
            msg = f"strategy='ddp' is of a single rank: {self.ranks} train by DDP anyway"
            raise ValueError(msg)
        if self.optimize_ddp != "torch" and not self.distributed:
            msg = f"optimize_ddp={self.optimize_ddp!r} needs more than one device, or strategy='ddp'"
            raise ValueError(msg)
        if self.measure == "parity" and self.distributed:
            msg = "parity is of one process: what several compute together is no step of one of them"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _of_a_training(self) -> Case:
        """Refuse what only a training has, or what it cannot have."""
        if self.augmentation != "cpu" and self.measure not in NEED_DATA:
            msg = f"augmentation={self.augmentation!r} needs a data set: measure an epoch, a fit, convergence or input"
            raise ValueError(msg)
        takes_steps = self.measure in TAKE_STEPS
        if (self.steps is not None and not takes_steps) or (self.data != SHAPES and not self.takes_data):
            msg = f"steps and data are of a training: measure={self.measure!r} has not both"
            raise ValueError(msg)
        if self.accumulate != 1 and self.measure != "fit":
            msg = f"accumulate is of a fit: measure={self.measure!r} makes every batch an update"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _in_one_process(self) -> Case:
        if self.trains and self.distributed:
            msg = f"{self.id}: a training is scored in one process, since each rank scores its own images only"
            raise ValueError(msg)
        if self.measure in ("fit", "epochs") and self.distributed:
            msg = f"{self.id}: measure={self.measure!r} is of one process; several by step or epoch: docs/clusters.md"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _of_the_input(self) -> Case:
        """Refuse what changes nothing where no model is built."""
        changed = self.compile or self.cuda_graphs or self.precision != "auto" or self.distributed
        if self.measure == "input" and changed:
            msg = "input is read without a model, in one process: compile, CUDA graphs, precision and ranks change none"
            raise ValueError(msg)
        return self

    @property
    def ranks(self) -> int:
        """How many processes measure the case together."""
        return self.devices * self.nodes

    @property
    def distributed(self) -> bool:
        """Whether the step goes through DDP."""
        return self.ranks > 1 or self.strategy == "ddp"

    @property
    def trains(self) -> bool:
        """Whether a run is a whole training, whose seed is the run's index."""
        return self.measure == "convergence"

    @property
    def takes_turns(self) -> bool:
        """Whether a run can prepare beside others and measure while they wait (perf.turns)."""
        return self.measure == "step" and not self.distributed

    @property
    def takes_data(self) -> bool:
        """Whether a run reads the data set that the user gives."""
        return self.measure in TAKE_DATA

    @property
    def eager(self) -> Case:
        """The same work without compile, CUDA graphs or a comparison."""
        return Case.model_validate(self.model_dump(exclude={*NEED_COMPILE, *NEED_MEASURE, "compile", "cuda_graphs"}))

    @property
    def id(self) -> str:
        """The stable id: config, lane, batch size, then only what differs from the default."""
        parts = [
            self.config,
            "cpu" if self.lane == "cpu" else "",
            f"b{self.batch_size}",
            "" if self.precision == "auto" else self.precision,
            "compile" if self.compile else "",
            "" if self.backend == "inductor" else self.backend,
            "" if self.dynamic == "rfdetr" else f"dynamic-{self.dynamic}",
            "" if self.mode == "default" else self.mode,
            _switch("suppress", self.suppress_errors),
            _switch("scalars", self.capture_scalars),
            "graphs" if self.cuda_graphs else "",
            "" if self.multi_scale == "off" else self.multi_scale,
            "" if self.expanded_scales else "unexpanded",
            "" if self.square else "nonsquare",
            "padded" if self.padded else "",
            "" if self.workers == 2 else f"w{self.workers}",
            "" if self.devices == 1 else f"x{self.devices}",
            "" if self.nodes == 1 else f"nodes{self.nodes}",
            "" if self.strategy == "auto" else self.strategy,
            "" if self.optimize_ddp == "torch" else f"optimize-ddp-{self.optimize_ddp}",
            "" if self.measure == "step" else self.measure,
            "" if self.steps is None else f"s{self.steps}",
            "" if self.augmentation == "cpu" else "gpu-aug",
            "" if self.accumulate == 1 else f"accumulate{self.accumulate}",
            "" if self.data == SHAPES else f"on-{self.data}",
        ]
        return "-".join(part for part in parts if part)


def _switch(name: str, value: bool | None) -> str:
    return "" if value is None else f"{name}-{'on' if value else 'off'}"


_ID = re.compile(
    r"(?P<config>[a-z0-9]+(?:-[a-z0-9]+)*?)(?P<cpu>-cpu)?-b(?P<batch_size>\d+)"
    r"(?:-(?P<precision>fp32|bf16|fp16|fp8))?(?P<compile>-compile)?(?:-(?P<backend>aot_eager|eager))?"
    r"(?:-dynamic-(?P<dynamic>on|off|auto))?(?:-(?P<mode>reduce-overhead|max-autotune-no-cudagraphs))?"
    r"(?:-suppress-(?P<suppress_errors>on|off))?(?:-scalars-(?P<capture_scalars>on|off))?(?P<cuda_graphs>-graphs)?"
    r"(?:-(?P<multi_scale>per-batch|per-sample))?(?P<unexpanded>-unexpanded)?(?P<nonsquare>-nonsquare)?"
    r"(?P<padded>-padded)?(?:-w(?P<workers>\d+))?(?:-x(?P<devices>\d+))?(?:-nodes(?P<nodes>\d+))?(?:-(?P<strategy>ddp))?"
    r"(?:-optimize-ddp-(?P<optimize_ddp>on|off|python-reducer))?"
    r"(?:-(?P<measure>epoch|parity|convergence|fit|input|throughput|epochs))?(?:-s(?P<steps>\d+))?"
    r"(?:-(?P<augmentation>gpu)-aug)?(?:-accumulate(?P<accumulate>\d+))?"
    r"(?:-on-(?P<data>[a-z0-9]+(?:-[a-z0-9]+)*))?"
)


def parse_id(case_id: str) -> Case | None:
    """Return the case with this id, also one of no suite; None where the text is no case's id."""
    found = _ID.fullmatch(case_id)
    if found is None:
        return None
    given = {name: text for name, text in found.groupdict().items() if text is not None}
    lane = "cpu" if given.pop("cpu", None) else "gpu"
    flags: dict[str, object] = {name: True for name in ("compile", "cuda_graphs", "padded") if given.pop(name, None)}
    flags |= {name: given.pop(name) == "on" for name in ("suppress_errors", "capture_scalars") if name in given}
    flags |= {
        field: False
        for field, name in (("expanded_scales", "unexpanded"), ("square", "nonsquare"))
        if given.pop(name, None)
    }
    try:
        case = Case.model_validate({"lane": lane, **given, **flags})
    except ValidationError:
        return None
    # One case has one id: no default spelled out, no leading zero.
    return case if case.id == case_id else None


def find_case(case_id: str) -> Case:
    """Return the case with this id; any combination of settings has one.

    Raises:
        ValueError: no such case, or no such config; the message names the closest ids, or the known configs.
    """
    from perf.suites import catalogue  # which is made of cases

    known = catalogue()
    case = known.get(case_id) or parse_id(case_id)
    if case is None:
        closest = difflib.get_close_matches(case_id, known)
        meant = f"the closest: {', '.join(closest)}; " if closest else ""
        msg = f"unknown case {case_id!r}; {meant}rfdetr-perf cases lists them all"
        raise ValueError(msg)
    if case.config not in config_names():
        msg = f"case {case_id!r}: unknown config {case.config!r}; known: {', '.join(config_names())}"
        raise ValueError(msg)
    return case
