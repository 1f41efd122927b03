from __future__ import annotations

import logging

import pytest

from perf.probes.throughput import THROUGHPUT_PLANS, ThroughputPlan, engine_layers, graph_launches, listening
from perf.probes.trace import Event

PLAN = ThroughputPlan(warmup=1, timed=10, most=30, seconds=5, profiled=2)


@pytest.mark.parametrize(("step", "rounds"), [(0.001, 30), (0.25, 20), (5.0, 10), (0.0, 30)])
def test_as_many_steps_are_timed_as_fit(step: float, rounds: int) -> None:
    assert PLAN.rounds(step) == rounds


def test_graphs_that_are_replayed_are_counted() -> None:
    names = ("cudaGraphLaunch", "cudaLaunchKernel", "cudaGraphLaunch_v10000")
    step = [Event("cuda_runtime", name, 0, 1, "forward") for name in names]

    assert graph_launches([step, step]).value == 2
    assert graph_launches([[Event("kernel", "cudaGraphLaunch", 0, 1, "forward")]]).value == 0


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
