"""Whole epochs: how long each took, kept so that a training that goes on knows of those before, and their signals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict, TypeAdapter

from perf.record import Part, Signal, write_atomically

EPOCHS = ".epochs.json"
# Epoch 0 apart, and two that count.
DEFAULT_EPOCHS = 3


class Epoch(BaseModel):
    """One epoch: seconds of training, of validation, and of the rest (checkpoints above all), and images of each.

    ``first`` of its process: it compiles, fills caches and starts workers, as epoch 0 does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    train: float
    validation: float
    other: float = 0.0
    train_images: int
    validation_images: int
    first: bool = False

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.train + self.validation + self.other


_LIST = TypeAdapter(list[Epoch])


def read_epochs(path: Path) -> list[Epoch]:
    """Return the epochs that are kept at ``path``; none where there is no such file.

    Raises:
        ValueError: it cannot be read.
    """
    return _LIST.validate_json(path.read_bytes()) if path.is_file() else []


def write_epochs(path: Path, epochs: Sequence[Epoch]) -> None:
    """Write the epochs to ``path``, whole or not at all."""
    write_atomically(path, _LIST.dump_json(list(epochs), indent=1).decode() + "\n")


def steady(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Return the epochs that count: from epoch 1 on, since the first compiles, fills caches and starts workers.

    So does the first after an interruption, which counts where there is no other.
    """
    later = [epoch for epoch in epochs if epoch.epoch > 0]
    return [epoch for epoch in later if not epoch.first] or later


def epoch_signals(epochs: Sequence[Epoch]) -> list[Signal]:
    """Return what whole epochs took; times in s, medians over the epochs from 1 on, and epoch 0 apart.

    Raises:
        ValueError: no epoch but the first.
    """
    counted = steady(epochs)
    if not counted:
        msg = "only epoch 0 was trained, which compiles and starts workers: train at least two epochs"
        raise ValueError(msg)
    times = [epoch.seconds for epoch in counted]
    parts = [
        Part(name=name, value=median(getattr(epoch, name) for epoch in counted))
        for name in ("train", "validation", "other")
    ]
    first = [Signal(name="first_epoch", kind="info", unit="s", value=e.seconds) for e in epochs if e.epoch == 0]
    return [
        Signal(name="epoch_time", kind="wall", unit="s", value=median(times), samples=times, parts=parts),
        _rate("train_rate", [epoch.train_images / epoch.train for epoch in counted]),
        *([_rate("validation_rate", rates)] if (rates := _validation(counted)) else []),
        *first,
    ]


def _validation(epochs: Sequence[Epoch]) -> list[float]:
    return [epoch.validation_images / epoch.validation for epoch in epochs if epoch.validation > 0]


def _rate(name: str, rates: Sequence[float]) -> Signal:
    value, samples = median(rates), list(rates)
    return Signal(name=name, kind="wall", unit="images/s", value=value, samples=samples, direction="higher")
