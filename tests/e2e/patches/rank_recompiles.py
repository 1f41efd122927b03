"""Rank 1 gives a small compiled function another dtype from the second step on; the other ranks do not."""

import os
from typing import Any

import torch
from rfdetr.training import RFDETRModelModule

_training_step = RFDETRModelModule.training_step
seen: list[int] = []


def _double(x: torch.Tensor) -> torch.Tensor:
    return x + x


double = torch.compile(_double, backend="eager")


def training_step(self: RFDETRModelModule, *args: Any, **kwargs: Any) -> Any:
    odd = os.environ["RANK"] == "1" and len(seen) > 0
    seen.append(1)
    double(torch.ones(2, dtype=torch.float64 if odd else torch.float32))
    return _training_step(self, *args, **kwargs)


RFDETRModelModule.training_step = training_step
