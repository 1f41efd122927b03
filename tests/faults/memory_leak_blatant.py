"""Keeps 4 MB of each training step for ever."""

import functools
from typing import Any

import torch
from rfdetr.training import RFDETRModelModule

FLOATS = 1048576
kept: list[torch.Tensor] = []
_training_step = RFDETRModelModule.training_step


@functools.wraps(_training_step)  # Lightning looks at its signature in every step
def training_step(self: RFDETRModelModule, *args: Any, **kwargs: Any) -> Any:
    kept.append(torch.zeros(FLOATS, device=self.device))
    return _training_step(self, *args, **kwargs)


RFDETRModelModule.training_step = training_step
