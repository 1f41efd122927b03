"""Peak memory of a steady step."""

from __future__ import annotations

import resource

from perf.record import Signal
from perf.rfdetr_api import Stepper


def peak_memory(stepper: Stepper, steps: int = 3) -> list[Signal]:
    """Return the peak of ``steps`` steps in bytes: allocated and reserved on the GPU, resident set on a CPU.

    The resident set is the process's high-water mark since it began, so it is shown and never gated.
    """
    import torch

    cuda = stepper.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        stepper.step(stepper.prepare())
        stepper.synchronize()
    if not cuda:
        # Linux gives ru_maxrss in KiB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return [Signal(name="peak_rss", kind="info", unit="B", value=peak)]
    return [
        Signal(name="peak_memory", kind="device", unit="B", value=torch.cuda.max_memory_allocated()),
        Signal(name="peak_reserved", kind="device", unit="B", value=torch.cuda.max_memory_reserved()),
    ]
