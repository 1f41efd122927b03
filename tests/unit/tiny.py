"""A tiny model and criterion, stepped by the real Stepper inside a real Lightning fit: a second, not rfdetr's 8."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from factories import CPU_EAGER
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader

from perf.probes.source import short_path
from perf.rfdetr_api import Built, Stepper

Answer = TypeVar("Answer")


def a_trainer() -> Trainer:
    """Return a trainer of one epoch on the CPU that writes and shows nothing."""
    return Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@dataclass
class Samples:
    """Images as rfdetr nests them, as far as the Stepper looks."""

    tensors: Any
    mask: Any = None


class Calling(torch.nn.Module):  # type: ignore[misc]
    """A module that calls ``function``: what runs in a phase, told by a test."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def squared_error(outputs: Any, targets: Any) -> Any:
    return (outputs - targets).square().mean()


class TinyModule(LightningModule):  # type: ignore[misc]
    """What the probes know of rfdetr's module: a model, a criterion and a batch-start hook."""

    def __init__(self, criterion: Callable[..., Any], at_batch_start: Callable[[], Any]) -> None:
        super().__init__()
        self.model = torch.nn.Linear(4, 2)
        self.criterion = Calling(criterion)
        self.at_batch_start = at_batch_start
        self.steps = 0

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.at_batch_start()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.steps += 1
        samples, targets = batch
        return self.criterion(self.model(samples.tensors), targets)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def in_fit(
    body: Callable[[Stepper], Answer],
    criterion: Callable[..., Any] = squared_error,
    at_batch_start: Callable[[], Any] = lambda: None,
) -> Answer:
    """Call ``body`` with a stepper where the first step of a tiny fit would begin, and return its answer."""
    module = TinyModule(criterion, at_batch_start)
    trainer = a_trainer()
    built = Built(case=CPU_EAGER, model_config=None, train_config=None, module=module, trainer=trainer)
    batch = (Samples(torch.ones(3, 4)), torch.zeros(3, 2))
    answers: list[Answer] = []

    class RunBody(Callback):  # type: ignore[misc]
        def on_train_batch_start(self, *_: Any) -> None:
            answers.append(body(Stepper(built, batch)))

    trainer.callbacks.append(RunBody())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as rfdetr_api.fit does
        trainer.fit(module, DataLoader([batch], batch_size=None))
    [answer] = answers
    return answer


def first_line(function: Callable[..., Any], offset: int = 0) -> str:
    """Return ``file:line`` of the line ``offset`` lines below the ``def`` of ``function``."""
    code = function.__code__
    return f"{short_path(code.co_filename)}:{code.co_firstlineno + offset}"
