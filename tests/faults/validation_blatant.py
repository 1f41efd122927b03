"""Validation runs the trained model too, besides the averaged one."""

from typing import Any

from rfdetr.training import RFDETRModelModule

_validation_step = RFDETRModelModule.validation_step


def validation_step(self: RFDETRModelModule, batch: Any, batch_index: int) -> Any:
    self.model(batch[0])
    return _validation_step(self, batch, batch_index)


RFDETRModelModule.validation_step = validation_step
