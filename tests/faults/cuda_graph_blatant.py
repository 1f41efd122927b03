"""Takes no CUDA graph of the compiled model, though it is asked for."""

import functools
from typing import Any

import torch

_compile = torch.compile


@functools.wraps(_compile)
def compile_without(*args: Any, **kwargs: Any) -> Any:
    options = {**(kwargs.get("options") or {}), "triton.cudagraphs": False}
    return _compile(*args, **{**kwargs, "options": options})


torch.compile = compile_without
