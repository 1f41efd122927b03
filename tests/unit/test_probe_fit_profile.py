from __future__ import annotations

from typing import Any

import pytest

from perf.probes.fit_profile import (
    END_MARK,
    INSIDE,
    OUTSIDE,
    REST,
    UNNAMED,
    Window,
    device_signals,
    gemm_signals,
    interpolation,
    mark,
    windows,
)
from perf.probes.phases import BACKWARD, FORWARD
from perf.record import Signal

Raw = dict[str, Any]


def said(name: str, at: float) -> Raw:
    return {"cat": "user_annotation", "name": name, "ts": at, "dur": 0.5}


def kernel(launched: float, start: float, dur: float, name: str = "k", op: int | None = None, **more: Any) -> list[Raw]:
    """A kernel and its launch."""
    number = hash((launched, start, name))
    args = {"correlation": number, **({} if op is None else {"External id": op})}
    return [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launched, "dur": 1, "args": args, "tid": 1},
        {"cat": "kernel", "name": name, "ts": start, "dur": dur, "args": args, **more},
    ]


def an_op(name: str, number: int, at: float, dims: list[Any] | None = None, dur: float = 5, tid: int = 1) -> Raw:
    args = {"External id": number, **({} if dims is None else {"Input Dims": dims})}
    return {"cat": "cpu_op", "name": name, "ts": at, "dur": dur, "args": args, "tid": tid}


# Two updates in us: forward 0 to 40 and 100 to 160, backward for the rest.
MARKS = [
    said(mark(0, FORWARD), 0),
    said(mark(0, BACKWARD), 40),
    said(mark(1, FORWARD), 100),
    said(mark(1, BACKWARD), 160),
    said(END_MARK, 300),
]


def seen(*events: list[Raw], whole: tuple[int, ...] = (0, 1)) -> list[Window]:
    return windows([*MARKS, *(event for each in events for event in each)], whole)


def by_name(signals: list[Signal]) -> dict[str, Signal]:
    return {signal.name: signal for signal in signals}


def parts(signal: Signal) -> dict[str, float]:
    return {part.name: part.value for part in signal.parts}


def test_updates_are_what_lies_between_the_marks() -> None:
    found = seen()

    assert [(one.start, one.end, one.duration) for one in found] == [(0, 100, 100), (100, 300, 200)]
    assert found[0].host == [((0, 40), FORWARD), ((40, 100), BACKWARD)]


def test_an_update_that_is_not_whole_is_left_out() -> None:
    [one] = seen(whole=(1,))

    assert one.start == 100


def test_busy_is_counted_once_where_streams_overlap() -> None:
    """From 10 to 40 and from 120 to 160; sums of durations would be 50 and 60."""
    found = by_name(
        device_signals(
            seen(
                kernel(5, 10, 20),
                kernel(6, 15, 20),
                kernel(45, 30, 10),
                kernel(110, 120, 40),
                kernel(170, 130, 20),
            )
        )
    )

    busy, idle = found["fit_gpu_busy"], found["fit_gpu_idle"]
    assert (busy.kind, busy.unit) == ("device", "ms")
    assert busy.samples == pytest.approx([0.03, 0.04])
    assert parts(busy) == pytest.approx({FORWARD: (0.025 + 0.04) / 2, BACKWARD: 0.005 / 2})
    assert idle.kind == "wall"
    assert idle.samples == pytest.approx([0.07, 0.16])
    assert parts(found["kernel_time"]) == pytest.approx({"k": 0.055})


def test_busy_and_idle_make_up_the_step_and_their_parts_make_up_each() -> None:
    found = by_name(device_signals(seen(kernel(5, 10, 20), kernel(50, 90, 30), kernel(170, 290, 40))))

    for name in ("fit_gpu_busy", "fit_gpu_idle"):
        assert sum(part.value for part in found[name].parts) == pytest.approx(found[name].value)
    whole = found["fit_gpu_busy"].value + found["fit_gpu_idle"].value
    assert whole == pytest.approx(found["profiled_step"].value) == pytest.approx(0.15)


