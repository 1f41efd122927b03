"""Folders of investigations for tests: records as the probes of fit, step and input leave them, and TraceML's files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factories import H200, a_record, a_signal

from perf.case import Case
from perf.investigation import MANIFEST, Investigation
from perf.record import Part, Record, Signal, write_model, write_record
from perf.traceml import OURS, SUMMARY, SameSteps

FIT = Case(config="nano", measure="fit")
STEP = Case(config="nano")
COMPILED = Case(config="nano", compile=True)
INPUT = Case(config="nano", measure="input")
MAP = Case(config="nano", batch_size=16, measure="convergence")
MACHINE = H200.model_copy(
    update={
        "driver": "580.159.04",
        "cuda": "13.0",
        "gpu_memory_bytes": 150_000_000_000,
        "workload": "shapes 0123456789ab",
    }
)

# The phases of an update in ms: host and GPU busy.
HOST = {
    "input_wait": 0.4,
    "host_to_device": 0.6,
    "forward": 40.0,
    "matching": 8.0,
    "criterion": 12.0,
    "backward": 30.0,
    "optimizer": 5.0,
    "ema": 1.0,
    "logging": 1.5,
    "other": 1.5,
}
BUSY = {"forward": 4.0, "criterion": 1.0, "backward": 6.0, "optimizer": 0.8, "ema": 0.2}


def _parts(values: dict[str, float], factor: float = 1.0) -> list[Part]:
    return [Part(name=name, value=factor * value) for name, value in values.items()]


def _sum(name: str, values: dict[str, float], kind: Any, unit: str, factor: float = 1.0, **more: Any) -> Signal:
    parts = _parts(values, factor)
    return Signal(name=name, kind=kind, unit=unit, value=sum(p.value for p in parts), parts=parts, **more)


def fit_signals(factor: float = 1.0, busy: float = 1.0) -> list[Signal]:
    """What the fit probe leaves on a GPU; host times ``factor`` times as long, the GPU's ``busy`` times."""
    whole = factor * sum(HOST.values())
    return [
        _sum("fit_step", HOST, "wall", "ms", factor, samples=[0.9 * whole, whole, 1.1 * whole]),
        _sum("fit_gpu_busy", BUSY, "device", "ms", busy),
        _sum("fit_gpu_idle", {"input_wait": 0.3, "forward": 36.0, "backward": 24.0}, "wall", "ms"),
        _sum("fit_kernels", {"forward": 1500.0, "backward": 2000.0}, "count-volume", "kernels"),
        a_signal("small_kernels", 2600, "info", "kernels"),
        _sum("kernel_time", {"void at::native::elementwise<float>(int)": 3.0, "nvjet_hsh": 2.0}, "info", "ms"),
        a_signal("gemm_time", 4.5, "info", "ms"),
        a_signal("gemm_rate", 120.0, "info", "TFLOP/s"),
        a_signal("gpu_utilization", 12.0, "info", "%"),
        a_signal("sync_counts", 80, "info", "syncs", parts=[_sync(60), _sync(20, "optimizer clip", "rfdetr/b.py:2")]),
        a_signal("sync_wait", 5.0, "info", "ms", parts=[_sync(4.0), _sync(1.0, "optimizer clip", "rfdetr/b.py:2")]),
        a_signal("sync_cost", 0.02, "info", "ms", parts=[Part(name="numbers logged as tensors", value=0.02)]),
        a_signal("logging_cost", 0.7, "info", "ms"),
        a_signal("pos_embed", 0.1, "info", "ms"),
        _sum("validation", {"model": 2.0, "scoring": 1.0}, "wall", "s"),
        a_signal("validation_steps", 50, "info", "batches"),
        a_signal("first_validation", 3.5, "info", "s"),
        a_signal("first_step", 2.5, "info", "s"),
        a_signal("phase_peak_memory", 2e9, "device", "B", parts=_parts({"forward": 2e9, "backward": 1.5e9})),
    ]


