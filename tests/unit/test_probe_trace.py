from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from tiny import in_fit, squared_error

from perf.probes.phases import BACKWARD, CRITERION, FORWARD, OPTIMIZER, OTHER
from perf.probes.trace import Event, capture, parse, without_ops
from perf.rfdetr_api import Stepper


def mark(phase: str, at: float) -> dict[str, Any]:
    return {"cat": "user_annotation", "name": f"perf-phase:{phase}", "ts": at, "dur": 1}


def raw(category: str, name: str, at: float, correlation: int | None = None, dur: float = 1) -> dict[str, Any]:
    args = {} if correlation is None else {"args": {"correlation": correlation}}
    return {"cat": category, "name": name, "ts": at, "dur": dur, **args}


STEP = [mark("end", 100), mark(BACKWARD, 50), mark(FORWARD, 10)]


def phases_of(*events: dict[str, Any]) -> dict[str, str]:
    return {event.name: event.phase for event in parse([*events, *STEP])}


def test_a_kernel_belongs_to_the_phase_that_launched_it() -> None:
    launch, kernel = raw("cuda_runtime", "cudaLaunchKernel", 20, 7), raw("kernel", "gemm", 70, 7, dur=3)

    assert parse([kernel, launch, *STEP]) == [
        Event("kernel", "gemm", start=70, duration=3, phase=FORWARD),
        Event("cuda_runtime", "cudaLaunchKernel", start=20, duration=1, phase=FORWARD),
    ]


def test_a_kernel_that_ends_after_the_step_is_still_the_steps() -> None:
    found = phases_of(raw("cuda_driver", "cuLaunchKernelEx", 60, 7), raw("kernel", "triton_poi", 170, 7))

    assert found == {"cuLaunchKernelEx": BACKWARD, "triton_poi": BACKWARD}


def test_one_graph_launch_owns_all_its_kernels() -> None:
    found = phases_of(
        raw("cuda_runtime", "cudaGraphLaunch", 20, 7), raw("kernel", "a", 60, 7), raw("kernel", "b", 70, 7)
    )

    assert found == {"cudaGraphLaunch": FORWARD, "a": FORWARD, "b": FORWARD}


def test_copies_and_memsets_follow_their_launch_too() -> None:
    found = phases_of(
        raw("cuda_runtime", "cudaMemcpyAsync", 20, 1),
        raw("gpu_memcpy", "Memcpy DtoH", 60, 1),
        raw("cuda_runtime", "cudaMemsetAsync", 21, 2),
        raw("gpu_memset", "Memset", 61, 2),
    )

    assert found["Memcpy DtoH"] == found["Memset"] == FORWARD


def test_a_host_op_keeps_its_own_time_whatever_its_correlation() -> None:
    found = phases_of(raw("cuda_runtime", "cudaLaunchKernel", 20, 7), raw("cpu_op", "aten::mm", 60, 7))

    assert found["aten::mm"] == BACKWARD


def test_a_kernel_without_a_launch_goes_by_its_own_time() -> None:
    assert phases_of(raw("kernel", "lost", 60, 9), raw("kernel", "bare", 20)) == {"lost": BACKWARD, "bare": FORWARD}


def test_what_lies_outside_the_step_is_left_out() -> None:
    outside = [
        raw("cpu_op", "before", 9),
        raw("cpu_op", "after", 100),
        raw("cuda_runtime", "cudaDeviceSynchronize", 101),
        raw("cuda_runtime", "cudaLaunchKernel", 5, 7),
        raw("kernel", "launched before", 20, 7),
    ]

    assert phases_of(*outside, raw("cpu_op", "first", 10)) == {"first": FORWARD}


def test_an_empty_trace_has_no_events() -> None:
    assert parse([]) == []
    assert parse(STEP) == []


def ops(events: list[Event]) -> Counter[tuple[str, str]]:
    return Counter((event.phase, event.name) for event in events if event.category == "cpu_op")


def test_capturing_the_same_step_twice_gives_the_same_ops() -> None:
    def body(stepper: Stepper) -> list[Counter[tuple[str, str]]]:
        capture(stepper)
        return [ops(capture(stepper)) for _ in range(2)]

    first, second = in_fit(body)
    assert first == second
    assert first[FORWARD, "aten::addmm"] == 1
    assert first[CRITERION, "aten::square"] == 1
    assert first[BACKWARD, "aten::mm"] == 1
    assert first[OPTIMIZER, "aten::add_"] == 2  # weight and bias


def test_a_capture_leaves_out_preparing_the_batch() -> None:
    def batch_start() -> None:
        torch.ones(2, 2).trace()

    def criterion(outputs: Any, targets: Any) -> Any:
        return squared_error(outputs, targets) + outputs.mean().erf()

    found = in_fit(lambda stepper: ops(capture(stepper)), criterion, batch_start)

    assert found[CRITERION, "aten::erf"] == 1
    assert not any(name == "aten::trace" for _, name in found)


def test_without_the_hosts_ops_the_gpu_and_the_runtime_stay() -> None:
    events = [Event(category, "x", 0.0, 1.0, OTHER) for category in ("cpu_op", "kernel", "cuda_runtime")]

    assert [event.category for event in without_ops(events)] == ["kernel", "cuda_runtime"]
