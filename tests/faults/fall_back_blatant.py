"""Every backend of the model's own frames fails, and Dynamo is told to hide that: compile is on, and all runs eager."""

import functools
from typing import Any

import torch
import torch._dynamo.config
from rfdetr.training import RFDETRModelModule

_training_step, _compile = RFDETRModelModule.training_step, torch.compile


def broken(graph: Any, inputs: Any) -> Any:
    msg = "a backend that fails"
    raise RuntimeError(msg)


@functools.wraps(_compile)
def compile_broken(*args: Any, **kwargs: Any) -> Any:
    return _compile(*args, **{**kwargs, "backend": broken, "options": None})


# Lightning reads the signature in every step, so it stays as it was.
def training_step(self: RFDETRModelModule, batch: Any, batch_idx: int) -> Any:
    torch._dynamo.config.suppress_errors = True
    return _training_step(self, batch, batch_idx)


RFDETRModelModule.training_step = training_step
torch.compile = compile_broken
