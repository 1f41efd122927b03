"""The timeline by itself, and the clock on a tiny module in a real Lightning fit; tests/e2e/test_fit.py: on rfdetr."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import CPU_EAGER
from offline_triton import KERNEL, assignments
from pytorch_lightning import Callback, LightningModule, Trainer
from tiny import Calling, Samples, squared_error
from torch.utils.data import DataLoader

from perf.probes.fit_phases import (
    AUGMENTATION,
    EMA,
    HOST_TO_DEVICE,
    INPUT_WAIT,
    LOGGING,
    MATCHING,
    MODEL,
    SCORING,
    FitClock,
    Timeline,
    Update,
    phase_of,
)
from perf.probes.phases import BACKWARD, CRITERION, FORWARD, OPTIMIZER, OTHER
from perf.rfdetr_api import Built

pytestmark = pytest.mark.filterwarnings("default")
SLEEP = 0.03


class Ticks:
    """A clock that goes on by what it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_inner_phase_is_not_the_outer_ones_and_nothing_is_left_out() -> None:
    ticks = Ticks()
    timeline = Timeline(ticks)
    ticks.now += 1
    timeline.push(CRITERION)
    ticks.now += 2
    timeline.push(MATCHING)
    ticks.now += 4
    timeline.pop()
    ticks.now += 8
    timeline.pop()
    ticks.now += 16

    assert timeline.lap() == {OTHER: 17, CRITERION: 10, MATCHING: 4}
    assert timeline.lap() == {OTHER: 0}


def test_an_end_without_a_beginning_is_ignored() -> None:
    timeline = Timeline(Ticks())
    timeline.pop()

    assert timeline.phase == OTHER


def test_what_comes_before_it_resumes_is_not_counted() -> None:
    ticks = Ticks()
    timeline = Timeline(ticks)
    timeline.push(FORWARD)
    ticks.now += 5
    timeline.resume()
    ticks.now += 1

    assert timeline.lap() == {OTHER: 1}


def test_a_watcher_is_told_of_both_phases_at_each_border() -> None:
    timeline, seen = Timeline(Ticks()), list[tuple[str, str]]()
    timeline.watch = lambda before, after: seen.append((before, after))
    timeline.push(CRITERION)
    timeline.push(MATCHING)
    timeline.pop()
    timeline.pop()

    assert seen == [(OTHER, CRITERION), (CRITERION, MATCHING), (MATCHING, CRITERION), (CRITERION, OTHER)]


@pytest.mark.parametrize(
    ("action", "phase"),
    [
        ("[_TrainingEpochLoop].train_dataloader_next", INPUT_WAIT),
        ("[_EvaluationLoop].val_next", INPUT_WAIT),
        ("[Strategy]SingleDeviceStrategy.batch_to_device", HOST_TO_DEVICE),
        ("[LightningDataModule]Told.on_after_batch_transfer", AUGMENTATION),
        ("[LightningDataModule]Told.transfer_batch_to_device", None),
        ("[Strategy]SingleDeviceStrategy.training_step", OTHER),
        ("[Strategy]SingleDeviceStrategy.backward", BACKWARD),
        ("[LightningModule]RFDETRModelModule.optimizer_step", OPTIMIZER),
        ("[LightningModule]RFDETRModelModule.optimizer_zero_grad", OPTIMIZER),
        ("[LightningModule]RFDETRModelModule.lr_scheduler_step", OPTIMIZER),
        ("[LightningModule]RFDETRModelModule.on_train_batch_start", None),
        ("[Callback]RFDETREMACallback.on_train_batch_end", EMA),
        ("[Callback]RFDETREMACallback.on_train_batch_start", None),
        ("[Callback]GPUMemoryTQDMProgressBar.on_train_batch_end", LOGGING),
        ("[Strategy]SingleDeviceStrategy.validation_step", MODEL),
        ("[Callback]COCOEvalCallback.on_validation_batch_end", SCORING),
        ("[Callback]COCOEvalCallback.on_validation_epoch_end", SCORING),
        ("run_training_batch", None),
    ],
)
def test_lightning_s_names_become_phases(action: str, phase: str | None) -> None:
    assert phase_of(action) == phase


def nothing(*_: Any) -> None:
    """Take no time."""


class Matcher(torch.nn.Module):  # type: ignore[misc]
    def forward(self, work: Callable[[], None]) -> None:
        work()


class Criterion(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, module: Module) -> None:
        super().__init__()
        self.matcher = Matcher()
        self.work = module.work

    def forward(self, outputs: Any, targets: Any) -> Any:
        self.matcher(lambda: self.work(MATCHING))
        self.work(CRITERION)
        return squared_error(outputs, targets)


