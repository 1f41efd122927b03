"""What a case changes of rfdetr's way to compile: its gate, torch.compile's arguments and Dynamo's settings."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from perf.case import Case


@contextlib.contextmanager
def steered(case: Case) -> Iterator[list[str]]:
    """Do to rfdetr, while the context is open, what ``case`` needs to run here; yield that in words.

    - cpu lane, ``compile``: rfdetr opens its compile gate only for ``rfdetr.config.DEVICE == "cuda"``.
    - another backend than Inductor: rfdetr names none, so ``torch.compile`` gets it as its default.
    - ``dynamic`` and ``mode``: replace what rfdetr passes for the model itself.
    - ``suppress_errors``, ``capture_scalars``, ``optimize_ddp``: what :func:`build_module` sets is undone at the end.
    """
    adaptations: list[str] = []
    with contextlib.ExitStack() as stack:
        if case.compile and case.lane == "cpu":
            stack.enter_context(mock.patch("rfdetr.config.DEVICE", "cuda"))
            adaptations.append("rfdetr.config.DEVICE set to 'cuda', so that rfdetr's compile gate opens on a CPU")
        if case.compile and case.backend != "inductor":
            stack.enter_context(_compile_with(functools.partial(_other_backend, case.backend)))
            adaptations.append(f"torch.compile called with backend={case.backend!r} and without Inductor's options")
        if case.dynamic != "rfdetr":
            stack.enter_context(_compile_with(functools.partial(_other_dynamic, DYNAMIC[case.dynamic])))
            adaptations.append(f"torch.compile called with dynamic={DYNAMIC[case.dynamic]} for the model")
        if case.mode != "default":
            stack.enter_context(_compile_with(functools.partial(_other_mode, case.mode)))
            adaptations.append(f"torch.compile called with the options of mode={case.mode!r} for the model")
        if settings := _dynamo_settings(case):
            stack.enter_context(_restored(settings))
            adaptations += [f"torch._dynamo.config.{name} set to {value}" for name, value in settings.items()]
        yield adaptations


DYNAMIC: dict[str, bool | None] = {"on": True, "off": False, "auto": None}
Arguments = dict[str, Any]


@contextlib.contextmanager
def _compile_with(change: Callable[[Any, Arguments], Arguments]) -> Iterator[None]:
    """Have ``torch.compile`` called with what ``change`` makes of its target and its keyword arguments."""
    import torch

    real = torch.compile

    @functools.wraps(real)
    def changed(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **change(args[0] if args else None, kwargs))

    with mock.patch("torch.compile", changed):
        yield


def _other_backend(backend: str, _target: Any, kwargs: Arguments) -> Arguments:
    return {"backend": backend, **{name: value for name, value in kwargs.items() if name != "options"}}


def _other_dynamic(dynamic: bool | None, target: Any, kwargs: Arguments) -> Arguments:
    return {**kwargs, "dynamic": dynamic} if _is_module(target) else kwargs


def _other_mode(mode: str, target: Any, kwargs: Arguments) -> Arguments:
    """Add the mode's options to rfdetr's: torch.compile takes a mode or options, and a mode is just options."""
    from torch._inductor import list_mode_options

    if not _is_module(target):  # the compiled losses and the matcher's cost have settings of their own
        return kwargs
    return {**kwargs, "options": {**list_mode_options(mode, kwargs.get("dynamic")), **(kwargs.get("options") or {})}}


def _is_module(target: Any) -> bool:
    import torch

    return isinstance(target, torch.nn.Module)


OPTIMIZE_DDP: dict[str, bool | str | None] = {
    "torch": None,
    "on": True,
    "off": False,
    "python-reducer": "python_reducer",
}


def _dynamo_settings(case: Case) -> dict[str, bool | str]:
    """Return the ``torch._dynamo.config`` entries that ``case`` sets."""
    wanted = {
        "suppress_errors": case.suppress_errors,
        "capture_scalar_outputs": case.capture_scalars,
        "optimize_ddp": OPTIMIZE_DDP[case.optimize_ddp],
    }
    return {name: value for name, value in wanted.items() if value is not None}


@contextlib.contextmanager
def _restored(names: Iterable[str]) -> Iterator[None]:
    """Leave these entries of ``torch._dynamo.config`` as they were."""
    import torch._dynamo.config as dynamo

    before = {name: getattr(dynamo, name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(dynamo, name, value)


def set_dynamo(case: Case) -> None:
    """Set the entries of ``torch._dynamo.config`` that ``case`` asks for: rfdetr sets its own while it builds."""
    import torch._dynamo.config as dynamo

    for name, value in _dynamo_settings(case).items():
        setattr(dynamo, name, value)


@contextlib.contextmanager
def ctrl_c_kept() -> Iterator[None]:
    """Raise KeyboardInterrupt where Lightning makes an exit of it: a session that goes on must know it for that."""
    try:
        yield
    except SystemExit as end:
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from end
