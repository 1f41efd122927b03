"""Rank 1 sleeps in every training step, before its forward pass."""

import os
import time
from typing import Any

from rfdetr.training import RFDETRModelModule

_training_step = RFDETRModelModule.training_step


def training_step(self: RFDETRModelModule, *args: Any, **kwargs: Any) -> Any:
    if os.environ["RANK"] == "1":
        time.sleep(1.5)
    return _training_step(self, *args, **kwargs)


RFDETRModelModule.training_step = training_step
