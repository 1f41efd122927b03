"""The phases of a real fit: what the host is doing, from one wait for input to the next, with nothing left out.

The clock is the host's and nothing waits for the device: on a GPU a phase lasts as long as the host is in it, while the
device may still be at work on an earlier one. Where the device's time goes, the profile says.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from perf.probes.phases import BACKWARD, CRITERION, FORWARD, OPTIMIZER, OTHER
from perf.probes.triton_compiles import compiles_noted
from perf.rfdetr_api import Built
from perf.rfdetr_fit import GRAPH_RUNNER, matching_watched

INPUT_WAIT = "input_wait"
HOST_TO_DEVICE = "host_to_device"
MATCHING = "matching"
EMA = "ema"
LOGGING = "logging"
# Only where rfdetr augments on the GPU: it does so as a part of moving a batch there.
AUGMENTATION = "augmentation"
FIT_PHASES = (
    INPUT_WAIT,
    HOST_TO_DEVICE,
    FORWARD,
    MATCHING,
    CRITERION,
    BACKWARD,
    OPTIMIZER,
    EMA,
    LOGGING,
    OTHER,
)
# Of a validation.
MODEL, SCORING = "model", "scoring"
# No phase: the loop turns to validation, and has its workers started next.
_VALIDATION = "(validation)"

# What Lightning tells its profiler that it does, before and after. Phases nest: the optimizer's step calls for forward
# and backward, which are not it; the training step is what its parts are not.
_ACTIONS = (
    (r"\[_TrainingEpochLoop\]\.train_dataloader_next", INPUT_WAIT),
    (r"\[_EvaluationLoop\]\.val_next", INPUT_WAIT),
    (r"\[Strategy\]\w+\.batch_to_device", HOST_TO_DEVICE),
    (r"\[LightningDataModule\]\w+\.on_after_batch_transfer", AUGMENTATION),
    (r"\[Strategy\]\w+\.training_step", OTHER),
    (r"\[Strategy\]\w+\.backward", BACKWARD),
    (r"\[LightningModule\]\w+\.(optimizer_step|optimizer_zero_grad|lr_scheduler_step)", OPTIMIZER),
    (r"\[Callback\]RFDETREMACallback.*\.on_train_batch_end", EMA),
    (r"\[Callback\]\w*ProgressBar.*\.on_train_batch_(start|end)", LOGGING),
    (r"\[LightningModule\]\w+\.on_validation_model_zero_grad", _VALIDATION),
    (r"\[Strategy\]\w+\.validation_step", MODEL),
    (r"\[Callback\]COCOEvalCallback.*\.on_validation_(batch|epoch)_end", SCORING),
)
# Begins when the loop asks the loader for a batch.
NEXT_BATCH = "[_TrainingEpochLoop].train_dataloader_next"


def phase_of(action: str) -> str | None:
    """Return the phase of what Lightning calls ``action``; None where it is none of its own."""
    return next((phase for pattern, phase in _ACTIONS if re.fullmatch(pattern, action)), None)


class Timeline:
    """The phase that the host is in, and the seconds spent in each since the last :meth:`lap`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}
        # Told the phase that ends and the one that begins; None while nobody watches.
        self.watch: Callable[[str, str], None] | None = None
        self._open = [OTHER]
        self._since = clock()

    @property
    def phase(self) -> str:
        """The phase now."""
        return self._open[-1]

    def push(self, phase: str) -> None:
        """Begin ``phase`` inside the one that is open."""
        self._account()
        before = self._open[-1]
        self._open.append(phase)
        if self.watch is not None:
            self.watch(before, phase)

    def pop(self) -> None:
        """End the innermost phase: the one around it goes on."""
        if len(self._open) == 1:  # its beginning was not seen
            return
        self._account()
        before = self._open.pop()
        if self.watch is not None:
            self.watch(before, self._open[-1])

    def lap(self) -> dict[str, float]:
        """Return the seconds of each phase since the last lap."""
        self._account()
        done, self.seconds = self.seconds, {}
        return done

    def resume(self) -> None:
        """Go on from now, in no phase: what came since the last lap is not counted."""
        self._since, self.seconds, self._open = self.clock(), {}, [OTHER]

    def _account(self) -> None:
        now, phase = self.clock(), self._open[-1]
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class Update:
    """What came between two waits for input: one optimizer update of one or more batches, in seconds by phase.

    ``whole``: nothing else was among it, such as the end of an epoch. ``validation``: it was a validation.
    ``compiled``: the kernels that Triton compiled meanwhile.
    """

    seconds: dict[str, float]
    whole: bool = True
    validation: bool = False
    compiled: tuple[str, ...] = ()

    @property
    def milliseconds(self) -> float:
        """All of it in ms."""
        return 1e3 * sum(self.seconds.values())