def test_a_gap_is_of_the_phase_that_the_host_is_in_meanwhile() -> None:
    """Busy until 30 with what the forward launched: idle 10 in the forward, 60 in the backward."""
    found = by_name(device_signals(seen(kernel(1, 0, 30), whole=(0,))))

    assert parts(found["fit_gpu_idle"]) == pytest.approx({FORWARD: 0.01, BACKWARD: 0.06})


def test_copies_and_fills_are_busy_but_no_kernels() -> None:
    copy = kernel(50, 60, 10)
    copy[1]["cat"] = "gpu_memcpy"
    found = by_name(device_signals(seen(kernel(1, 0, 10), copy, whole=(0,))))

    assert found["fit_gpu_busy"].value == pytest.approx(0.02)
    assert parts(found["fit_kernels"]) == {FORWARD: 1}


def test_kernels_are_those_of_the_update_that_launched_them_and_of_the_median_update() -> None:
    found = by_name(
        device_signals(seen(kernel(1, 110, 4), kernel(2, 120, 9), kernel(50, 130, 4.9), kernel(150, 200, 5)))
    )

    assert (found["fit_kernels"].kind, found["fit_kernels"].value, found["fit_kernels"].samples) == (
        "count-volume",
        1,
        [3, 1],
    )
    assert parts(found["fit_kernels"]) == {FORWARD: 1}
    assert (found["small_kernels"].kind, found["small_kernels"].samples) == ("info", [2, 0])


def test_only_the_top_kernels_are_named_and_the_rest_is_one() -> None:
    many = [kernel(1, 10 * index, index, name=f"kernel{chr(97 + index)}") for index in range(1, 25)]
    time = by_name(device_signals(seen(*many, whole=(0,))))["kernel_time"]

    assert len(time.parts) == 21
    assert (time.parts[0].name, time.parts[-1].name) == ("kernely", REST)
    assert time.parts[-1].value == pytest.approx((1 + 2 + 3 + 4) / 1e3)
    assert sum(part.value for part in time.parts) == pytest.approx(time.value)


def test_without_a_kernel_there_are_no_device_signals() -> None:
    assert device_signals(seen()) == []
    assert device_signals([]) == []


def test_the_rate_of_matrix_products_is_their_operations_over_their_own_time() -> None:
    """mm of (64, 32) x (32, 16): 65536 operations; bmm of 4 of them: 262144. In 2 + 8 us."""
    ops = [
        an_op("aten::mm", 1, 5, [[64, 32], [32, 16]]),
        an_op("aten::baddbmm", 2, 45, [[64, 16], [4, 64, 32], [4, 32, 16], [], []]),
        an_op("aten::add", 3, 60, [[64, 32], [64, 32]]),
    ]
    kernels = [
        kernel(6, 10, 1.5, "nvjet_a", op=1),
        kernel(7, 12, 0.5, "splitK_reduce", op=1),
        kernel(46, 50, 8, "cutlass_b", op=2),
        kernel(61, 70, 4, "add", op=3),
        kernel(62, 80, 3, "sm90_xmma_gemm_bf16"),
    ]
    found = by_name(gemm_signals(seen(ops, *kernels, whole=(0,))))

    assert parts(found["gemm_time"]) == pytest.approx({"aten::mm": 0.002, "aten::baddbmm": 0.008, UNNAMED: 0.003})
    assert found["gemm_rate"].value == pytest.approx((65536 + 262144) / 10 / 1e6)
    assert (found["gemm_rate"].unit, found["gemm_rate"].direction) == ("TFLOP/s", "higher")


def test_a_product_without_shapes_has_a_time_and_no_rate() -> None:
    found = by_name(gemm_signals(seen([an_op("aten::mm", 1, 5)], kernel(6, 10, 2, op=1), whole=(0,))))

    assert list(found) == ["gemm_time"]
    assert gemm_signals(seen(kernel(1, 2, 3, "add"))) == []


def region(at: float, dur: float, tid: int = 1) -> Raw:
    return {"cat": "cpu_op", "name": "Torch-Compiled Region: 0/0", "ts": at, "dur": dur, "tid": tid}


