"""Work per step on the host: ATen ops and Python calls, by phase and by name, with source lines."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

from perf.probes.parts import Tally
from perf.probes.phases import OTHER, phase_hooks
from perf.probes.source import function_of, is_user_code, line_of, short_path, user_frames
from perf.probes.trace import Event
from perf.record import Part, Signal
from perf.rfdetr_api import Stepper


def aten_ops(events: list[Event], lines: dict[str, list[str]]) -> Signal:
    """Return the ATen ops that the profiler saw in one step, composite ops and what they call included.

    ``lines`` gives the source lines of ``"<phase> aten::<op>"`` where :func:`op_lines` could tell them.
    """
    tally = Tally()
    for event in events:
        if event.category == "cpu_op" and event.name.startswith("aten::"):
            tally.add(f"{event.phase} {event.name}")
    parts = [Part(name=part.name, value=part.value, where=lines.get(part.name, [])) for part in tally.parts()]
    return Signal(name="aten_ops", kind="count-volume", unit="ops", value=tally.total, parts=parts)


def op_lines(stepper: Stepper) -> dict[str, list[str]]:
    """Return, for every op that reaches the dispatcher in one eager step, the source lines that called it.

    Backward ops have no Python line of their own and are absent. Compiled code must not run under a
    dispatch mode (Dynamo would fall back), so this is for eager cases.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    tally, phase = Tally(), [OTHER]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            frame = next(user_frames(sys._getframe(1)), None)
            if frame is not None:
                tally.add(f"{phase[0]} {func._schema.name}", line_of(frame))
            return func(*args, **(kwargs or {}))

    def enter(name: str) -> None:
        phase[0] = name

    batch = stepper.prepare()
    with phase_hooks(stepper, enter), Watch():
        stepper.step(batch)
    return {name: tally.where(name) for name in tally.counts}


def call_counts(stepper: Stepper) -> list[Signal]:
    """Return the Python and C calls of one step on the main thread, seen by ``sys.setprofile``.

    Calls into user code are counted by function, with the lines that called; calls into libraries by file.
    The garbage collector is off meanwhile, since what it runs depends on when it runs.
    """
    python, native, phase = Tally(), Tally(), [OTHER]

    def enter(name: str) -> None:
        phase[0] = name

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            _count_python(python, phase[0], frame)
        elif event == "c_call":
            native.add(f"{phase[0]} {_c_name(arg)}")

    batch = stepper.prepare()
    gc.collect()
    gc.disable()
    try:
        with phase_hooks(stepper, enter):
            sys.setprofile(watch)
            try:
                stepper.step(batch)
            finally:
                sys.setprofile(None)
    finally:
        gc.enable()
    return [_calls("python_calls", python), _calls("c_calls", native)]


def _count_python(tally: Tally, phase: str, frame: FrameType) -> None:
    filename = frame.f_code.co_filename
    if is_user_code(filename):
        caller = frame.f_back
        tally.add(f"{phase} {function_of(frame)}", line_of(caller) if caller else None)
    elif _OWN not in filename:
        tally.add(f"{phase} {short_path(filename)}")


# Frames of the probes themselves are not the step's.
_OWN = __file__.rpartition("probes")[0]


def _c_name(function: Any) -> str:
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"{module}.{name}".lstrip(".")


def _calls(name: str, tally: Tally) -> Signal:
    return Signal(name=name, kind="count-volume", unit="calls", value=tally.total, parts=tally.parts())
