"""The part of :mod:`perf.rfdetr_api` that reads samples as a training does: rfdetr's own data module, data sets and
transforms, and a clock on the functions in which they decode, resize and augment.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from perf.annotations import DataSet
from perf.case import Case
from perf.rfdetr_configs import More, build_configs, version

Part = Literal["decode", "resize", "augment", "normalize"]
# What rfdetr's gpu backend takes from the workers: it augments and normalizes whole batches on the device.
AUGMENTING: tuple[Part, ...] = ("augment", "normalize")
KORNIA = "kornia"


@dataclass
class Clock:
    """What the functions of :func:`clocked` took since the last :meth:`reset`, in s, by part."""

    seconds: dict[str, float] = field(default_factory=dict)
    _running: bool = False

    def reset(self) -> None:
        """Begin anew."""
        self.seconds.clear()

    def around(self, part: Part | Callable[[Any], Part], real: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``real`` so that its time is kept; a part inside another is the other's.

        Where ``part`` is a function, it is asked of the first argument.
        """

        @functools.wraps(real)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return real(*args, **kwargs)
            self._running, started = True, time.perf_counter()
            try:
                return real(*args, **kwargs)
            finally:
                taken = time.perf_counter() - started
                name = part(args[0]) if callable(part) else part
                self.seconds[name] = self.seconds.get(name, 0.0) + taken
                self._running = False

        return timed


@contextlib.contextmanager
def clocked() -> Iterator[Clock]:
    """Keep the time of every function in which this rfdetr decodes, resizes, augments or normalizes a sample.

    What another release does elsewhere is not seen: the part is then absent.
    """
    clock = Clock()
    with contextlib.ExitStack() as stack:
        for part, owner, name in _functions():
            # As it is found: a patch, of a user or a test, may have replaced it.
            stack.enter_context(mock.patch.object(owner, name, clock.around(part, getattr(owner, name))))
        yield clock


def _functions() -> Iterator[tuple[Part | Callable[[Any], Part], Any, str]]:
    """Yield what each part is spent in, by the owner and name that are looked up when it is called."""
    from rfdetr.datasets import _torchvision, coco, transforms, yolo

    # From 1.10.0; up to 1.9.4 torchvision's own method decodes.
    decode = "_decode_image" if hasattr(coco.CocoDetection, "_decode_image") else "_load_image"
    yield "decode", coco.CocoDetection, decode
    if hasattr(yolo, "decode_image"):  # from 1.11.0; before, a YOLO set decodes within its __getitem__
        yield "decode", yolo, "decode_image"
    # All of rfdetr's own resizing transforms end in this one; boxes and masks are resized there too.
    yield "resize", _torchvision.Resize, "__call__"
    yield "augment", _torchvision.RandomHorizontalFlip, "__call__"
    # Where Albumentations is installed, rfdetr takes it by itself, for resizing too.
    yield _part_of, transforms.AlbumentationsWrapper, "__call__"
    yield "normalize", transforms.Normalize, "__call__"


_RESIZING = frozenset({"Resize", "SmallestMaxSize", "LongestMaxSize", "RandomSizedCrop"})


def _part_of(wrapper: Any) -> Part:
    return "resize" if _RESIZING.intersection(_names(wrapper.transform)) else "augment"


def _names(transform: Any) -> Iterator[str]:
    yield type(transform).__name__
    for inner in getattr(transform, "transforms", ()):
        yield from _names(inner)


def input_module(
    case: Case,
    data: DataSet,
    scratch: Path,
    *,
    resolution: int | None = None,
    backend: str | None = None,
) -> Any:
    """Return rfdetr's data module for ``case`` over ``data``, set up as for a fit.

    ``resolution``, the side in px, and ``backend``, rfdetr's word for one of augmentation, are the case's where they
    are not given.

    Raises:
        ValueError: rfdetr rejects the data set, or does not have the backend here; says what rfdetr says.
    """
    from rfdetr.training import RFDETRDataModule

    train = {
        "dataset_dir": str(data.root),
        # rfdetr tells Roboflow's two layouts apart itself, and takes YOLO's for one of them.
        "dataset_file": "coco" if data.layout == "coco" else "roboflow",
        "augmentation_backend": backend or case.augmentation,
    }
    model_config, train_config = build_configs(case, scratch, More(train=train))
    if resolution is not None:
        model_config = model_config.model_copy(update={"resolution": resolution})
    module = RFDETRDataModule(model_config, train_config)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rfdetr's advice on its default augmentation
            module.setup("fit")
    except Exception as error:
        backend = backend or case.augmentation
        told = f"{type(error).__name__}: {error}"
        msg = f"rfdetr {version()} rejects {data.root} with augmentation_backend={backend!r}: {told}"
        raise ValueError(msg) from error
    return module


def training_set(module: Any) -> Any:
    """Return the training data set of a data module that is set up."""
    return module._dataset_train


def augmentation_of(module: Any) -> str:
    """Return the backend that rfdetr took for a data module that is set up: ``cpu`` is the best that is installed."""
    return str(getattr(module._resolved_augmentation_backend, "value", module._resolved_augmentation_backend))


def training_loader(module: Any, workers: int, samples: int) -> Any:
    """Return the DataLoader that rfdetr builds to train with ``workers``, over the data set of ``module``.

    The set is repeated until it has ``samples``, so that an epoch does not end while its loader is timed.
    """
    from rfdetr.training import RFDETRDataModule
    from torch.utils.data import ConcatDataset

    train_config = module.train_config.model_copy(update={"num_workers": workers})
    fresh = RFDETRDataModule(module.model_config, train_config)
    data = training_set(module)
    fresh._dataset_train = ConcatDataset([data] * -(-samples // max(1, len(data))))
    return fresh.train_dataloader()


def device_augmentation(case: Case, module: Any) -> tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the device of ``case``, what moves a batch there, and what rfdetr then does to it in training.

    ``module`` is one with the gpu backend.
    """
    import torch
    from rfdetr.training import build_trainer

    device = torch.device("cuda" if case.lane == "gpu" else "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on devices
        trainer = build_trainer(
            module.train_config,
            module.model_config,
            accelerator=case.lane,
            include_training_callbacks=False,
            enable_model_summary=False,
        )
    trainer.training = True  # rfdetr augments nothing else
    module.trainer = trainer
    move = functools.partial(module.transfer_batch_to_device, device=device, dataloader_idx=0)
    return device, move, functools.partial(module.on_after_batch_transfer, dataloader_idx=0)


def seed_draws(seed: int) -> None:
    """Have the transforms draw the same crops and flips for the same ``seed``."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