class FitClock:
    """Follows a fit and tells ``on_update`` of every update when it is over; what that takes is in no update."""

    def __init__(self, built: Built, on_update: Callable[[Update], None]) -> None:
        self.built = built
        self.timeline = Timeline()
        self.muted = False
        # Puts something else in the place of what is logged.
        self.logged: Callable[[Any], Any] | None = None
        self._validated = False
        self._compiled: list[str] = []
        self._on_update = on_update
        self._step: int | None = None
        self._whole = False
        self._hooks = contextlib.ExitStack()

    def callback(self) -> Any:
        """Return the Lightning callback that starts and ends it."""
        from pytorch_lightning import Callback

        clock = self

        class Follow(Callback):
            def on_train_start(self, *_: Any) -> None:
                # Now, and not before: EMA has copied the module, which must not take the hooks along.
                clock.install()

            def on_train_epoch_end(self, *_: Any) -> None:
                clock.spoil()

            def on_train_end(self, *_: Any) -> None:
                clock.remove()

        return Follow()

    def install(self) -> None:
        """Have the phases followed from here on."""
        self.remove()
        trainer, stack = self.built.trainer, contextlib.ExitStack()
        before = trainer.profiler
        trainer.profiler = _profiler(self)
        stack.callback(setattr, trainer, "profiler", before)
        stack.enter_context(_module_phases(self))
        stack.enter_context(compiles_noted(self._compiled))
        self._step, self._hooks = None, stack

    def remove(self) -> None:
        """Leave nothing of the hooks in Lightning or rfdetr."""
        self._hooks.close()

    def spoil(self) -> None:
        """Note that the update that is open has something else in it."""
        self._whole = False

    def begin_validation(self) -> None:
        """Keep what was of the update, and count what comes for the validation."""
        self.timeline.lap()
        self._whole, self._validated = False, True

    def next_batch(self) -> None:
        """Tell of the update where the batch that is fetched now is the first of another one."""
        step = self.built.trainer.global_step
        if step == self._step:
            return
        if self._step is None:  # the first one begins here
            self._step, self._whole = step, True
            self._compiled.clear()
            self._follow_graphs()
            self.timeline.resume()
            return
        update = Update(self.timeline.lap(), self._whole, self._validated, tuple(self._compiled))
        self._step, self._whole, self._validated = step, True, False
        self._compiled.clear()
        self._on_update(update)
        self.timeline.resume()

    def _follow_graphs(self) -> None:
        """Follow rfdetr's own CUDA graphs, which replay the model's forward without calling it.

        rfdetr sets them up when training starts, after callbacks were told of that.
        """
        module, runner = self.built.module, getattr(self.built.module, GRAPH_RUNNER, None)
        if runner is not None:
            called = _counted(runner, FORWARD, self.timeline)
            self._hooks.enter_context(mock.patch.object(module, GRAPH_RUNNER, called))


def _profiler(clock: FitClock) -> Any:
    """Return Lightning's profiler that follows phases instead: it is told of every hook, with or without one."""
    from pytorch_lightning.profilers import Profiler

    timeline, phases = clock.timeline, dict[str, str | None]()
    on_cpu = clock.built.case.augmentation == "cpu"  # the workers do it then

    class Phases(Profiler):
        def start(self, action_name: str) -> None:
            if action_name == NEXT_BATCH:
                clock.next_batch()
            if action_name not in phases:
                found = phase_of(action_name)
                phases[action_name] = None if found == AUGMENTATION and on_cpu else found
            phase = phases[action_name]
            if phase == _VALIDATION:
                clock.begin_validation()
            elif phase is not None:
                timeline.push(phase)

        def stop(self, action_name: str) -> None:
            if phases.get(action_name) not in (None, _VALIDATION):
                timeline.pop()

    return Phases()


@contextlib.contextmanager
def _module_phases(clock: FitClock) -> Iterator[None]:
    """Follow what Lightning does not name: the model, the criterion and its matcher, and logging."""
    timeline, module, trainer = clock.timeline, clock.built.module, clock.built.trainer
    with contextlib.ExitStack() as stack:
        for part, phase in ((module.model, FORWARD), (module.criterion, CRITERION)):
            for handle in _around(part, phase, timeline):
                stack.callback(handle.remove)
        stack.enter_context(matching_watched(module.criterion, lambda: timeline.push(MATCHING), timeline.pop))
        for name in ("log", "log_dict"):
            stack.enter_context(mock.patch.object(module, name, _logging(getattr(module, name), clock), create=True))
        connector = trainer._logger_connector
        for name in ("on_batch_end", "update_train_step_metrics"):
            if hasattr(connector, name):  # Lightning's own, and not public
                called = _counted(getattr(connector, name), LOGGING, timeline)
                stack.enter_context(mock.patch.object(connector, name, called))
        yield


def _around(part: Any, phase: str, timeline: Timeline) -> list[Any]:
    def before(*_: Any) -> None:
        timeline.push(phase)

    def after(*_: Any) -> None:
        timeline.pop()

    return [part.register_forward_pre_hook(before), part.register_forward_hook(after)]


def _logging(real: Callable[..., Any], clock: FitClock) -> Callable[..., Any]:
    timeline = clock.timeline

    def log(name: Any, *args: Any, **kwargs: Any) -> None:
        if clock.muted:
            return
        timeline.push(LOGGING)
        try:
            if clock.logged is not None and args:  # Lightning's log_dict passes a value by its name, and it is a tensor
                args = clock.logged(args[0]), *args[1:]
            real(name, *args, **kwargs)
        finally:
            timeline.pop()

    return log


def _counted(real: Callable[..., Any], phase: str, timeline: Timeline) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        timeline.push(phase)
        try:
            return real(*args, **kwargs)
        finally:
            timeline.pop()

    return counted
