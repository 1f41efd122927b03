"""rfdetr itself: builds what a case names, and steps it through rfdetr's own loop.

Differences between releases 1.9.0 to 1.11.2 live here and in the other ``rfdetr_*`` modules, and nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from perf.case import Case
from perf.rfdetr_configs import NOTHING_MORE, More, build_configs
from perf.rfdetr_steering import ctrl_c_kept, set_dynamo

Sample = tuple[Any, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class BuiltModule:
    """What rfdetr made of a case, except the trainer, which may need the case's device.

    ``adaptations`` says, in words, whatever was done to rfdetr on the way.
    """

    case: Case
    model_config: Any
    train_config: Any
    module: Any
    adaptations: list[str] = field(default_factory=list)

    @property
    def resolution(self) -> int:
        """Side of the square input, in pixels."""
        return int(self.model_config.resolution)


@dataclass(frozen=True, kw_only=True)
class Built(BuiltModule):
    """What rfdetr made of a case, ready to be fitted."""

    trainer: Any


@dataclass(frozen=True)
class Stepper:
    """One optimizer update at a time, by Lightning's own optimization loop, inside a running ``fit``.

    ``batch`` is what rfdetr's data module collated and moved to the device.
    """

    built: Built
    batch: tuple[Any, Any]

    @property
    def device(self) -> Any:
        """The torch device that the model is on."""
        return self.built.module.device

    @property
    def ddp(self) -> Any:
        """The DistributedDataParallel that the step goes through; None where it goes through none."""
        wrapped = self.built.trainer.strategy.model
        return None if wrapped is self.built.module else wrapped

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it; nothing to wait for on a CPU."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def prepare(self) -> tuple[Any, Any]:
        """Return the batch for the next step, after rfdetr's own batch-start hook (multi-scale resize).

        Ranks wait for each other here, so that a step begins on all of them at once.
        """
        self.built.trainer.strategy.barrier()
        samples, targets = self.batch
        fresh = type(samples)(**_nested_fields(samples))
        batch = (fresh, targets)
        self.built.module.on_train_batch_start(batch, 0)
        return batch

    def step(self, batch: tuple[Any, Any]) -> None:
        """Run one step: forward, criterion with matching, backward, clipping, optimizer; no synchronization."""
        loop = self.built.trainer.fit_loop.epoch_loop
        kwargs = {"batch": batch, "batch_idx": 0}
        if self.built.module.automatic_optimization:
            loop.automatic_optimization.run(self.built.trainer.optimizers[0], 0, kwargs)
        else:
            loop.manual_optimization.run(kwargs)


def _nested_fields(samples: Any) -> dict[str, Any]:
    fields = {"tensors": samples.tensors, "mask": samples.mask}
    if hasattr(samples, "no_padding"):  # from 1.10.0
        fields["no_padding"] = samples.no_padding
    return fields


@contextlib.contextmanager
def _without_hub(model_config: Any) -> Iterator[list[str]]:
    """Keep rfdetr from fetching weights for a config whose DINOv2 would come from a hub."""
    if model_config.pretrain_weights is None:
        yield []
        return
    with mock.patch("rfdetr.training.module_model.load_pretrain_weights", return_value=None):
        yield ["rfdetr's load_pretrain_weights skipped: this config would fetch DINOv2 weights from a hub"]


# Where files lie says nothing of the work, and a path is this machine's own.
_PATHS = ("dataset_dir", "output_dir")


def flags(built: BuiltModule) -> dict[str, str]:
    """Return the settings of the model and of the training that are not rfdetr's defaults, as one would write them."""
    found: dict[str, str] = {}
    for config in (built.model_config, built.train_config):
        for name, field_ in type(config).model_fields.items():
            value = getattr(config, name)
            if name not in _PATHS and value != field_.get_default(call_default_factory=True):
                found[name] = repr(getattr(value, "value", value))  # of an enumeration, what one would write
    return found


# A trainer that writes nothing and validates nothing: what probes of single steps need.
_BARE = {"include_training_callbacks": False, "max_epochs": 1, "limit_val_batches": 0}


def load() -> None:
    """Import rfdetr and all that it trains with: seconds, which a reader of the progress should see apart."""
    importlib.import_module("rfdetr.training")


