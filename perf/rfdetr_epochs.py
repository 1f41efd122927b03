"""The part of :mod:`perf.rfdetr_api` that trains whole epochs as users do: all of rfdetr's callbacks, checkpoints too,
so that a training goes on after a disconnect.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perf.annotations import COCO_HEAD
from perf.case import Case
from perf.epochs import Epoch, read_epochs, write_epochs
from perf.rfdetr_api import Built, build
from perf.rfdetr_configs import More
from perf.rfdetr_steering import ctrl_c_kept

LAST = "last.ckpt"  # rewritten by rfdetr after every epoch


def build_epochs(case: Case, root: Path, output_dir: Path, epochs: int) -> Built:
    """Build what trains ``case`` for ``epochs`` on the COCO 2017 tree at ``root``, going on where ``output_dir`` is.

    Raises:
        ValueError: this rfdetr has no such config or setting.
    """
    checkpoint = output_dir / LAST
    train: dict[str, Any] = {
        "dataset_dir": str(root),
        "dataset_file": "coco",
        "epochs": epochs,
        "resume": str(checkpoint) if checkpoint.is_file() else None,
        "seed": 0,
    }
    trainer = {"max_epochs": epochs, "num_sanity_val_steps": 0}
    return build(case, output_dir, 0, More({"num_classes": COCO_HEAD}, train, trainer))


class EpochClock:
    """Times each epoch of a fit and keeps them at ``path``, those of before an interruption included."""

    def __init__(self, path: Path, batch_size: int, tell: Callable[[str], None]) -> None:
        self.epochs = read_epochs(path)
        self.text = ""
        self._path, self._batch, self._tell = path, batch_size, tell
        self._began = self._validating = self._validation = self._trained = self._within = 0.0
        self._ended: float | None = None
        self._first = True

    def callback(self) -> Any:
        """Return the Lightning callback that does it."""
        from pytorch_lightning import Callback

        clock = self

        class Follow(Callback):
            def on_train_epoch_start(self, trainer: Any, *_: Any) -> None:
                clock.begin(trainer.current_epoch)

            def on_train_batch_end(self, trainer: Any, _module: Any, _out: Any, _batch: Any, index: int) -> None:
                clock.text = f"epoch {trainer.current_epoch}, batch {index + 1} of {trainer.num_training_batches}"
                clock.trained()

            def on_validation_start(self, *_: Any) -> None:
                clock.validating()

            def on_validation_end(self, *_: Any) -> None:
                clock.validated()

            def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
                clock.end(trainer)

            def on_train_end(self, *_: Any) -> None:
                clock.close()

        return Follow()

    def begin(self, epoch: int) -> None:
        """Begin an epoch; what is known of it and of later ones is of a training that did not get so far again."""
        self.close()
        self.epochs = [one for one in self.epochs if one.epoch < epoch]
        self._validation = self._within = 0.0
        self._began = self._trained = time.perf_counter()

    def trained(self) -> None:
        """Note the end of a batch; validation until then was between two of them."""
        self._trained, self._within = time.perf_counter(), self._validation

    def validating(self) -> None:
        """Begin its validation."""
        self._validating = time.perf_counter()

    def validated(self) -> None:
        """End its validation."""
        self._validation += time.perf_counter() - self._validating

    def end(self, trainer: Any) -> None:
        """End the epoch, but for what rfdetr does after it.

        Its training ended with its last batch: what is neither that nor validation is writing the best weights.
        """
        self._ended = time.perf_counter()
        train = self._trained - self._began - self._within
        batches = trainer.num_training_batches
        validated = sum(len(loader.dataset) for loader in _loaders(trainer)) if self._validation else 0
        one = Epoch(
            epoch=trainer.current_epoch,
            train=train,
            validation=self._validation,
            other=self._ended - self._began - train - self._validation,
            train_images=int(batches) * self._batch,
            validation_images=validated,
            first=self._first,
        )
        self._first = False
        self.epochs.append(one)
        self._keep()

    def close(self) -> None:
        """Add what came after the epoch to it: writing checkpoints."""
        if self._ended is None:
            return
        after, self._ended = time.perf_counter() - self._ended, None
        self.epochs[-1] = self.epochs[-1].model_copy(update={"other": self.epochs[-1].other + after})
        self._keep()
        last = self.epochs[-1]
        self._tell(f"epoch {last.epoch}: {last.seconds:.1f} s, of which validation {last.validation:.1f} s")

    def _keep(self) -> None:
        write_epochs(self._path, self.epochs)


def _loaders(trainer: Any) -> list[Any]:
    found = trainer.val_dataloaders
    return list(found) if isinstance(found, list | tuple) else [found] if found is not None else []


def fit_epochs(built: Built, clock: EpochClock) -> None:
    """Run rfdetr's own ``fit`` to the last epoch, from its last checkpoint where there is one."""
    from rfdetr.training import RFDETRDataModule

    built.trainer.callbacks.insert(0, clock.callback())  # before those that write checkpoints
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        module = RFDETRDataModule(built.model_config, built.train_config)
        with ctrl_c_kept():
            built.trainer.fit(built.module, datamodule=module, ckpt_path=built.train_config.resume or None)