def _sync(value: float, name: str = "criterion match", line: str = "rfdetr/models/matcher.py:363") -> Part:
    return Part(name=name, value=value, where=[line])


def input_signals() -> list[Signal]:
    """What the input probe leaves."""
    sample = {"decode": 3.0, "resize": 2.0, "other": 1.0}
    rates = {0: 150.0, 2: 320.0, 4: 600.0, 8: 900.0, 16: 950.0}
    return [
        _sum("getitem", sample, "wall", "ms"),
        _sum("getitem_bmp_large", {"decode": 30.0, "resize": 2.0, "other": 1.0}, "wall", "ms"),
        _sum("getitem_384", sample, "wall", "ms"),
        *(a_signal(f"loader_rate_w{n}", rate, "wall", "samples/s", direction="higher") for n, rate in rates.items()),
        a_signal("augment_cpu", 8.0, "wall", "ms"),
    ]


def step_signals() -> list[Signal]:
    """What a step on a fixed batch leaves."""
    return [
        a_signal("step_time", 95.0, "wall", "ms"),
        a_signal("kernels", 3548, "count-volume"),
        a_signal("gpu_busy", 16.65, "device", "ms"),
        a_signal("peak_memory", 2.085e9, "device", "B"),
    ]


def a_run(case: Case, signals: Sequence[Signal], run: int, **more: Any) -> Record:
    values: dict[str, Any] = {"environment": MACHINE, "warmup_steps": 12, "precision": "bf16-mixed"}
    return a_record(signals, case, run, **(values | {"flags": {"batch_size": "4"}} | more))


def the_records(runs: int = 3) -> list[Record]:
    """All runs of an investigation without a candidate."""
    made = []
    for run in range(runs):
        made += [
            a_run(FIT, fit_signals(1 + run / 100), run),
            a_run(STEP, step_signals(), run),
            a_run(COMPILED, step_signals(), run),
            a_run(INPUT, input_signals(), run, notes=["augment_gpu not measured: ValueError: no kornia"]),
        ]
    return made


def a_folder(folder: Path, records: Sequence[Record], *, head: Sequence[Record] = (), **asked: Any) -> Path:
    """Write an investigation as it lies in a folder."""
    cases = list(dict.fromkeys(record.case_id for record in [*records, *head])) or [FIT.id]
    values: dict[str, Any] = {"cases": cases, "runs": 3, "command": "rfdetr-perf investigate --config nano"}
    if head:
        values |= {"head": "fix.py", "head_sha256": "41f5aed0" * 8}
    write_model(folder / MANIFEST, Investigation(**(values | asked)))
    for side, some in (("base", records), ("head", head)):
        for record in some:
            write_record(folder / side / record.case_id / f"run-{record.run}.record.json", record)
    return folder


def traceml_files(folder: Path, step: float = 100.0, wait: float = 0.4) -> None:
    """Write what TraceML and the clock beside it leave, of a step of 100 ms that waits 0.4 ms for input."""
    folder.mkdir(parents=True, exist_ok=True)
    average = {
        "step_time_cpu_ms": step,
        "dataloader_fetch_cpu_ms": wait,
        "h2d_ms": None,
        "forward_ms": 40.0,
        "backward_ms": 30.0,
        "optimizer_ms": 6.0,
        "residual_ms": 23.0,
    }
    window = {"diagnosis_clock": "gpu", "steps_analyzed": 60}
    document = {
        "step_time": {"global": {"average": average, "window": window}},
        "primary_diagnosis": {"status": "COMPUTE-BOUND"},
    }
    (folder / SUMMARY).write_text(json.dumps(document), encoding="utf-8")
    ours = SameSteps(
        case_id=FIT.id,
        updates=60,
        warmup=12,
        step=100.0,
        parts=_parts(HOST),
        traceml="0.5.0",
        command="rfdetr-perf traceml",
    )
    write_model(folder / OURS, ours)
