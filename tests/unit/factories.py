"""Records and baselines for tests, as a run would leave them, with what matters to a test passed by name."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from perf.baselines import Baseline
from perf.case import Case
from perf.environment import Environment
from perf.record import Kind, Part, Record, Signal
from perf.refresh import Request, refresh

CPU_EAGER = Case(config="nano", lane="cpu", batch_size=2)
CPU_COMPILED = Case(config="nano", lane="cpu", batch_size=2, compile=True)
GPU_EAGER = Case(config="nano", batch_size=4)
BREAK_LINE = "rfdetr/models/transformer.py:363"


def an_environment(**changes: Any) -> Environment:
    values: dict[str, Any] = {
        "device": "cpu",
        "torch": "2.14.1+cpu",
        "torch_minor": "2.14",
        "python": "3.11.9",
        "rfdetr": "1.11.2",
        "rfdetr_source": "release 1.11.2",
        "transformers": "4.57.1",
        "pytorch_lightning": "2.6.0",
        "cpu_model": "EPYC",
        "cpu_count": 8,
        "system": "Linux",
        "suite": "0.1.0",
        "suite_commit": "c0ffee",
        "suite_dirty": False,
    }
    return Environment(**(values | changes))


H200 = an_environment(device="nvidia-h200", gpu_name="NVIDIA H200", gpu_count=1, power_limit_w=700.0)


def a_signal(name: str, value: float, kind: Kind = "count-strict", unit: str = "", **changes: Any) -> Signal:
    return Signal(name=name, kind=kind, unit=unit, value=value, **changes)


def parts(**values: float) -> list[Part]:
    return [Part(name=name, value=value, where=[f"rfdetr/{name}.py:1"]) for name, value in values.items()]


def proof(
    frames: float = 9, failed: float = 0, failed_parts: Sequence[Part] = (), model_frames: float = 1
) -> list[Signal]:
    return [
        a_signal("frames", frames, "info"),
        a_signal("frames_failed", failed, parts=list(failed_parts)),
        a_signal("model_frames", model_frames, "info"),
    ]


def a_record(signals: Sequence[Signal] = (), case: Case = CPU_EAGER, run: int = 0, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "case_id": case.id,
        "case": case,
        "session": "s1",
        "run": run,
        "status": "finished",
        "command": f"pytest tests/suite --case {case.id}",
        "environment": an_environment() if case.lane == "cpu" else H200,
        "signals": list(signals),
    }
    return Record(**(values | changes))


def runs_of(signal: Signal, values: Sequence[float], case: Case = CPU_EAGER, **changes: Any) -> list[Record]:
    """One record a value, each with that one signal."""
    return [
        a_record([signal.model_copy(update={"value": value})], case, run, **changes) for run, value in enumerate(values)
    ]


def a_request(reason: str = "first approval", **changes: Any) -> Request:
    return Request(by="me", reason=reason, date=datetime.date(2026, 7, 1))._replace(**changes)


def a_baseline(records: Sequence[Record]) -> Baseline:
    return refresh(records, None, a_request()).baseline
