"""Work per step on the host: ATen ops and Python calls, by phase and by name, with source lines."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from perf.probes.parts import Tally
from perf.probes.phases import CurrentPhase, phase_hooks
from perf.probes.source import function_of, is_user_code, line_of, short_path, user_frames, without_hash
from perf.probes.trace import OP, Event
from perf.record import Signal
from perf.rfdetr_api import Stepper


def aten_ops(events: list[Event], called: Tally) -> Signal:
    """Return the ATen ops that the profiler saw in one step, composite ops and what they call included.

    ``called`` are the ops of :func:`dispatched_ops`; they split an op's count by the function that called it,
    and the rest (called by other ops, by autograd or by compiled code) stays under the op's own name.
    """
    seen = Tally()
    for event in events:
        if event.category == OP and event.name.startswith("aten::"):
            seen.add(f"{event.phase} {event.name}")
    total = seen.total
    for name, count in called.counts.items():
        op = name.partition(_IN)[0]
        if count <= seen.counts[op]:
            seen.counts[op] -= count
            seen.counts[name] = count
            seen.lines[name] = called.lines[name]
    seen.counts = +seen.counts  # drops what has become zero
    return Signal(name="aten_ops", kind="count-volume", unit="ops", value=total, parts=seen.parts())


# Between an op and the function that called it, in the name of a part.
_IN = " in "


def dispatched_ops(stepper: Stepper) -> Tally:
    """Return every op that user code sent to the dispatcher in one eager step: ``<phase> aten::<op> in <function>``.

    Backward ops have no Python line of their own and are absent. Compiled code must not run under a
    dispatch mode (Dynamo would fall back), so this is for eager cases.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    tally, phase = Tally(), CurrentPhase()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            frame = next(user_frames(sys._getframe(1)), None)
            if frame is not None:
                tally.add(f"{phase.name} {func._schema.name}{_IN}{function_of(frame)}", line_of(frame))
            return func(*args, **(kwargs or {}))

    batch = stepper.prepare()
    with phase_hooks(stepper, phase.enter), Watch():
        stepper.step(batch)
    return tally


def call_counts(stepper: Stepper) -> list[Signal]:
    """Return the Python and C calls of one step on the main thread, seen by ``sys.setprofile``.

    Calls into user code are counted by function, with the lines that called; calls into libraries by file.
    The garbage collector is off meanwhile, since what it runs depends on when it runs.
    """
    phase, batch = CurrentPhase(), stepper.prepare()
    with phase_hooks(stepper, phase.enter):
        python, native = calls_of(lambda: stepper.step(batch), phase)
    return [calls_signal("python_calls", python), calls_signal("c_calls", native)]


def calls_of(work: Callable[[], object], phase: CurrentPhase) -> tuple[Tally, Tally]:
    """Return the Python and the C calls of ``work``, each named after the ``phase`` that it is in."""
    python, native = Tally(), Tally()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            _count_python(python, phase.name, frame)
        elif event == "c_call":
            native.add(f"{phase.name} {_c_name(arg)}")

    before = sys.getprofile()
    with collector_off():
        sys.setprofile(watch)
        try:
            work()
        finally:
            sys.setprofile(before)
    return python, native


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Collect garbage now, and none meanwhile: when the collector runs is no property of a step."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _count_python(tally: Tally, phase: str, frame: FrameType) -> None:
    filename = frame.f_code.co_filename
    if is_user_code(filename):
        tally.add(f"{phase} {function_of(frame)}", _call_site(frame))
    elif _OWN not in filename:
        tally.add(f"{phase} {short_path(filename)}")


def _call_site(frame: FrameType) -> str:
    """Return the line that called ``frame``'s function; where a library did, the line of its definition."""
    caller = frame.f_back
    if caller is not None and is_user_code(caller.f_code.co_filename):
        return line_of(caller)
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_code.co_firstlineno}"


# Frames of the probes themselves are not the step's.
_OWN = __file__.rpartition("probes")[0]


def _c_name(function: Any) -> str:
    module = without_hash(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"{module}.{name}".lstrip(".")


def calls_signal(name: str, tally: Tally) -> Signal:
    """Return the calls of a tally as a signal."""
    return Signal(name=name, kind="count-volume", unit="calls", value=tally.total, parts=tally.parts())
