from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from perf.probes.throughput import THROUGHPUT_PLANS, ThroughputPlan, engine_layers, graph_launches, listening, memory
from perf.probes.trace import Event

if TYPE_CHECKING:
    from perf.rfdetr_api import Stepper

PLAN = ThroughputPlan(warmup=1, timed=10, most=30, seconds=5, profiled=2)


@pytest.mark.parametrize(("step", "rounds"), [(0.001, 30), (0.25, 20), (5.0, 10), (0.0, 30)])
def test_as_many_steps_are_timed_as_fit(step: float, rounds: int) -> None:
    assert PLAN.rounds(step) == rounds


def test_graphs_that_are_replayed_are_counted() -> None:
    names = ("cudaGraphLaunch", "cudaLaunchKernel", "cudaGraphLaunch_v10000")
    step = [Event("cuda_runtime", name, 0, 1, "forward") for name in names]

    assert graph_launches([step, step]).value == 2
    assert graph_launches([[Event("kernel", "cudaGraphLaunch", 0, 1, "forward")]]).value == 0


def test_memory_that_something_else_has_counts_as_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    found = {"mem_get_info": (2.0, 20.0), "memory_reserved": 16.0, "max_memory_reserved": 17.0}
    found |= {"max_memory_allocated": 15.0, "reset_peak_memory_stats": None}
    for name, value in found.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    nothing = SimpleNamespace(
        device=torch.device("cuda"), prepare=lambda: None, step=lambda _: None, synchronize=lambda: None
    )

    told = {signal.name: signal.value for signal in memory(cast("Stepper", nothing))}

    # 17 at the peak, and 2 of what is not free are nobody's that torch knows.
    assert told == {"peak_memory": 15, "peak_reserved": 17, "memory_share": 95}


def test_layers_of_transformer_engine_are_counted() -> None:
    torch = pytest.importorskip("torch")
    linear = type("Linear", (torch.nn.Module,), {"__module__": "transformer_engine.pytorch.module.linear"})

    assert engine_layers(torch.nn.Sequential(linear(), torch.nn.Linear(2, 2), linear())).value == 2
    assert engine_layers(torch.nn.Linear(2, 2)).value == 0


def test_what_rfdetr_logs_of_compile_and_graphs_is_kept_once_and_nothing_after() -> None:
    logger = logging.getLogger("rf-detr")
    logger.setLevel(logging.INFO)

    with listening() as lines:
        for _ in range(2):
            logger.warning("Disabling CUDA graphs because %s; training will run eagerly.", "of this")
        logger.info("Captured CUDA graph 1 for input shape (4, 3). Backend: PyTorch.")
        logger.info("Loading annotations")
    logger.warning("Falling back to compile-only")

    assert lines == [
        "Disabling CUDA graphs because of this; training will run eagerly.",
        "Captured CUDA graph 1 for input shape (4, 3). Backend: PyTorch.",
    ]


def test_both_lanes_have_a_plan() -> None:
    assert set(THROUGHPUT_PLANS) == {"cpu", "gpu"}
    # Fewer steps have no interval of 95 %.
    assert all(plan.timed >= 6 for plan in THROUGHPUT_PLANS.values())