def build(case: Case, output_dir: Path, seed: int = 0, more: More = NOTHING_MORE) -> Built:
    """Build the model, criterion, Lightning module and trainer of ``case``, with random weights and no download.

    Call it inside :func:`steered`, on a machine that has the device of the case. ``output_dir`` is where rfdetr
    may write.

    Raises:
        ValueError: this rfdetr has no such config or setting.
    """
    from rfdetr.training import build_trainer

    built = build_module(case, output_dir, seed, more)
    asked = more.trainer or _BARE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on devices
        trainer = build_trainer(
            built.train_config, built.model_config, accelerator=case.lane, enable_model_summary=False, **asked
        )
    return Built(**vars(built), trainer=trainer)


def build_module(case: Case, output_dir: Path, seed: int = 0, more: More = NOTHING_MORE) -> BuiltModule:
    """Build what :func:`build` builds, except the trainer; works without the device of the case too.

    Raises:
        ValueError: this rfdetr has no such config or setting.
    """
    from pytorch_lightning import seed_everything
    from rfdetr.training import RFDETRModelModule

    seed_everything(seed, workers=True, verbose=False)
    model_config, train_config = build_configs(case, output_dir, more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rfdetr warns that random weights are random
        with _without_hub(model_config) as adaptations:
            module = RFDETRModelModule(model_config, train_config)
    set_dynamo(case)  # now, since rfdetr has just set its own
    return BuiltModule(
        case=case, model_config=model_config, train_config=train_config, module=module, adaptations=adaptations
    )


def fit(built: Built, samples: list[Sample], body: Callable[[Stepper], None]) -> None:
    """Start rfdetr's own ``fit`` on one batch of ``samples`` and call ``body`` where its first step would begin.

    ``samples`` are (image float32 (3, H, W), target dict) pairs, as rfdetr's datasets yield them. By then
    Lightning has moved model and batch to the device and made optimizer, precision plugin and hooks.
    Only the steps that ``body`` asks for are run, and whatever it raises comes out of here.
    """
    from pytorch_lightning import Callback

    class RunBody(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            body(Stepper(built, batch))
            # Lightning takes -1 for: skip the rest of the epoch.
            stack.enter_context(mock.patch.object(pl_module, "on_train_batch_start", return_value=-1))

    built.trainer.callbacks.append(RunBody())
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers does not apply to one batch
        with ctrl_c_kept():
            built.trainer.fit(built.module, datamodule=_data_module(built, samples))


def validate(built: Built, samples: list[Sample], batches: int) -> list[str]:
    """Run Lightning's own validation loop on ``batches`` batches of ``samples``, after :func:`fit`.

    rfdetr validates the EMA's copy of the model where it trains with EMA, its default: so that is what runs here.
    Returns, in words, whatever was done to rfdetr for it.
    """
    averages = [callback for callback in _training_callbacks(built) if type(callback).__name__ == "RFDETREMACallback"]
    for callback in averages:
        callback.setup(built.trainer, built.module, "fit")
    built.trainer.callbacks.extend(averages)
    built.trainer.limit_val_batches = batches
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        with ctrl_c_kept():
            built.trainer.validate(built.module, datamodule=_data_module(built, samples, batches), verbose=False)
    return ["EMA attached after the steps, so that validation runs the model that it runs by default"] * len(averages)


def _training_callbacks(built: Built) -> list[Any]:
    """Return the callbacks that rfdetr trains with by default, new ones."""
    from rfdetr.training import build_trainer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(build_trainer(built.train_config, built.model_config, accelerator=built.case.lane).callbacks)


def _data_module(built: Built, samples: list[Sample], val_batches: int = 0) -> Any:
    """Return rfdetr's data module with ``samples`` for a data set: its own collation, packing and transfer.

    Lightning has each of n ranks read every n-th item, so that each sample is there n times: a rank reads its own.
    """
    from rfdetr.training import RFDETRDataModule
    from torch.utils.data import DataLoader

    def each(count: int) -> list[Sample]:
        return [sample for sample in samples * count for _ in range(built.case.ranks)]

    class OneBatch(RFDETRDataModule):
        def setup(self, stage: str | None = None) -> None:
            """Nothing to read from disk."""

        def train_dataloader(self) -> Any:
            collate = getattr(self, "_collate_fn_train", self._collate_fn)
            return DataLoader(each(1), batch_size=len(samples), collate_fn=collate)

        def val_dataloader(self) -> Any:
            return DataLoader(each(val_batches), batch_size=len(samples), collate_fn=self._collate_fn)

    return OneBatch(built.model_config, built.train_config)
