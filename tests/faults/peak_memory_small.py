"""Holds 4 MB more from the forward pass to the backward pass."""

from typing import Any

import torch
from rfdetr.models.lwdetr import LWDETR

FLOATS = 2**20
_forward = LWDETR.forward


def forward(self: LWDETR, *args: Any, **kwargs: Any) -> Any:
    weight = self.refpoint_embed.weight
    held = torch.zeros(FLOATS, device=weight.device)
    found = _forward(self, *args, **kwargs)
    found["pred_boxes"] = found["pred_boxes"] + 0 * (held * weight.sum()).sum()
    return found


LWDETR.forward = forward
