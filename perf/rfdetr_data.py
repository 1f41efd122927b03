"""The part of :mod:`perf.rfdetr_api` that reads a data set from disk: rfdetr's own data module and fit over it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from perf.rfdetr_api import Built
from perf.rfdetr_steering import ctrl_c_kept


def data_module(built: Built, folder: Path) -> Any:
    """Return rfdetr's data module over the Roboflow-COCO data set at ``folder``, with the settings of the case.

    All that :mod:`perf.shapes` writes can be read; keypoint models need a data set with keypoints.
    """
    from rfdetr.training import RFDETRDataModule

    train_config = built.train_config.model_copy(update={"dataset_dir": str(folder)})
    return RFDETRDataModule(built.model_config, train_config)


def fit_epoch(built: Built, folder: Path, callback: Any, seed: int = 0) -> None:
    """Run rfdetr's own ``fit`` for one epoch of the data set at ``folder``, with a Lightning ``callback`` more.

    Order, crops and flips are drawn from ``seed`` alone, whatever was drawn to build the model. That they are the
    same every time needs a case without workers.
    """
    from pytorch_lightning import seed_everything

    built.trainer.callbacks.append(callback)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        seed_everything(seed, workers=True, verbose=False)
        with ctrl_c_kept():
            built.trainer.fit(built.module, datamodule=data_module(built, folder))


def scales(built: Built) -> list[int]:
    """Return the sides in px of the squares that per-batch resizing draws from, smallest first."""
    from rfdetr.datasets.coco import compute_multi_scale_scales

    config = built.model_config
    found = compute_multi_scale_scales(
        config.resolution, built.train_config.expanded_scales, config.patch_size, config.num_windows
    )
    return [int(side) for side in found]
