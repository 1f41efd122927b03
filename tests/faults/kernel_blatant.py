"""Adds 100 kernels to the forward pass."""

from typing import Any

import torch
from rfdetr.models.lwdetr import LWDETR

TIMES = 100
_forward = LWDETR.forward


def forward(self: LWDETR, *args: Any, **kwargs: Any) -> Any:
    for _ in range(TIMES):
        torch.neg(self.refpoint_embed.weight)
    return _forward(self, *args, **kwargs)


LWDETR.forward = forward
