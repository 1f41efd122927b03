"""Phases: which part of a step is running, told by hooks that only the work probes install."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from perf.rfdetr_api import Stepper

FORWARD = "forward"
CRITERION = "criterion"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
# Logging, zero_grad and Lightning's own work between the four.
OTHER = "other"
PHASES = (FORWARD, CRITERION, BACKWARD, OPTIMIZER, OTHER)


class CurrentPhase:
    """The phase that a step is in; pass its :meth:`enter` to :func:`phase_hooks`."""

    def __init__(self) -> None:
        self.name = OTHER

    def enter(self, name: str) -> None:
        """Take ``name`` as the phase from here on."""
        self.name = name


@contextlib.contextmanager
def phase_hooks(stepper: Stepper, enter: Callable[[str], None]) -> Iterator[None]:
    """Call ``enter(phase)`` whenever a step goes from one phase to another, while the context is open.

    ``optimizer`` includes gradient clipping, which Lightning does between the two.
    """
    from pytorch_lightning import Callback

    class Marks(Callback):
        def on_before_backward(self, *_: Any) -> None:
            enter(BACKWARD)

        def on_after_backward(self, *_: Any) -> None:
            enter(OTHER)

        def on_before_optimizer_step(self, *_: Any) -> None:
            enter(OPTIMIZER)

    marks = Marks()
    module, callbacks = stepper.built.module, stepper.built.trainer.callbacks
    handles = [
        *_around(module.model, FORWARD, enter),
        *_around(module.criterion, CRITERION, enter),
    ]
    callbacks.append(marks)
    try:
        yield
    finally:
        callbacks.remove(marks)
        for handle in handles:
            handle.remove()


def _around(module: Any, phase: str, enter: Callable[[str], None]) -> list[Any]:
    def before(*_: Any) -> None:
        enter(phase)

    def after(*_: Any) -> None:
        enter(OTHER)

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