class Module(LightningModule):  # type: ignore[misc]
    """What the clock knows of rfdetr's module; ``slow`` is the phase in which it sleeps."""

    def __init__(self, slow: str = "", *, replays: bool = False) -> None:
        super().__init__()
        self.slow = slow
        self.replays = replays
        self._cuda_graph_runner: Any = None
        self.linear = torch.nn.Linear(4, 2)
        self.model = Calling(self.forward_of_model)
        self.criterion = Criterion(self)
        self.train_batch_ends = 0

    def work(self, phase: str) -> None:
        if phase == self.slow:
            time.sleep(SLEEP)

    def forward_of_model(self, tensors: Any) -> Any:
        self.work(FORWARD)
        return self.linear(tensors)

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        self.work(HOST_TO_DEVICE)
        return batch

    def on_train_start(self) -> None:
        self._cuda_graph_runner = self.forward_of_model if self.replays else None

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        samples, targets = batch
        self.work(OTHER)
        loss = self.criterion((self._cuda_graph_runner or self.model)(samples.tensors), targets)
        self.log("loss", loss)
        self.log_dict({"again": loss})
        return loss

    def log(self, *args: Any, **kwargs: Any) -> None:
        self.work(LOGGING)
        super().log(*args, **kwargs)

    def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        self.work(BACKWARD)
        loss.backward()

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        self.work(OPTIMIZER)

    def on_train_batch_end(self, *_: Any) -> None:
        self.train_batch_ends += 1

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.work(MODEL)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class RFDETREMACallback(Callback):  # type: ignore[misc]
    """Named as rfdetr's: by that it is known."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        module.work(EMA)


class Batches:
    """Yields ``count`` batches an epoch, slowly where input is the slow phase."""

    def __init__(self, count: int, slow: str) -> None:
        self.count, self.slow = count, slow

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self.slow == INPUT_WAIT:
            time.sleep(SLEEP)
        return Samples(torch.ones(3, 4)), torch.zeros(3, 2)


def fitted(
    slow: str = "", *, batches: int = 6, epochs: int = 1, accumulate: int = 1, validate: bool = False, **more: bool
) -> tuple[list[Update], Module]:
    """Return the updates of a real Lightning fit on a tiny module."""
    module, updates = Module(slow, **more), list[Update]()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        accumulate_grad_batches=accumulate,
        limit_val_batches=1 if validate else 0,
        val_check_interval=3 if validate else None,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[RFDETREMACallback()],
    )
    built = Built(case=CPU_EAGER, model_config=None, train_config=None, module=module, trainer=trainer)
    clock = FitClock(built, updates.append)
    trainer.callbacks.append(clock.callback())
    loader = DataLoader(Batches(batches, slow), batch_size=None)
    trainer.fit(module, loader, loader if validate else None)
    assert "log" not in vars(module)
    assert not module.model._forward_hooks
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"
    return updates, module


SLOW = [INPUT_WAIT, HOST_TO_DEVICE, FORWARD, MATCHING, CRITERION, BACKWARD, OPTIMIZER, EMA, LOGGING, OTHER]


@pytest.mark.parametrize("slow", SLOW)
def test_a_slow_phase_is_slow_and_no_other_is(slow: str) -> None:
    updates, _ = fitted(slow)

    for update in updates[1:]:
        assert update.whole
        assert update.seconds[slow] > SLEEP
        others = {phase: seconds for phase, seconds in update.seconds.items() if phase != slow}
        assert sum(others.values()) < SLEEP, others


def test_a_forward_that_a_cuda_graph_replays_is_a_forward() -> None:
    updates, module = fitted(FORWARD, replays=True)

    assert all(SLEEP < update.seconds[FORWARD] < 2 * SLEEP for update in updates)
    assert module._cuda_graph_runner == module.forward_of_model


def test_an_update_is_the_sum_of_its_phases_and_the_last_one_never_ends() -> None:
    updates, module = fitted()

    assert len(updates) == module.train_batch_ends - 1 == 5
    assert updates[0].milliseconds == pytest.approx(1e3 * sum(updates[0].seconds.values()))


def test_accumulated_batches_are_one_update() -> None:
    updates, module = fitted(FORWARD, batches=9, accumulate=3)

    assert (len(updates), module.train_batch_ends) == (2, 9)
    for update in updates:
        assert 3 * SLEEP < update.seconds[FORWARD] < 4 * SLEEP


def test_an_update_with_the_end_of_an_epoch_in_it_is_not_whole() -> None:
    updates, _ = fitted(batches=3, epochs=3)

    assert [update.whole for update in updates] == [True, True, False, True, True, False, True, True]


def test_a_validation_is_counted_apart_from_the_update_before_it() -> None:
    updates, _ = fitted(MODEL, validate=True)

    assert [update.validation for update in updates] == [False, False, True, False, False]
    assert [update.whole for update in updates] == [True, True, False, True, True]
    assert SLEEP < updates[2].seconds[MODEL] < sum(updates[2].seconds.values()) < 2 * SLEEP


def test_a_kernel_counts_to_the_update_that_had_triton_compile_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter([2, 2, 3, 2, 4, 9])
    with assignments(tmp_path) as assign:
        monkeypatch.setattr(Module, "work", lambda _, phase: assign(next(numbers)) if phase == MATCHING else None)
        updates, _ = fitted()

    assert [update.compiled for update in updates] == [(KERNEL,), (), (KERNEL,), (), (KERNEL,)]


def test_what_the_listener_does_is_in_no_update() -> None:
    ticks, updates = Ticks(), list[Update]()
    built = Built(
        case=CPU_EAGER,
        model_config=None,
        train_config=None,
        module=None,
        trainer=type("T", (), {"global_step": 0})(),
    )

    def listen(update: Update) -> None:
        updates.append(update)
        ticks.now += 50

    clock = FitClock(built, listen)
    clock.timeline = Timeline(ticks)
    for step in range(3):
        built.trainer.global_step = step
        clock.next_batch()
        ticks.now += 1

    assert [update.seconds for update in updates] == [{OTHER: 1}, {OTHER: 1}]


@pytest.mark.parametrize("muted", [True, False])
def test_logging_can_be_left_out_or_given_something_else(muted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, seen = Module(), list[Any]()
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
    built = Built(case=CPU_EAGER, model_config=None, train_config=None, module=module, trainer=trainer)
    monkeypatch.setattr(module, "log", lambda name, value, **_: seen.append((name, value)))
    clock = FitClock(built, nothing)
    clock.install()
    clock.muted, clock.logged = muted, lambda value: -value
    module.log("rate", 3, on_step=True)
    clock.remove()
    module.log("rate", 3)

    assert seen == [*([] if muted else [("rate", -3)]), ("rate", 3)]
