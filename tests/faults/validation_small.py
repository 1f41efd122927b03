"""Validation runs its model once more in its first batch."""

from typing import Any

from rfdetr.training import RFDETRModelModule

_validation_step = RFDETRModelModule.validation_step


def validation_step(self: RFDETRModelModule, batch: Any, batch_index: int) -> Any:
    if batch_index == 0:
        self.model(batch[0])
    return _validation_step(self, batch, batch_index)


RFDETRModelModule.validation_step = validation_step
