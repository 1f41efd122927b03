"""Puts an op on the CPU into the forward pass: Inductor skips the CUDA graph that it is in."""

from typing import Any

import torch
from rfdetr.models.lwdetr import LWDETR

_forward = LWDETR.forward


def forward(self: LWDETR, samples: Any, *args: Any, **kwargs: Any) -> Any:
    found = _forward(self, samples, *args, **kwargs)
    on_host = torch.ones(2).cos().sum()
    found["pred_boxes"] = found["pred_boxes"] + 0 * on_host.to(found["pred_boxes"].device)
    return found


LWDETR.forward = forward
