"""No worker reads the images, however many are asked for."""

from typing import Any

from rfdetr.training import RFDETRDataModule

_init = RFDETRDataModule.__init__


def start(self: RFDETRDataModule, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    self._num_workers = 0
    if not self._num_workers:
        self._prefetch_factor = None
        self._persistent_workers = False


RFDETRDataModule.__init__ = start
