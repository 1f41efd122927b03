"""Adds a graph break to the forward pass."""

from typing import Any

import torch
from rfdetr.models.lwdetr import LWDETR

_forward = LWDETR.forward


def forward(self: LWDETR, *args: Any, **kwargs: Any) -> Any:
    torch._dynamo.graph_break()
    return _forward(self, *args, **kwargs)


LWDETR.forward = forward
