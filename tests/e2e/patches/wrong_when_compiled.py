"""The model's boxes are off by a thousandth, but only where Dynamo traces it: as a wrong kernel would be."""

from __future__ import annotations

from typing import Any

import torch
from rfdetr.models.lwdetr import LWDETR

real = LWDETR.forward


def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    found = real(self, *args, **kwargs)
    if torch.compiler.is_compiling():
        found["pred_boxes"] = found["pred_boxes"] * 1.001
    return found


LWDETR.forward = forward
