from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from test_probe_fit_profile import MARKS, Raw, parts
from tiny import first_line

from perf.probes.fit_profile import Window, windows
from perf.probes.fit_syncs import UNTOLD, Sync, noting, sync_counts, sync_wait, waits
from perf.probes.phases import BACKWARD, FORWARD


def call(name: str, at: float, dur: float, number: int = 0) -> Raw:
    return {"cat": "cuda_runtime", "name": name, "ts": at, "dur": dur, "args": {"correlation": number}}


def copy(name: str, at: float, number: int) -> Raw:
    return {"cat": "gpu_memcpy", "name": name, "ts": at, "dur": 1, "args": {"correlation": number}}


def seen(*events: Raw) -> list[Window]:
    return windows([*MARKS, *events], (0,))


def test_each_sync_is_waited_for_in_its_phase() -> None:
    [window] = seen(
        call("cudaStreamSynchronize", 20, 8),
        call("cudaLaunchKernel", 30, 1),
        call("cudaStreamSynchronize", 10, 4),
        call("cudaDeviceSynchronize", 50, 2),
        call("cudaStreamSynchronize", 150, 99),
    )

    assert waits(window) == {FORWARD: [0.004, 0.008], BACKWARD: [0.002]}


def test_a_copy_with_memory_that_is_not_pinned_waits_itself_and_is_its_sync_s() -> None:
    [window] = seen(
        call("cudaMemcpyAsync", 10, 8, 1),
        copy("Memcpy DtoH (Device -> Pageable)", 15, 1),
        call("cudaStreamSynchronize", 19, 1),
        call("cudaMemcpyAsync", 25, 6, 2),
        copy("Memcpy HtoD (Pageable -> Device)", 28, 2),
        call("cudaStreamSynchronize", 32, 2),
        call("cudaMemcpyAsync", 35, 2, 3),
        copy("Memcpy DtoH (Device -> Pinned)", 36, 3),
        call("cudaStreamSynchronize", 38, 1),
    )

    assert waits(window) == {FORWARD: pytest.approx([0.009, 0.008, 0.001])}


LINES = [Sync(FORWARD, "a.py:f", "a.py:1"), Sync(FORWARD, "a.py:f", "a.py:2"), Sync(BACKWARD, "(none)", None)]


def test_waits_get_the_lines_of_the_same_syncs_in_order() -> None:
    found = seen(
        call("cudaStreamSynchronize", 10, 4), call("cudaStreamSynchronize", 20, 8), call("cudaStreamSynchronize", 50, 2)
    )
    signal = sync_wait(found, LINES)

    assert (signal.kind, signal.unit) == ("info", "ms")
    assert signal.value == pytest.approx(0.014)
    assert parts(signal) == pytest.approx({"forward a.py:f": 0.012, "backward (none)": 0.002})
    assert signal.parts[0].where == ["a.py:1", "a.py:2"]


def test_a_phase_with_another_number_of_syncs_stays_without_lines() -> None:
    signal = sync_wait(seen(call("cudaStreamSynchronize", 10, 4), call("cudaStreamSynchronize", 50, 2)), LINES)

    assert parts(signal) == pytest.approx({f"forward {UNTOLD}": 0.004, "backward (none)": 0.002})


def test_counts_are_those_of_the_median_update_by_function_and_line() -> None:
    signal = sync_counts([LINES, LINES[:1], [*LINES, *LINES]])

    assert (signal.value, signal.samples, signal.kind) == (3, [3, 1, 6], "info")
    assert parts(signal) == {"forward a.py:f": 2, "backward (none)": 1}
    assert signal.parts[0].where == ["a.py:1", "a.py:2"]


def test_warnings_of_syncs_are_noted_with_the_phase_and_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    modes, syncs = list[Any](), list[Sync]()
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)  # there is no GPU here that could warn

    def user() -> None:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    showing = warnings.showwarning
    with noting(lambda: FORWARD, syncs):
        user()

    assert modes == ["warn", "default"]
    assert warnings.showwarning is showing
    [sync] = syncs
    assert (sync.phase, sync.line) == (FORWARD, first_line(user, 1))
    assert sync.function.endswith("<locals>.user")
