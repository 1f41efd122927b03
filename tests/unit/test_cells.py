from __future__ import annotations

import pytest
from factories import a_record, a_signal, proof

from perf.case import Case
from perf.cells import cells_of, interval, is_result, ran_out, requested_bytes
from perf.levers import case_of
from perf.record import Record, Signal

EAGER = case_of("nano", "gpu", "bf16", "eager", 8)
COMPILED = case_of("nano", "gpu", "bf16", "compile", 8)
HEAD = "Traceback (most recent call last):\n  File 'x.py', line 1, in f\n"
CUDA = HEAD + (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. "
    "GPU 0 has a total capacity of 139.81 GiB of which 512.00 MiB is free.\n"
)
CPU = HEAD + (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 6442450944 bytes. Error code 12 (Cannot allocate memory)\n"
)


def rate(value: float, samples: list[float] | None = None) -> Signal:
    return a_signal("images_per_second", value, "wall", "images/s", direction="higher", samples=samples or [value])


def a_cell(case: Case = EAGER, *more: Signal, notes: tuple[str, ...] = (), run: int = 0) -> Record:
    signals = [rate(100.0), a_signal("step_time", 80, "wall", "ms"), *more]
    return a_record(signals, case, run, notes=list(notes), precision="bf16-mixed")


def failed(error: str, case: Case = EAGER, signals: tuple[Signal, ...] = ()) -> Record:
    return a_record(signals, case, status="failed", error=error)


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (CUDA, 1.5 * 2**30),
        (CPU, 6442450944),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", 20 * 2**20),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None),
        # From cuDNN 9 on.
        ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", None),
        (
            'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "c10/cuda/CUDACachingAllocator.cpp":995',
            None,
        ),
        ("RuntimeError: CUDA error: out of memory", None),
        ("MemoryError", None),
    ],
)
def test_memory_that_runs_out_is_seen_with_the_size_that_was_asked_for(error: str, size: float | None) -> None:
    assert ran_out(error)
    assert requested_bytes(error) == size


def test_an_out_of_memory_cell_keeps_the_size_though_the_error_was_raised_from_another() -> None:
    chained = (
        f"{CUDA}\nThe above exception was the direct cause\n\nTraceback (most recent call last):\nRuntimeError: capture"
    )

    [cell] = cells_of([failed(chained)])

    assert (cell.outcome, cell.asked, cell.measured) == ("out of memory", 1.5 * 2**30, False)


@pytest.mark.parametrize("error", ["ValueError: no such thing", "AssertionError: memory format"])
def test_what_is_no_lack_of_memory_raised(error: str) -> None:
    [cell] = cells_of([failed(f"Traceback (most recent call last):\n{error}")])

    assert (cell.outcome, cell.detail) == ("raised", error)


def test_a_cell_that_took_too_long_is_a_result_and_an_interrupted_one_is_none() -> None:
    interrupt = "Traceback (most recent call last):\nKeyboardInterrupt\n"

    assert not is_result(failed(interrupt))
    assert not is_result(a_record([], EAGER, status="running"))
    assert cells_of([failed(interrupt)]) == []
    [cell] = cells_of([failed(f"{interrupt}no end after 9 s (--run-timeout); stopped")])
    assert (cell.outcome, cell.detail) == ("raised", "no end after 9 s (--run-timeout); stopped")


def test_a_run_that_shared_the_machine_is_no_cell() -> None:
    assert cells_of([a_cell().model_copy(update={"untimed": True})]) == []


def test_a_measured_cell_tells_shares() -> None:
    more = (a_signal("gpu_busy", 20, "device", "ms"), a_signal("memory_share", 12.5, "info", "%"))

    [cell] = cells_of([a_cell(EAGER, *more)])

    assert (cell.outcome, cell.rate, cell.busy, cell.memory) == ("measured", 100, 0.25, 0.125)


GRAPHS = case_of("nano", "gpu", "bf16", "graphs", 8)
FP8 = case_of("nano", "gpu", "fp8", "eager", 8)
SAID = "rfdetr: Disabling CUDA graphs because segmentation training is not supported; training will run eagerly."


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (a_cell(COMPILED, *proof(frames=0, model_frames=0)), "compile is on and the model ran eager"),
        (
            a_cell(GRAPHS, a_signal("graph_launches", 0, "info"), notes=(SAID,)),
            f"CUDA graphs were asked for and none was replayed; {SAID}",
        ),
        (
            a_record([rate(1), a_signal("te_layers", 0, "info")], FP8, precision="transformer-engine"),
            "fp8 was asked for and no layer is Transformer Engine's",
        ),
        (
            a_record(
                [rate(1), a_signal("te_layers", 60, "info"), a_signal("graph_launches", 1, "info")],
                case_of("nano", "gpu", "fp8", "graphs", 8),
                notes=["rfdetr: Captured CUDA graph 1 for input shape (8, 3); later replay it. Backend: PyTorch."],
            ),
            "fp8 was asked for, and CUDA graphs were captured without Transformer Engine",
        ),
        (
            a_record([rate(1)], EAGER, precision="16-mixed"),
            "bf16 was asked for, and 16-mixed is in use",
        ),
        # What lacks the proof is no rate of its setting either.
        (a_cell(GRAPHS), "CUDA graphs were asked for and none was replayed"),
        (a_record([rate(1)], EAGER), "bf16 was asked for, and nobody knows which is in use"),
    ],
)
def test_a_silent_fallback_is_seen(record: Record, told: str) -> None:
    [cell] = cells_of([record])

    assert (cell.outcome, cell.detail) == ("fell back", told)


@pytest.mark.parametrize(
    "record",
    [
        a_cell(COMPILED, *proof()),
        a_cell(GRAPHS, a_signal("graph_launches", 2, "info")),
        a_record([rate(1), a_signal("te_layers", 60, "info")], FP8, precision="transformer-engine"),
    ],
)
def test_what_did_as_asked_is_measured(record: Record) -> None:
    assert [cell.outcome for cell in cells_of([record])] == ["measured"]


def test_a_model_that_is_partly_eager_is_measured_and_says_so() -> None:
    [cell] = cells_of([a_cell(COMPILED, *proof(frames=29, failed=2))])

    assert (cell.outcome, cell.detail) == ("measured", "2 of 29 frames ran eager")


def test_the_interval_of_one_run_is_that_of_its_median_and_of_several_that_of_runs() -> None:
    samples = [float(value) for value in range(1, 11)]

    assert interval([a_record([rate(5.5, samples)], EAGER)]) == (5.5, 2, 9)
    value, low, high = interval([a_record([rate(v)], EAGER, run) for run, v in enumerate((99.0, 100.0, 101.0))])
    assert low < 99 < value < 101 < high
    assert interval([a_record([], EAGER)]) == (0, 0, 0)
