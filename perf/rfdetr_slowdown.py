"""Make every training step slower by a known amount, to see whether the judge finds it: part of the
:mod:`perf.rfdetr_api` room.

Called from the patch files that :mod:`perf.calibrate` writes, so that the slowed rfdetr is measured as any other.
"""

from __future__ import annotations

import functools
import time
from typing import Any


def slow_down(host_seconds: float, gpu_seconds: float) -> None:
    """Have each training step of rfdetr take so much more of the host's and of the GPU's time.

    The GPU gets one kernel that spins (``torch.cuda._sleep``), and the host waits.
    """
    from rfdetr.training import RFDETRModelModule

    real = RFDETRModelModule.training_step

    @functools.wraps(real)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = real(self, *args, **kwargs)
        if gpu_seconds and self.device.type == "cuda":
            _spin(gpu_seconds)
        time.sleep(host_seconds)  # one call, so that the counts hardly move
        return found

    RFDETRModelModule.training_step = training_step


def _spin(seconds: float) -> None:
    import torch

    torch.cuda._sleep(round(seconds * _cycles_per_second()))


@functools.cache
def _cycles_per_second() -> float:
    """Return how many cycles of ``torch.cuda._sleep`` this GPU spins in a second; measured, since clocks vary.

    An idle GPU takes tenths of a second to raise its clock to what it trains at (345 to 1980 MHz on an H200), so the
    fastest of half a second counts.
    """
    return max(_measured_rate(20_000_000) for _ in range(50))


def _measured_rate(cycles: int) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(cycles / (start.elapsed_time(end) / 1e3))
