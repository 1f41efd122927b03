"""Kernels that Triton compiles while a training runs: a launch with new constants waits for its compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


@contextlib.contextmanager
def compiles_noted(names: list[str]) -> Iterator[None]:
    """Add to ``names`` the module and name of a kernel each time that this process has it compiled at a launch.

    What Triton's cache on disk has counts too: that takes about a millisecond, a compile some hundred. Inductor's own
    kernels are not among them: it has them compiled before. Who was told until now is told still. Nothing is added
    where there is no Triton, or one that tells nobody.
    """
    found = _teller()
    if found is None:
        yield
        return
    owner, attribute = found
    before: Callable[..., Any] | None = getattr(owner, attribute)

    def told(**said: Any) -> Any:
        names.append(f"{said['fn'].module}.{said['fn'].name}")
        return None if before is None else before(**said)

    with mock.patch.object(owner, attribute, told):
        yield


def _teller() -> tuple[Any, str] | None:
    """Return where Triton looks for whom to tell of a compile: it moved with 3.4, and 3.0 has none."""
    try:
        from triton import knobs
    except ImportError:
        pass
    else:
        return knobs.runtime, "jit_post_compile_hook"
    try:
        from triton.runtime.jit import JITFunction
    except ImportError:
        return None
    return (JITFunction, "compiled_hook") if hasattr(JITFunction, "compiled_hook") else None
