"""Real fits of the reduced Nano on the real rfdetr: phases add up, and what is slow is seen where it is slow."""

from __future__ import annotations

import functools
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from perf.annotations import DataSet
from perf.case import Case
from perf.dataset import read_data_set
from perf.probes.fit import Fit, FitPlan
from perf.probes.fit_phases import FIT_PHASES, INPUT_WAIT, MATCHING
from perf.progress import Progress
from perf.record import Signal
from perf.rfdetr_fit import build_fit, write_fit_data
from perf.rfdetr_steering import steered

# Of rfdetr's own imports, and Lightning's advice.
pytestmark = pytest.mark.filterwarnings("default")

# No worker: a slow item is then waited for, whatever else the machine does.
CASE = Case(config="nano", lane="cpu", batch_size=2, workers=0, measure="fit")
SHORT = FitPlan(warmup=0, timed=2, compared=0, block=1, profiled=0, named=0, memory=0, val_batches=1)
WHOLE = FitPlan(warmup=1, timed=2, compared=1, block=1, profiled=1, named=1, memory=1, val_batches=1)
# Longer than what a busy machine adds to a phase.
SLEEP = 0.4


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return read_data_set(write_fit_data(tmp_path_factory.mktemp("data"), CASE, updates=20))


def fitted(data: DataSet, folder: Path, plan: FitPlan = SHORT, updates: int = 20, case: Case = CASE) -> Fit:
    with steered(case):
        built = build_fit(case, data, folder / "out", updates, plan.val_batches)
        fit = Fit(built, plan, folder / "run-0", Progress(folder / "progress", "test"))
        fit.run(data)
    return fit


def signal(fit: Fit, name: str) -> Signal:
    return next(one for one in fit.signals if one.name == name)


def phases(fit: Fit) -> dict[str, float]:
    return {part.name: part.value for part in signal(fit, "fit_step").parts}


@pytest.fixture(scope="module")
def plain(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    return fitted(data, tmp_path_factory.mktemp("plain"))


def test_phases_sum_to_the_step_and_each_is_there(plain: Fit) -> None:
    step = signal(plain, "fit_step")

    assert len(step.samples) == SHORT.timed
    assert sum(part.value for part in step.parts) == pytest.approx(step.value, rel=0.01)
    assert tuple(phases(plain)) == FIT_PHASES
    assert all(value > 0 for value in phases(plain).values())
    assert phases(plain)["other"] < 0.1 * step.value


def slowly(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(SLEEP)
        return real(*args, **kwargs)

    return slow


def slow_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    from rfdetr.models.matcher import HungarianMatcher

    name = "_match_many" if hasattr(HungarianMatcher, "_match_many") else "forward"
    monkeypatch.setattr(HungarianMatcher, name, slowly(getattr(HungarianMatcher, name)))


def slow_items(monkeypatch: pytest.MonkeyPatch) -> None:
    from rfdetr.datasets.coco import CocoDetection

    monkeypatch.setattr(CocoDetection, "__getitem__", slowly(CocoDetection.__getitem__))


@pytest.mark.parametrize(
    ("slow", "phase", "times"), [(slow_matcher, MATCHING, 1), (slow_items, INPUT_WAIT, CASE.batch_size)]
)
def test_a_slow_phase_is_seen_in_that_phase_and_in_no_other(
    slow: Callable[[pytest.MonkeyPatch], None],
    phase: str,
    times: int,
    plain: Fit,
    data: DataSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow(monkeypatch)
    found = phases(fitted(data, tmp_path))

    added = {name: found[name] - before for name, before in phases(plain).items()}
    assert added.pop(phase) == pytest.approx(1e3 * SLEEP * times, rel=0.2)
    assert max(added.values()) < 1e3 * SLEEP * times / 2, added


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the passes of a GPU run here: the profiler sees no kernel, as without CUPTI; return what was called."""
    called: list[str] = []
    monkeypatch.setattr(Fit, "_on_gpu", property(lambda _: True))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: called.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: called.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: called.count("reset"))
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", called.append)
    return called


def test_a_profiler_that_sees_no_gpu_costs_its_own_signals_alone(
    data: DataSet, tmp_path: Path, pretended_gpu: list[str]
) -> None:
    fit = fitted(data, tmp_path, WHOLE)

    names = [one.name for one in fit.signals]
    assert not [name for name in names if name.startswith(("fit_gpu", "fit_kernels", "gemm", "sync_wait"))]
    assert "the profiler saw no kernel of the GPU (no CUPTI?): no busy, idle, kernels, GEMM, waits" in fit.notes
    assert {"fit_step", "logging_cost", "sync_cost", "sync_counts", "pos_embed", "validation"} <= set(names)
    assert signal(fit, "sync_counts").value == 0
    memory = signal(fit, "phase_peak_memory")
    assert {part.name for part in memory.parts} >= set(FIT_PHASES)
    assert memory.value == max(part.value for part in memory.parts)
    assert [mode for mode in pretended_gpu if mode in ("warn", "default")] == ["warn", "default"]
    trace = json.loads(gzip.decompress((tmp_path / "run-0.profile.json.gz").read_bytes()))
    assert {"perf-phase:0|matching", "perf-phase:end"} <= {event["name"] for event in trace["traceEvents"]}


def test_what_fails_in_a_pass_is_a_note_and_the_next_ones_go_on(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        msg = "no profiler today"
        raise OSError(msg)

    monkeypatch.setattr("torch.profiler.profile", refuse)
    fit = fitted(data, tmp_path, WHOLE)

    assert "profile not measured: OSError: no profiler today" in fit.notes
    assert signal(fit, "validation").value > 0
    assert signal(fit, "fit_step").value > 0


def test_fewer_updates_than_the_warm_up_are_said(data: DataSet, tmp_path: Path) -> None:
    fit = fitted(data, tmp_path, updates=2)

    [note] = fit.notes
    assert note == (
        "the training ended after 2 updates, in the pass 'first validation': fewer than the first, that of its "
        "validation and 0 to warm up; not measured: warm-up, phases, cost of logging, profile, memory, validation"
    )
    assert [one.name for one in fit.signals] == ["first_step"]


def test_a_loader_without_a_batch_is_said(data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rfdetr.training import RFDETRDataModule
    from torch.utils.data import DataLoader

    monkeypatch.setattr(RFDETRDataModule, "train_dataloader", lambda _: DataLoader([]))
    with pytest.raises(RuntimeError, match="rfdetr's loader gave no batch, so that nothing was measured"):
        fitted(data, tmp_path)


def test_accumulated_batches_are_one_update(
    data: DataSet, tmp_path: Path, plain: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_matcher(monkeypatch)
    fit = fitted(data, tmp_path, case=CASE.model_copy(update={"accumulate": 2}))

    assert len(signal(fit, "fit_step").samples) == SHORT.timed
    # The first update, those of the two validations, and the one in which nothing is left to do ends none.
    assert fit.built.trainer.global_step == 1 + 1 + SHORT.timed + 1
    assert phases(fit)[MATCHING] - phases(plain)[MATCHING] == pytest.approx(2e3 * SLEEP, rel=0.2)
