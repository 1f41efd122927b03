"""Cases: what a run measures, under a short stable id."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Lane = Literal["gpu", "cpu"]
Precision = Literal["auto", "fp32", "bf16", "fp16", "fp8"]
Backend = Literal["inductor", "aot_eager", "eager"]
MultiScale = Literal["off", "per-batch", "per-sample"]

# Short name of each shipped config -> its class in ``rfdetr.config``.
CONFIGS: dict[str, str] = {
    "nano": "RFDETRNanoConfig",
    "small": "RFDETRSmallConfig",
    "medium": "RFDETRMediumConfig",
    "large": "RFDETRLargeConfig",
    "base": "RFDETRBaseConfig",
    "large-deprecated": "RFDETRLargeDeprecatedConfig",
    "seg-preview": "RFDETRSegPreviewConfig",
    "seg-nano": "RFDETRSegNanoConfig",
    "seg-small": "RFDETRSegSmallConfig",
    "seg-medium": "RFDETRSegMediumConfig",
    "seg-large": "RFDETRSegLargeConfig",
    "seg-xlarge": "RFDETRSegXLargeConfig",
    "seg-2xlarge": "RFDETRSeg2XLargeConfig",
    "keypoint-preview": "RFDETRKeypointPreviewConfig",
}


class Case(BaseModel):
    """One thing to measure. Frozen and hashable; equal cases have equal ids.

    ``lane="cpu"`` means the reduced model sizes of :mod:`perf.rfdetr_api`, run on a CPU.
    ``backend`` matters only when ``compile`` is on; rfdetr itself always asks for Inductor.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: str
    lane: Lane = "gpu"
    batch_size: int = Field(default=4, ge=1)
    precision: Precision = "auto"
    compile: bool = False
    backend: Backend = "inductor"
    cuda_graphs: bool = False
    multi_scale: MultiScale = "off"
    padded: bool = False
    workers: int = Field(default=2, ge=0)
    devices: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _known_config(self) -> Case:
        if self.config not in CONFIGS:
            msg = f"unknown config {self.config!r}; known: {', '.join(CONFIGS)}"
            raise ValueError(msg)
        if self.backend != "inductor" and not self.compile:
            msg = f"backend={self.backend!r} needs compile=True"
            raise ValueError(msg)
        return self

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
            "graphs" if self.cuda_graphs else "",
            "" if self.multi_scale == "off" else self.multi_scale,
            "padded" if self.padded else "",
            "" if self.workers == 2 else f"w{self.workers}",
            "" if self.devices == 1 else f"x{self.devices}",
        ]
        return "-".join(part for part in parts if part)


# What the suite runs by itself, a lane at a time. Widened issue by issue.
SUITE: dict[Lane, tuple[Case, ...]] = {
    "gpu": (
        Case(config="nano", batch_size=4),
        Case(config="nano", batch_size=4, compile=True),
    ),
    "cpu": (
        Case(config="nano", lane="cpu", batch_size=2),
        Case(config="nano", lane="cpu", batch_size=2, compile=True),
    ),
}

# Runnable by id, but not part of the default suite: a capture without Inductor takes seconds, not minutes.
EXTRA: tuple[Case, ...] = (
    Case(config="nano", lane="cpu", batch_size=2, compile=True, backend="eager"),
    Case(config="nano", lane="cpu", batch_size=2, compile=True, backend="aot_eager"),
    Case(config="nano", batch_size=4, compile=True, multi_scale="per-batch"),
    Case(config="nano", batch_size=4, cuda_graphs=True),
    Case(config="nano", batch_size=4, compile=True, cuda_graphs=True),
)


def catalogue() -> dict[str, Case]:
    """Return every case that can be asked for by id, in a stable order."""
    return {case.id: case for case in (*SUITE["gpu"], *SUITE["cpu"], *EXTRA)}


def find_case(case_id: str) -> Case:
    """Return the case with this id.

    Raises:
        ValueError: no such case; the message lists the known ids.
    """
    known = catalogue()
    if case_id not in known:
        msg = f"unknown case {case_id!r}; known cases: {', '.join(known)}"
        raise ValueError(msg)
    return known[case_id]