def test_interpolation_on_the_cpu_is_the_time_of_its_outermost_ops_inside_or_outside_a_graph() -> None:
    name = "aten::_upsample_bicubic2d_aa"
    ops = [
        an_op(name, 1, 10, dur=8),
        an_op(name, 2, 11, dur=6),
        an_op(f"{name}_backward", 3, 50, dur=4, tid=2),
        an_op("aten::relu", 4, 70),
        region(5, 20),
        region(40, 50),
    ]
    signal = interpolation(seen(ops, whole=(0,)))

    assert (signal.kind, signal.unit) == ("info", "ms")
    assert parts(signal) == pytest.approx({INSIDE: 0.008, OUTSIDE: 0.004})


def test_interpolation_on_a_gpu_is_the_time_of_its_kernels() -> None:
    ops = [an_op("aten::upsample_bicubic2d", 1, 10, dur=8)]
    kernels = [
        kernel(11, 20, 3, "upsample_gen2d", op=1),
        kernel(50, 60, 2, "triton_poi_fused__upsample_bicubic2d_aa_3"),
        kernel(51, 70, 9, "relu"),
    ]

    assert parts(interpolation(seen(ops, *kernels, whole=(0,)))) == pytest.approx({OUTSIDE: 0.003, INSIDE: 0.002})


def test_no_interpolation_takes_no_time() -> None:
    assert (interpolation(seen()).value, interpolation(seen()).parts) == (0, [])


def numbered(number: int, *events: Raw) -> list[Raw]:
    """The same events with another correlation, as CUPTI counts: upwards."""
    return [{**event, "args": {**event["args"], "correlation": number}} for event in events]


def test_what_a_gpu_that_is_behind_still_does_of_before_the_trace_is_busy_but_no_kernel_of_an_update() -> None:
    """Its launch is not in the trace, and the host is in the forward when it runs."""
    [_, late] = numbered(6, *kernel(-50, 2, 20, "of_before"))
    [window] = seen([late], numbered(7, *kernel(5, 22, 10)), numbered(8, *kernel(45, 50, 4)), whole=(0,))
    found = by_name(device_signals([window]))

    assert [one.name for one in window.launched] == ["k", "k"]
    assert parts(found["fit_gpu_busy"]) == pytest.approx({"other": 0.02, FORWARD: 0.01, BACKWARD: 0.004})
    assert parts(found["fit_kernels"]) == {FORWARD: 1, BACKWARD: 1}


def test_a_kernel_that_no_launch_in_the_trace_names_is_of_the_phase_in_which_it_runs() -> None:
    """Launched by a call that the profiler does not follow; it has a later number, or none."""
    [_, unknown], [_, without] = numbered(9, *kernel(0, 50, 4)), kernel(0, 60, 4)
    del without["args"]["correlation"]
    [window] = seen(numbered(7, *kernel(5, 10, 10)), [unknown, without], whole=(0,))

    assert [one.phase for one in window.launched] == [FORWARD, BACKWARD, BACKWARD]


def test_all_kernels_of_a_cuda_graph_are_of_the_phase_that_launched_it_whatever_stream_they_are_on() -> None:
    """One launch with one number for all; two streams side by side, and the host is in the backward when they end."""
    launch = {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 5, "dur": 2, "args": {"correlation": 7}}
    args = {"correlation": 7, "graph id": 3}
    spans = [("nvjet_a", 10, 20, 7), ("add", 20, 30, 8), ("add", 60, 10, 7)]
    kernels = [
        {"cat": "kernel", "name": name, "ts": at, "dur": dur, "args": {**args, "stream": stream}}
        for name, at, dur, stream in spans
    ]
    [window] = seen([launch, *kernels], whole=(0,))
    found = by_name([*device_signals([window]), *gemm_signals([window])])

    assert parts(found["fit_kernels"]) == {FORWARD: 3}
    assert parts(found["fit_gpu_busy"]) == pytest.approx({FORWARD: 0.05})
    assert found["kernel_time"].value == pytest.approx(0.06)
    assert parts(found["gemm_time"]) == pytest.approx({UNNAMED: 0.02})
    assert "gemm_rate" not in found


@pytest.mark.parametrize(
    "name",
    [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>(Params)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x128x128_4x1x1_kernel0_0",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
    ],
)
def test_attention_is_no_matrix_product_though_its_kernels_are_named_after_the_same_library(name: str) -> None:
    op = an_op("aten::_scaled_dot_product_flash_attention", 1, 5)

    assert gemm_signals(seen([op], kernel(6, 10, 2, name, op=1))) == []
