"""A small compiled function gets another shape in each of six steps, and its guards on the shape fail."""

from typing import Any

import torch
from rfdetr.training import RFDETRModelModule

SHAPES = 6
seen: list[int] = []


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


compiled = torch.compile(double, backend="eager", dynamic=False)
_training_step = RFDETRModelModule.training_step


# Lightning reads the signature in every step, so it stays as it was.
def training_step(self: RFDETRModelModule, batch: Any, batch_idx: int) -> Any:
    seen.append(1)
    compiled(torch.ones(min(len(seen), 1 + SHAPES)))
    return _training_step(self, batch, batch_idx)


RFDETRModelModule.training_step = training_step
