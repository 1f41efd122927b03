"""Rank 1 sleeps in every training step, before its forward pass."""

import functools
import os
import time
from typing import Any

from rfdetr.training import RFDETRModelModule

_training_step = RFDETRModelModule.training_step
slow = os.environ["RANK"] == "1"


@functools.wraps(_training_step)
def training_step(self: RFDETRModelModule, *args: Any, **kwargs: Any) -> Any:
    if slow:
        time.sleep(1.0)
    return _training_step(self, *args, **kwargs)


RFDETRModelModule.training_step = training_step
