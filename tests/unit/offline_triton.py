"""Triton's own compiler and launcher without a GPU, for an H100 or H200: everything but the launch itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

KERNEL = "torch_linear_assignment._triton._linear_assignment_kernel"


class _Driver:
    """What the launcher asks a GPU's driver before it compiles."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


@contextlib.contextmanager
def assignments(cache: Path) -> Iterator[Callable[[int], None]]:
    """Yield what has rfdetr's assignment kernel compiled for so many targets, with Triton's ``cache`` on disk there."""
    pytest.importorskip("triton")
    kernels = pytest.importorskip("torch_linear_assignment._triton")
    import torch
    from triton.runtime import driver

    kernel = kernels._linear_assignment_kernel
    kernel.device_caches.clear()
    types = [torch.float32] * 3 + [torch.int32] * 3

    def assign(targets: int) -> None:
        sizes = {"NUM_ROWS": targets, "NUM_COLUMNS": 300, "BLOCK_N": 512, "IS_FP64": False}
        kernel.warmup(*types, **sizes, num_warps=1, grid=(1,))

    try:
        # Its own reset_active asks for a driver of this machine, which may have none.
        with (
            mock.patch.object(driver, "_active", _Driver()),
            mock.patch.dict("os.environ", TRITON_CACHE_DIR=str(cache)),
        ):
            yield assign
    finally:
        kernel.device_caches.clear()
