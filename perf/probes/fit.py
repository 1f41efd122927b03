"""Where the time of the real training loop goes: rfdetr's own fit, over a real loader, one pass after another.

Each pass looks at some updates in a row and changes nothing for the others. What fails in one is a note, and the next
goes on.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.annotations import DataSet
from perf.evidence import keep_profile
from perf.gates import AVERAGINGS, WORKERS
from perf.probes import compilation, fit_syncs
from perf.probes.fit_phases import FIT_PHASES, FitClock, Update
from perf.probes.fit_profile import END_MARK, Window, device_signals, gemm_signals, interpolation, mark, windows
from perf.probes.fit_signals import (
    cost_signals,
    fit_step,
    forwards_signal,
    kernel_compiles,
    more_is_better,
    validation_signals,
)
from perf.probes.fit_syncs import Sync, noting
from perf.probes.phases import OTHER
from perf.probes.trace import read_trace
from perf.progress import Progress
from perf.record import Part, Signal
from perf.rfdetr_api import Built
from perf.rfdetr_fit import NEVER, averagings, forwards_counted, loader_workers, run_fit

Pass = Generator[None, Update, None]
WARM_UP = "warm-up"


@dataclass(frozen=True)
class FitPlan:
    """How many updates each pass takes, after the first update and its validation.

    ``compared``: rounds of ``block`` updates each, with and without logging. ``named``: those whose syncs are named
    and whose shapes are noted, ``memory``: those whose peak is taken; on a GPU only. A validation takes at most
    ``val_batches``.
    """

    warmup: int
    timed: int
    compared: int
    block: int
    profiled: int
    named: int
    memory: int
    val_batches: int

    @property
    def updates(self) -> int:
        """The most updates that it takes, and a tenth more for those that an epoch's end spoils."""
        whole = self.warmup + self.timed + 3 * self.compared * self.block + self.profiled + self.named + self.memory
        return 12 + whole + whole // 10


# On a GPU the first ten updates still load modules and grow the allocator's pools. Blocks of four: only at their ends
# the device is waited for, as a loop that never waits would not be.
FIT_PLANS = {
    "cpu": FitPlan(warmup=2, timed=6, compared=2, block=1, profiled=1, named=0, memory=0, val_batches=2),
    "gpu": FitPlan(warmup=10, timed=40, compared=6, block=4, profiled=4, named=2, memory=2, val_batches=50),
}


