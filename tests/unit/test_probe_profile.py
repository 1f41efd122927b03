from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tiny import first_line, in_fit, squared_error

from perf.probes.parts import Tally
from perf.probes.phases import BACKWARD, FORWARD
from perf.probes.profile import gpu_signals, kernel_name, sync_lines
from perf.probes.trace import Event
from perf.record import Part, Signal
from perf.rfdetr_api import Stepper

FORWARD_SYNC = "cudaStreamSynchronize"


def event(category: str, name: str, phase: str = FORWARD, duration: float = 0.0) -> Event:
    return Event(category, name, start=0.0, duration=duration, phase=phase)


def kernel(name: str, phase: str = FORWARD, duration: float = 1000.0) -> Event:
    return event("kernel", name, phase, duration)


def signals_of(*steps: list[Event], lines: Tally | None = None) -> dict[str, Signal]:
    return {signal.name: signal for signal in gpu_signals(list(steps), lines or Tally())}


def test_kernels_are_counted_by_phase_and_name() -> None:
    step = [kernel("gemm"), kernel("gemm"), kernel("gemm", BACKWARD), event("gpu_memset", "Memset")]
    kernels = signals_of(step)["kernels"]

    assert (kernels.kind, kernels.unit, kernels.value) == ("count-volume", "kernels", 3)
    assert kernels.parts == [Part(name="forward gemm", value=2), Part(name="backward gemm", value=1)]


def test_busy_time_is_the_sum_of_kernels_in_ms_by_phase() -> None:
    step = [kernel("a", FORWARD, 250), kernel("b", BACKWARD, 1000), kernel("a", FORWARD, 250), event("gpu_memcpy", "c")]
    busy = signals_of(step)["gpu_busy"]

    assert (busy.kind, busy.unit, busy.value) == ("device", "ms", 1.5)
    assert busy.parts == [Part(name=BACKWARD, value=1.0), Part(name=FORWARD, value=0.5)]


def test_nccl_waits_and_so_is_not_busy() -> None:
    found = signals_of([kernel("a"), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", BACKWARD, 9000)])
    assert (found["kernels"].value, found["gpu_busy"].value) == (2, 1.0)
    assert [part.name for part in found["gpu_busy"].parts] == [FORWARD]


def test_beside_ranks_that_wait_the_least_disturbed_step_counts() -> None:
    sent = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", BACKWARD, 9000)
    steps = [[kernel("a", FORWARD, took), kernel("b", BACKWARD, 500), sent] for took in (1200, 1000, 1300)]
    busy = signals_of(*steps)["gpu_busy"]

    assert (busy.value, busy.samples) == (1.5, [1.7, 1.5, 1.8])
    assert busy.parts == [Part(name=FORWARD, value=1.0), Part(name=BACKWARD, value=0.5)]
    assert signals_of(steps[0][:2], *steps[1:])["gpu_busy"].value == 1.5


def test_values_are_the_median_of_the_steps_and_parts_those_of_the_first() -> None:
    found = signals_of([kernel("a")], [kernel("a")] * 5, [kernel("a")] * 2)

    assert found["kernels"].value == 2
    assert found["kernels"].samples == [1, 5, 2]
    assert found["kernels"].parts == [Part(name="forward a", value=1)]
    assert found["gpu_busy"].value == 2.0
    assert found["gpu_busy"].samples == [1.0, 5.0, 2.0]


def test_copies_are_those_between_host_and_device() -> None:
    names = ["Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)"]
    copies = signals_of([event("gpu_memcpy", name) for name in names])["gpu_copies"]

    assert (copies.kind, copies.value) == ("count-strict", 2)
    assert [part.name for part in copies.parts] == [f"forward {name}" for name in names[:2]]


def test_host_syncs_are_the_runtimes_waits_named_by_line() -> None:
    lines = Tally()
    lines.add("forward rfdetr/m.py:f", "rfdetr/m.py:7")
    waits = [
        event("cuda_runtime", FORWARD_SYNC),
        event("cuda_runtime", "cudaDeviceSynchronize"),
        event("cuda_runtime", "cudaEventSynchronize"),
        event("cuda_runtime", "cudaStreamIsCapturing"),
        event("cpu_op", FORWARD_SYNC),
    ]
    syncs = signals_of(waits, lines=lines)["host_syncs"]

    assert (syncs.kind, syncs.value) == ("count-strict", 3)
    assert syncs.parts == [
        Part(name="forward rfdetr/m.py:f", value=1, where=["rfdetr/m.py:7"]),
        Part(name="not seen by torch's sync debug mode", value=2),
    ]


def test_host_syncs_all_known_by_line_have_no_rest() -> None:
    lines = Tally()
    lines.add("forward f", "m.py:7")

    assert len(signals_of([event("cuda_runtime", FORWARD_SYNC)], lines=lines)["host_syncs"].parts) == 1


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sync debug modes that were set; there is no GPU here whose calls could warn by themselves."""
    found: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", found.append)
    return found


def test_sync_warnings_are_named_by_phase_function_and_line(modes: list[str]) -> None:
    def criterion(outputs: Any, targets: Any) -> Any:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
        return squared_error(outputs, targets)

    def body(stepper: Stepper) -> Tally:
        return sync_lines(stepper)

    [part] = in_fit(body, criterion).parts()
    assert part.name.startswith("criterion tests/unit/test_probe_profile.py:")
    assert part.name.endswith("<locals>.criterion")
    assert (part.value, part.where) == (1, [first_line(criterion, 1)])
    assert modes == ["warn", "default"]


def test_the_sync_debug_mode_is_restored_after_a_step_that_raised(modes: list[str]) -> None:
    errors = [ValueError("no loss")]

    def failing_once(outputs: Any, targets: Any) -> Any:
        if errors:
            raise errors.pop()
        return squared_error(outputs, targets)

    def body(stepper: Stepper) -> None:
        showing = warnings.showwarning
        with pytest.raises(ValueError, match="no loss"):
            sync_lines(stepper)
        assert warnings.showwarning is showing

    in_fit(body, failing_once)
    assert modes == ["warn", "default"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("triton_poi_fused_add_3", "triton_poi_fused_add"),
        ("triton_red_fused__to_copy_log2_17", "triton_red_fused__to_copy_log2"),
        ("elementwise_kernel_3", "elementwise_kernel_3"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, std::array<char*, 3ul> >",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::{lambda(float)#1}>"
            "(long, float)",
            "multi_tensor_apply_kernel<{lambda(float)#1}>",
        ),
        ("unbalanced)", "unbalanced)"),
    ],
)
def test_kernels_are_named_without_what_tells_nothing(name: str, short: str) -> None:
    assert kernel_name(name) == short
