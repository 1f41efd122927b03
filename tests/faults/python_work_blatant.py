"""Calls 2000 Python functions more in each training step."""

import functools
from typing import Any

from rfdetr.training import RFDETRModelModule

CALLS = 2000


def work(number: int) -> int:
    return number * number


_training_step = RFDETRModelModule.training_step


@functools.wraps(_training_step)  # Lightning looks at its signature in every step
def training_step(self: RFDETRModelModule, *args: Any, **kwargs: Any) -> Any:
    for number in range(CALLS):
        work(number)
    return _training_step(self, *args, **kwargs)


RFDETRModelModule.training_step = training_step