class Fit:
    """The passes of one fit, and what they found: ``signals``, and in ``notes`` what was not measured and why.

    ``stem`` is the common start of the run's files.
    """

    def __init__(self, built: Built, plan: FitPlan, stem: Path, progress: Progress) -> None:
        self.built = built
        self.plan = plan
        self.signals: list[Signal] = []
        self.notes: list[str] = []
        self.updates = 0
        self._stem, self._progress = stem, progress
        self._clock = FitClock(built, self._on_update)
        self._left: list[str] = []
        self._running = self._passes()
        next(self._running)

    def run(self, data: DataSet) -> None:
        """Fit to ``data`` until every pass is done, or the training ends; what was found until then stays.

        Raises:
            ValueError: rfdetr rejects the data set.
            RuntimeError: the loader gave no batch.
        """
        try:
            run_fit(self.built, data, [self._clock.callback()])
        finally:
            self._clock.remove()
            self._running.close()
            self._end()
        if not self.updates and not self.built.trainer.global_step:
            msg = f"{data.root}: rfdetr's loader gave no batch, so that nothing was measured; give it more images"
            raise RuntimeError(msg)

    def _end(self) -> None:
        done = self.built.trainer.global_step
        if not self._left or not done:
            return
        told = f"the training ended after {done} updates, in the pass {self._left[0]!r}"
        if WARM_UP in self._left:
            told += f": fewer than the first, that of its validation and {self.plan.warmup} to warm up"
        rest = f"; not measured: {', '.join(self._left[1:])}" if self._left[1:] else ""
        self.notes.append(told + rest)

    def _on_update(self, update: Update) -> None:
        self.updates += 1
        try:
            self._running.send(update)
        except StopIteration:
            # No validation more: Lightning would have one on its way out.
            self.built.trainer.limit_val_batches = 0
            self.built.trainer.should_stop = True

    def _passes(self) -> Pass:
        passes: list[tuple[str, Callable[[], Pass]]] = [
            ("first update", self._first),
            ("first validation", self._first_validation),
            (WARM_UP, self._warm_up),
            ("phases", self._phases),
            ("cost of logging", self._logging),
            ("profile", self._profile),
            ("memory", self._memory),
            ("validation", lambda: self._validation("validation")),
        ]
        self._left = [name for name, _ in passes]
        for name, one in passes:
            yield from self._guarded(name, one)
            self._left.remove(name)

    def _guarded(self, name: str, one: Callable[[], Pass]) -> Pass:
        self._progress.say(f"fit: {name}")
        try:
            yield from one()
        except Exception as error:  # the passes that follow must not pay for it
            self.notes.append(f"{name} not measured: {type(error).__name__}: {error}")

    @property
    def _on_gpu(self) -> bool:
        return bool(self.built.module.device.type == "cuda")

    def _synchronize(self) -> None:
        import torch

        if self._on_gpu:
            torch.cuda.synchronize()

    def _compiling(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Tell how far it is while it may compile for minutes; nowhere else, since a thread does the telling."""
        if not self.built.case.compile:
            return contextlib.nullcontext()
        return self._progress.during(f"compiling ({what})", compilation.progress)

    def _first(self) -> Pass:
        with self._compiling("first update"):
            update = yield
        started = time.perf_counter()
        self._synchronize()
        seconds = sum(update.seconds.values()) + time.perf_counter() - started
        # Shown only, and with the start of the loader's workers.
        self.signals.append(Signal(name="first_step", kind="info", unit="s", value=seconds))

    def _first_validation(self) -> Pass:
        with self._compiling("validation"):
            yield from self._validation("first_validation")

    def _warm_up(self) -> Pass:
        for _ in range(self.plan.warmup):
            yield

    def _validation(self, name: str) -> Pass:
        trainer, forwards = self.built.trainer, list[str]()
        trainer.val_check_batch = self.built.case.accumulate  # a validation at the end of this very update
        try:
            with forwards_counted(self.built, forwards):
                update = yield
        finally:
            trainer.val_check_batch = NEVER
        if not update.validation:
            msg = "Lightning did not validate, though it was asked to"
            raise RuntimeError(msg)
        batches, whole = int(sum(trainer.num_val_batches)), len(trainer.val_dataloaders)
        self.signals += validation_signals(name, update, batches)
        if name == "validation":
            self.signals.append(forwards_signal(forwards))
        if batches < whole and name == "validation":
            self.notes.append(f"validation: {batches} of {whole} batches; that of a whole epoch takes longer")

    def _phases(self) -> Pass:
        found: list[Update] = []
        trainer = self.built.trainer
        step, averaged = trainer.global_step, averagings(trainer)
        try:
            while len(found) < self.plan.timed:
                update = yield
                found += [update] if update.whole else []
        finally:
            if found:
                self.signals += [fit_step(found), *([kernel_compiles(found)] if self._on_gpu else [])]
                share = (averagings(trainer) - averaged) / max(1, trainer.global_step - step)
                self.signals += [more_is_better(AVERAGINGS, share), more_is_better(WORKERS, loader_workers(trainer))]

    def _logging(self) -> Pass:
        """Compare blocks of updates with and without logging, and with the syncs of it taken out."""
        import torch

        constant = torch.zeros((), device=self.built.module.device)
        modes: dict[str, Callable[[], None]] = {
            "": self._log,
            "logging_cost": lambda: self._log(muted=True),
        }
        if self._on_gpu:
            modes["sync_cost"] = lambda: self._log(lambda value: value if torch.is_tensor(value) else constant)
        rounds: list[dict[str, float]] = []
        try:
            for number in range(self.plan.compared):
                rounds.append({})
                for mode in turn(list(modes), number):
                    modes[mode]()
                    yield from self._block(rounds[-1], mode)
        finally:
            self._log()
            self.signals += cost_signals(rounds)

    def _log(self, logged: Callable[[Any], Any] | None = None, *, muted: bool = False) -> None:
        self._clock.logged, self._clock.muted = logged, muted

    def _block(self, times: dict[str, float], mode: str) -> Pass:
        whole = True
        self._synchronize()
        started = time.perf_counter()
        for _ in range(self.plan.block):
            update = yield
            whole &= update.whole
        self._synchronize()
        if whole:
            times[mode] = 1e3 * (time.perf_counter() - started) / self.plan.block

    def _profile(self) -> Pass:
        if not self.plan.profiled:
            return
        seen = yield from self._profiled("profile", self.plan.profiled, keep=True)
        found = device_signals(seen)
        self.signals += [*found, interpolation(seen), *self._utilization(found)]
        if not self._on_gpu:
            self.notes.append("a CPU: no device signals (busy, idle, kernels, GEMM, syncs, memory by phase)")
            return
        if not found:
            self.notes.append("the profiler saw no kernel of the GPU (no CUPTI?): no busy, idle, kernels, GEMM, waits")
        syncs: list[list[Sync]] = []
        shaped = yield from self._profiled("shapes and lines", self.plan.named, shapes=True, syncs=syncs)
        self.signals += gemm_signals(shaped)
        if syncs:
            self.signals.append(fit_syncs.sync_counts(syncs))
        if found:
            self.signals.append(fit_syncs.sync_wait(seen, syncs[0] if syncs else []))

    def _utilization(self, found: list[Signal]) -> list[Signal]:
        """Return which share of an update the GPU is busy: by the step without the profiler, which slows the host."""
        by_name = {signal.name: signal for signal in [*self.signals, *found]}
        busy, step = by_name.get("fit_gpu_busy"), by_name.get("fit_step", by_name.get("profiled_step"))
        if busy is None or step is None:
            return []
        share = 100 * busy.value / step.value
        return [Signal(name="gpu_utilization", kind="info", unit="%", value=share, direction="higher")]

    def _profiled(
        self,
        what: str,
        count: int,
        *,
        keep: bool = False,
        shapes: bool = False,
        syncs: list[list[Sync]] | None = None,
    ) -> Generator[None, Update, list[Window]]:
        """Profile ``count`` updates after one to wait and one to warm the profiler up, and return those that are whole.

        The device is waited for after the last, outside of it, so that all of its work is in the trace.
        """
        from torch.profiler import profile, schedule

        whole: list[int] = []
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            path = Path(folder) / "trace.json"
            profiler = profile(
                activities=_activities(self._on_gpu),
                schedule=schedule(wait=1, warmup=1, active=count, repeat=1),
                on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
                record_shapes=shapes,
            )
            stack.enter_context(profiler)
            for _ in range(2):
                yield
                profiler.step()
            for number in range(count):
                update = yield from self._marked(number, syncs)
                whole += [number] if update.whole else []
                if number + 1 == count:
                    _leave_mark(END_MARK)
                    self._synchronize()
                profiler.step()
            if keep:
                self.notes += keep_profile(self._stem, path)
            seen = windows(read_trace(path), whole)
        if not seen:
            msg = f"{what}: the end of an epoch was among the updates"
            raise RuntimeError(msg)
        return seen

    def _marked(self, number: int, syncs: list[list[Sync]] | None) -> Generator[None, Update, Update]:
        timeline, found = self._clock.timeline, list[Sync]()
        watching = noting(lambda: timeline.phase, found) if syncs is not None else contextlib.nullcontext()
        _leave_mark(mark(number, OTHER))
        timeline.watch = lambda _, phase: _leave_mark(mark(number, phase))
        try:
            with watching:
                update = yield
        finally:
            timeline.watch = None
        if syncs is not None and update.whole:
            syncs.append(found)
        return update

    def _memory(self) -> Pass:
        import torch

        if not self._on_gpu:
            return
        peaks: dict[str, float] = defaultdict(float)

        def leave(phase: str, _: str = "") -> None:
            peaks[phase] = max(peaks[phase], torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

        torch.cuda.reset_peak_memory_stats()
        self._clock.timeline.watch = leave
        try:
            for _ in range(self.plan.memory):
                yield
                leave(OTHER)
        finally:
            self._clock.timeline.watch = None
        names = [*FIT_PHASES, *(phase for phase in peaks if phase not in FIT_PHASES)]
        parts = [Part(name=phase, value=peaks[phase]) for phase in names if phase in peaks]
        self.signals.append(
            Signal(name="phase_peak_memory", kind="device", unit="B", value=max(peaks.values()), parts=parts)
        )


def _activities(on_gpu: bool) -> list[Any]:
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]


def _leave_mark(name: str) -> None:
    from torch.profiler import record_function

    with record_function(name):
        pass


def turn(modes: list[str], number: int) -> list[str]:
    """Return the order of round ``number``: forth and back, so that what drifts over updates is no cost of a mode."""
    return modes[::-1] if number % 2 else modes
