"""What NVML says of the GPUs that this process may use. Imports neither torch nor rfdetr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


def device_slug(gpu_name: str) -> str:
    """Return the baseline folder of a GPU: ``nvidia-h200`` for ``NVIDIA H200``."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-")


def gpu_states() -> list[GpuState]:
    """Return what NVML says right now of each GPU that this process may use; empty where there is no NVML."""
    with _nvml() as nvml:
        return [_state(nvml, index, handle) for index, handle in enumerate(_visible(nvml))]


def gpu_capability() -> tuple[int, int] | None:
    """Return the compute capability of the first GPU that this process may use; None where NVML has no answer."""
    found = _of_first("nvmlDeviceGetCudaComputeCapability")
    return None if found is None else (int(found[0]), int(found[1]))


def gpu_memory_bytes() -> int | None:
    """Return how much memory the first GPU has that this process may use; None where NVML has no answer."""
    found = _of_first("nvmlDeviceGetMemoryInfo")
    return None if found is None else int(found.total)


def _of_first(question: str) -> Any:
    """Return NVML's answer to one of its functions about the first GPU that this process may use, or None."""
    with _nvml() as nvml:
        handles = _visible(nvml)
        return _ask(getattr(nvml, question), handles[0]) if handles else None


def gpu_fields() -> dict[str, Any]:
    """Return what :class:`perf.environment.Environment` says of GPUs, as its fields.

    Raises:
        RuntimeError: NVML shows no GPU that this process may use.
    """
    with _nvml() as nvml:
        handles = _visible(nvml)
        if not handles:
            msg = "NVML shows no GPU that this process may use; a case of the gpu lane needs one"
            raise RuntimeError(msg)
        first = handles[0]
        name = _text(nvml.nvmlDeviceGetName(first))
        memory = _ask(nvml.nvmlDeviceGetMemoryInfo, first)
        return {
            "device": device_slug(name),
            "gpu_name": name,
            "gpu_count": len(handles),
            "gpu_memory_bytes": None if memory is None else memory.total,
            "mig": _mig(nvml, first),
            "power_limit_w": _watts(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, first)),
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
        }


@contextmanager
def _nvml() -> Iterator[Any]:
    """Yield pynvml, initialised, or None where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(question: Callable[..., Any], *arguments: object) -> Any:
    """Return NVML's answer, or None where this GPU or driver has none."""
    import pynvml

    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _mig(nvml: Any, handle: Any) -> bool | None:
    if _ask(nvml.nvmlDeviceIsMigDeviceHandle, handle):
        return True
    mode = _ask(nvml.nvmlDeviceGetMigMode, handle)
    return None if mode is None else bool(mode[0])


def _visible(nvml: Any) -> list[Any]:
    """Return the handles of the GPUs that this process may use, in its own order."""
    if nvml is None:
        return []
    identifiers = _cuda_uuids()
    if identifiers is None:
        identifiers = _listed_devices()
    if identifiers is None:
        identifiers = [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    handles = (_handle(nvml, identifier) for identifier in identifiers)
    return [handle for handle in handles if handle is not None]


def _cuda_uuids() -> list[str] | None:
    """Return the UUIDs of CUDA's devices, or None where torch is not loaded, sees no GPU or is too old to say.

    CUDA may number GPUs differently from NVML (fastest first against PCI order); a UUID is the same in both.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    uuids = [str(item.uuid) for item in properties if hasattr(item, "uuid")]
    return uuids if len(uuids) == len(properties) else None


def _listed_devices() -> list[str] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES, or None where it is not set."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    entries = [entry.strip() for entry in listed.split(",")]
    # CUDA stops at the first entry that it cannot use, and -1 is the usual one.
    known = [entry != "" and entry != "-1" for entry in entries]
    return entries[: known.index(False)] if False in known else entries


def _handle(nvml: Any, identifier: str) -> Any:
    if identifier.isdigit():
        return _ask(nvml.nvmlDeviceGetHandleByIndex, int(identifier))
    if identifier.startswith(("GPU-", "MIG-")):
        return _ask(nvml.nvmlDeviceGetHandleByUUID, identifier)
    whole = _ask(nvml.nvmlDeviceGetHandleByUUID, f"GPU-{identifier}")
    return whole if whole is not None else _ask(nvml.nvmlDeviceGetHandleByUUID, f"MIG-{identifier}")


def _state(nvml: Any, index: int, handle: Any) -> GpuState:
    usage = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    return GpuState(
        index=index,
        sm_clock_mhz=_ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=_ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        temperature_c=_ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=_watts(_ask(nvml.nvmlDeviceGetPowerUsage, handle)),
        throttle_reasons=throttle_reasons(_ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0),
        other_processes=_others(_ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []),
        utilization_percent=None if usage is None else usage.gpu,
    )


# Bits of NVML's clock event reasons. Bit 0, the GPU is idle, is left out: it slows nobody down.
_THROTTLE_BITS = {
    1: "applications-clocks-setting",
    2: "sw-power-cap",
    3: "hw-slowdown",
    4: "sync-boost",
    5: "sw-thermal-slowdown",
    6: "hw-thermal-slowdown",
    7: "hw-power-brake-slowdown",
    8: "display-clock-setting",
}


def throttle_reasons(mask: int) -> list[str]:
    """Return the names of the reasons for lower clocks that are set in NVML's bit ``mask``."""
    return [_THROTTLE_BITS.get(bit, f"bit-{bit}") for bit in range(1, mask.bit_length()) if mask >> bit & 1]


def _others(processes: list[Any]) -> list[int]:
    """Return the process ids on a GPU that are not this process.

    In a container NVML gives the host's ids, in which this process cannot find itself. Once it holds a CUDA
    context, one of them must be its own, so one is dropped: how many others there are stays right.
    """
    pids = sorted(process.pid for process in processes)
    if os.getpid() in pids:
        return [pid for pid in pids if pid != os.getpid()]
    torch = sys.modules.get("torch")
    return pids[1:] if torch is not None and torch.cuda.is_initialized() else pids
