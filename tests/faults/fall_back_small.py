"""A small compiled function has a backend that fails, and Dynamo is told to hide that: its frame runs eager."""

from typing import Any

import torch
import torch._dynamo.config
from rfdetr.training import RFDETRModelModule

_training_step = RFDETRModelModule.training_step


def broken(graph: Any, inputs: Any) -> Any:
    msg = "a backend that fails"
    raise RuntimeError(msg)


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


compiled = torch.compile(double, backend=broken)


# Lightning reads the signature in every step, so it stays as it was.
def training_step(self: RFDETRModelModule, batch: Any, batch_idx: int) -> Any:
    torch._dynamo.config.suppress_errors = True
    compiled(torch.ones(2))
    return _training_step(self, batch, batch_idx)


RFDETRModelModule.training_step = training_step
