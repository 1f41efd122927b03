"""The encoder learns ten times slower than it is told to."""

from typing import Any

from rfdetr.training import RFDETRModelModule

_configure = RFDETRModelModule.configure_optimizers


def configure_optimizers(self: RFDETRModelModule) -> Any:
    self.train_config.lr_encoder /= 10
    return _configure(self)


RFDETRModelModule.configure_optimizers = configure_optimizers
