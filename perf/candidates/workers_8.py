"""Eight workers for the loader, whatever the case says."""

from typing import Any

from rfdetr.training import RFDETRDataModule

from perf.candidates import required

required(RFDETRDataModule, "train_dataloader")
WORKERS = 8
_init = RFDETRDataModule.__init__


def start(self: RFDETRDataModule, model_config: Any, train_config: Any) -> None:
    """Build the data module with its training config's workers replaced."""
    _init(self, model_config, train_config.model_copy(update={"num_workers": WORKERS}))


RFDETRDataModule.__init__ = start
