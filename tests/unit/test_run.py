from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import CPU_EAGER

from perf import run as runs
from perf import run_record
from perf.probes.input_pipeline import one_thread
from perf.record import Record, read_record, write_record
from perf.run import Plan, Run
from perf.run_order import MINOR_VARIABLE, Order

pytestmark = pytest.mark.filterwarnings("default")
PLAN = Plan(warmup=1, timed=2, profiled=1)
SIGNALS = [
    *["first_step", "first_loss", "optimizer_groups", "step_time", "peak_rss", "aten_ops"],
    *["frames", "model_frames", "frames_failed", "graphs", "graph_breaks", "recompiles"],
    *["python_calls", "c_calls", "memory_growth", "step_memory"],
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(case=CPU_EAGER, session="s1", run=0, folder=tmp_path / "s1")


def test_a_run_measures_with_every_probe_and_writes_after_each(
    order: Order, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Record] = []

    def watch(path: Path, record: Record) -> None:
        write_record(path, record)
        written.append(read_record(path))

    monkeypatch.setattr(run_record, "write_record", watch)
    record = Run(order, PLAN).measure(benchmark)

    assert read_record(order.record_path) == record == written[-1]
    assert (record.status, record.error, record.warmup_steps) == ("finished", None, 2)
    assert record.finished
    assert record.finished > record.started
    assert [signal.name for signal in record.signals] == SIGNALS
    assert [found.status for found in written] == ["running"] * (len(written) - 1) + ["finished"]
    assert [len(found.signals) for found in written] == [0, 1, 3, 4, 5, 6, 12, 14, 16, 16]
    counts = [signal for signal in record.signals if signal.kind == "count-volume"]
    calls = [signal for signal in counts if signal.name not in ("first_loss", "step_memory")]
    assert all(sum(part.value for part in signal.parts) == signal.value > 1000 for signal in calls)
    told = order.progress_path.read_text().splitlines()
    assert [line.partition("run 0: ")[2] for line in told if "first step: " not in line] == [
        *["importing torch", "importing rfdetr", "building the model"],
        *["first step", "warming up, 1 steps", "timing 2 steps", "counting work per step", "finished"],
    ]


def test_a_probe_that_raises_leaves_the_traceback_and_the_signals_before_it(
    order: Order, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        msg = "no memory"
        raise MemoryError(msg)

    monkeypatch.setattr(runs, "peak_memory", failing)
    with pytest.raises(MemoryError, match="no memory"):
        Run(order, PLAN).measure(benchmark)

    record = read_record(order.record_path)
    assert record.status == "failed"
    assert record.error
    assert record.error.splitlines()[-1] == "MemoryError: no memory"
    assert [signal.name for signal in record.signals] == ["first_step", "first_loss", "optimizer_groups", "step_time"]
    assert order.progress_path.read_text().endswith("run 0: failed\n")


def patched(order: Order, tmp_path: Path, source: str) -> Order:
    patch = tmp_path / "fix.py"
    patch.write_text(source)
    return Order(case=order.case, session="s1", run=0, folder=order.folder, patch=patch)


def test_a_patch_is_run_first_and_marks_the_record(order: Order, benchmark: Any, tmp_path: Path) -> None:
    order = patched(order, tmp_path, "raise RuntimeError('patched')")
    with pytest.raises(RuntimeError, match="patched"):
        Run(order).measure(benchmark)

    record = read_record(order.record_path)
    assert record.environment.rfdetr_dirty is True
    digest = hashlib.sha256(b"raise RuntimeError('patched')").hexdigest()
    assert record.environment.rfdetr_source.endswith(f", patched by fix.py ({digest[:8]})")
    assert "fix.py" in (record.error or "")
    assert f"--patch {order.patch}" in record.command


def test_a_patch_that_is_no_python_file_is_refused(order: Order, benchmark: Any, tmp_path: Path) -> None:
    odd = tmp_path / "fix.txt"
    odd.write_text("")
    order = Order(case=order.case, session="s1", run=0, folder=order.folder, patch=odd)

    with pytest.raises(ValueError, match=r"fix\.txt: not a Python file"):
        Run(order).measure(benchmark)


def test_another_torch_than_the_sessions_is_refused(
    order: Order, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MINOR_VARIABLE, "1.0")
    with pytest.raises(RuntimeError, match=r"for torch 1\.0, but torch 2\."):
        Run(order).measure(benchmark)

    assert read_record(order.record_path).status == "failed"


def test_a_run_that_only_counts_takes_no_time(order: Order, benchmark: Any) -> None:
    record = Run(replace(order, untimed=True), PLAN).measure(benchmark)
    assert record.untimed
    assert [signal.name for signal in record.signals] == [n for n in SIGNALS if n not in ("step_time", "peak_rss")]
    assert record.command.endswith(" --untimed")
