from __future__ import annotations

import resource
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import in_fit

from perf.probes.memory import peak_memory
from perf.record import Signal
from perf.rfdetr_api import Stepper


def test_on_a_cpu_the_high_water_mark_is_shown_and_not_gated() -> None:
    def body(stepper: Stepper) -> tuple[list[Signal], int]:
        return peak_memory(stepper, steps=3), stepper.built.module.steps

    [peak], steps = in_fit(body)

    assert (peak.name, peak.kind, peak.unit) == ("peak_rss", "info", "B")
    assert 50e6 < peak.value <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert steps == 3


def test_on_a_gpu_the_peaks_are_those_of_the_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    def doing(what: str, answer: Any = None) -> Any:
        def do(*_: Any) -> Any:
            did.append(what)
            return answer

        return do

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", doing("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", doing("allocated", 2_097_478_144))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", doing("reserved", 2_500_000_000))
    stepper: Any = SimpleNamespace(
        device=torch.device("cuda"), prepare=doing("prepare"), step=doing("step"), synchronize=doing("synchronize")
    )

    allocated, reserved = peak_memory(stepper, steps=2)

    assert did == ["reset", *["prepare", "step", "synchronize"] * 2, "allocated", "reserved"]
    assert (allocated.name, allocated.kind, allocated.value) == ("peak_memory", "device", 2_097_478_144)
    assert (reserved.name, reserved.kind, reserved.value) == ("peak_reserved", "device", 2_500_000_000)
