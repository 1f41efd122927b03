"""The fingerprint: where a run was made. Imports neither torch nor rfdetr."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class GpuState(BaseModel):
    """What NVML says of one GPU at one moment. Units in the names; None where NVML does not say."""

    model_config = ConfigDict(extra="forbid")

    index: int
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: list[str] = []
    other_processes: list[int] = []
    utilization_percent: int | None = None


class Environment(BaseModel):
    """Fingerprint of one run. ``device`` names the baseline folder: ``cpu`` or e.g. ``nvidia-h200``."""

    model_config = ConfigDict(extra="forbid")

    device: str
    gpu_name: str | None = None
    gpu_count: int = 0
    gpu_memory_bytes: int | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    torch: str
    torch_minor: str
    torchvision: str | None = None
    triton: str | None = None
    python: str
    rfdetr: str
    rfdetr_source: str
    rfdetr_commit: str | None = None
    rfdetr_dirty: bool | None = None
    transformers: str | None = None
    pytorch_lightning: str | None = None
    numpy: str | None = None
    cpu_model: str
    cpu_count: int
    system: str
    suite: str
    suite_commit: str | None = None
    suite_dirty: bool | None = None
    threads: dict[str, str] = {}
