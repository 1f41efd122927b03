"""Throughput: what a cell of a sweep takes of the step. Few signals, since a sweep has many cells.

Besides the rate: how busy the GPU is, which share of the memory is taken, and what proves that compile, CUDA graphs and
Transformer Engine are really in use. rfdetr turns each of them off with no more than a line in its log.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from perf.probes import compilation
from perf.probes.memory import peak_memory
from perf.probes.parts import Tally
from perf.probes.profile import gpu_signals
from perf.probes.step_time import step_time, timed_step
from perf.probes.trace import LAUNCHES, Event, capture
from perf.ranked import rate
from perf.record import Signal
from perf.rfdetr_api import Stepper

# How notes of a record begin that say what rfdetr logged.
SAID = "rfdetr: "
GRAPHS, ENGINE = "graph_launches", "te_layers"
_TOLD = re.compile(r"cuda ?graph|compil|backend:|fp16|bf16|bfloat16|fp8|eager", re.IGNORECASE)
_GPU_SIGNALS = ("kernels", "gpu_busy")


@dataclass(frozen=True)
class ThroughputPlan:
    """How many steps a cell takes: ``timed`` at least, and more while they fit in ``seconds``, up to ``most``.

    ``profiled``: those of which GPU busy is the median; a first profile is thrown away.
    """

    warmup: int
    timed: int
    most: int
    seconds: float
    profiled: int

    def rounds(self, step: float) -> int:
        """Return how many steps to time where one takes about ``step`` seconds."""
        return max(self.timed, min(self.most, int(self.seconds / max(step, 1e-9))))


# Of six steps the slowest and the fastest enclose the median with 97 %.
THROUGHPUT_PLANS = {
    "cpu": ThroughputPlan(warmup=1, timed=6, most=10, seconds=4, profiled=0),
    "gpu": ThroughputPlan(warmup=8, timed=6, most=30, seconds=5, profiled=2),
}


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that gets the lines of rfdetr's log that tell of precision, compile or CUDA graphs."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = record.getMessage()
            if _TOLD.search(line) and line not in lines:
                lines.append(line)

    handler, logger = Keep(logging.INFO), logging.getLogger("rf-detr")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def throughput(stepper: Stepper, benchmark: Any, plan: ThroughputPlan) -> Iterator[list[Signal]]:
    """Take the cell's steps after its first, and yield its signals as they come: what is known by then is kept."""
    timed = step_time(stepper, benchmark, plan.rounds(_warm_up(stepper, plan)))
    yield [timed, rate(timed, stepper.built.case.batch_size)]
    yield memory(stepper)
    if plan.profiled:
        yield _profiled(stepper, plan.profiled)
    yield [*compilation.signals(stepper.built.module.model), engine_layers(stepper.built.module.model)]


def _warm_up(stepper: Stepper, plan: ThroughputPlan) -> float:
    """Warm up, and return how long the last step took in s; two steps do where they are long: launches hide then."""
    step, began = 0.0, time.perf_counter()
    for done in range(plan.warmup):
        if done >= 2 and time.perf_counter() - began > plan.seconds:
            break
        batch, started = stepper.prepare(), time.perf_counter()
        timed_step(stepper, batch)
        step = time.perf_counter() - started
    return step


def memory(stepper: Stepper) -> list[Signal]:
    """Return the peak memory in bytes, of a steady step and reserved since the start, and the share that is taken.

    On a GPU the share has what is taken beside it: the context of CUDA, kernels, other processes.
    """
    found = peak_memory(stepper, steps=1)
    beside, there = _memory_there(stepper)
    share = 100 * (found[-1].value + beside) / there
    return [*found, Signal(name="memory_share", kind="info", unit="%", value=share)]


def _memory_there(stepper: Stepper) -> tuple[int, int]:
    """Return the bytes that are taken by something else than torch's tensors, and all that there are."""
    if stepper.device.type == "cuda":
        import torch

        free, there = torch.cuda.mem_get_info()
        return max(0, there - free - torch.cuda.memory_reserved()), there
    import psutil

    return 0, int(psutil.virtual_memory().total)


def _profiled(stepper: Stepper, steps: int) -> list[Signal]:
    capture(stepper)  # thrown away: the first profile of a process loads CUPTI
    captured = [capture(stepper) for _ in range(steps)]
    work = [signal for signal in gpu_signals(captured, Tally()) if signal.name in _GPU_SIGNALS]
    return [signal.model_copy(update={"parts": []}) for signal in work] + [graph_launches(captured)]


def graph_launches(steps: list[list[Event]]) -> Signal:
    """Return the CUDA graphs that a step replays: none where graphs were asked for is a fallback."""
    counts = [sum(e.category in LAUNCHES and e.name.startswith("cudaGraphLaunch") for e in events) for events in steps]
    return Signal(name=GRAPHS, kind="info", unit="launches", value=median(counts), direction="higher")


def engine_layers(model: Any) -> Signal:
    """Return how many layers of ``model`` are Transformer Engine's."""
    count = sum(type(layer).__module__.startswith("transformer_engine") for layer in model.modules())
    return Signal(name=ENGINE, kind="info", unit="layers", value=count, direction="higher")
