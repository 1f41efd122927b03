"""Work per step on the GPU: kernels, copies, busy time and host syncs, by phase and name."""

from __future__ import annotations

import re
import sys
import warnings
from statistics import median
from typing import Any

from perf.probes.parts import Tally
from perf.probes.phases import CurrentPhase, phase_hooks
from perf.probes.source import function_of, line_of, user_frames
from perf.probes.trace import KERNEL, Event
from perf.record import Part, Signal
from perf.rfdetr_api import Stepper

# The runtime calls that make the host wait for the device.
SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize")

NO_LINE = "(no line of rfdetr's or the user's)"


def gpu_signals(steps: list[list[Event]], sync_lines: Tally) -> list[Signal]:
    """Return the GPU signals of some profiled steps (one list of events each): counts, and busy time in ms.

    Each value is the median over the steps; parts are those of the first step. Of busy time beside other ranks it is
    the least, and the parts those of that step.
    """
    return [
        _count("kernels", "count-volume", "kernels", steps, _is_kernel),
        _count("gpu_copies", "count-strict", "copies", steps, _is_copy),
        _host_syncs(steps, sync_lines),
        _busy(steps),
    ]


# What CUDA C++ kernel names carry without telling anything.
_NOISE = re.compile(r"^void |at::native::|c10::|\(anonymous namespace\)::")
# Inductor numbers the kernels of a graph: with one more, all that follow would have other names.
_NUMBERED = re.compile(r"^(triton_\w+?)_\d+$")


def kernel_name(name: str) -> str:
    """Return a kernel's name without namespaces, Inductor's number, and a parameter list that its template repeats."""
    name = _NUMBERED.sub(r"\1", _NOISE.sub("", name))
    depth = 0
    for index in reversed(range(len(name) if name.endswith(")") else 0)):
        depth += (name[index] == ")") - (name[index] == "(")
        if depth == 0:
            return name[:index]
    return name


def _is_kernel(event: Event) -> bool:
    return event.category == KERNEL


def is_collective_kernel(event: Event) -> bool:
    """Return whether this is a kernel of NCCL, which runs for as long as it waits for other ranks."""
    return _is_kernel(event) and event.name.startswith("nccl")


def _works(event: Event) -> bool:
    return _is_kernel(event) and not is_collective_kernel(event)


def _is_copy(event: Event) -> bool:
    return event.category == "gpu_memcpy" and ("DtoH" in event.name or "HtoD" in event.name)


def _is_sync(event: Event) -> bool:
    return event.category in ("cuda_runtime", "cuda_driver") and event.name.startswith(SYNCS)


def _count(name: str, kind: Any, unit: str, steps: list[list[Event]], wanted: Any) -> Signal:
    samples = [sum(map(wanted, events)) for events in steps]
    tally = Tally()
    for event in filter(wanted, steps[0]):
        tally.add(f"{event.phase} {kernel_name(event.name) if _is_kernel(event) else event.name}")
    return Signal(name=name, kind=kind, unit=unit, value=median(samples), samples=samples, parts=tally.parts())


def _busy(steps: list[list[Event]]) -> Signal:
    """Return the sum of kernel durations per step in ms; kernels on two streams at once count twice.

    Without those of NCCL: busy waiting is no work. But a kernel that runs beside one that waits takes longer, by 4 % of
    the step and in some steps only (two H200, nano-b4-x2), so that with ranks the least disturbed step counts.
    """
    samples = [sum(event.duration for event in events if _works(event)) / 1e3 for events in steps]
    value, shown = median(samples), steps[0]
    if any(is_collective_kernel(event) for events in steps for event in events):
        value = min(samples)
        shown = steps[samples.index(value)]
    phases: dict[str, float] = {}
    for event in filter(_works, shown):
        phases[event.phase] = phases.get(event.phase, 0.0) + event.duration / 1e3
    parts = [Part(name=phase, value=total) for phase, total in sorted(phases.items(), key=lambda item: -item[1])]
    return Signal(name="gpu_busy", kind="device", unit="ms", value=value, samples=samples, parts=parts)


def _host_syncs(steps: list[list[Event]], lines: Tally) -> Signal:
    """Return the host syncs per step, by the function and source line that torch's sync debug mode named."""
    counted = _count("host_syncs", "count-strict", "syncs", steps, _is_sync)
    rest = round(counted.value) - lines.total
    parts = lines.parts()
    if rest > 0:
        parts.append(Part(name="not seen by torch's sync debug mode", value=rest))
    return counted.model_copy(update={"parts": parts})


def sync_lines(stepper: Stepper) -> Tally:
    """Return the synchronizing calls of one step by phase and user function.

    They are what ``torch.cuda.set_sync_debug_mode`` warns of. Autograd's own threads have no user code on
    their stack; such calls keep the phase alone.
    """
    import torch

    tally, phase = Tally(), CurrentPhase()

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" in str(message):
            frame = next(user_frames(sys._getframe(1)), None)
            tally.add(f"{phase.name} {function_of(frame) if frame else NO_LINE}", line_of(frame) if frame else None)

    batch = stepper.prepare()
    stepper.synchronize()
    with phase_hooks(stepper, phase.enter), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            stepper.step(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return tally
