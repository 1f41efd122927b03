"""An epoch: which shapes reach the model, what they make Dynamo compile, and which steps run eager for it."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import CodeType
from typing import Any
from unittest import mock

from perf.pool import parts_by_name
from perf.probes import compilation
from perf.probes.fit_phases import NEXT_BATCH
from perf.probes.source import short_path, without_line
from perf.progress import Progress
from perf.record import Part, Signal
from perf.rfdetr_api import Built, Stepper
from perf.rfdetr_data import fit_epoch

INSIDE = "inside a graph"
OUTSIDE = "outside a graph (graph break or eager step)"
_BICUBIC = ("_upsample_bicubic2d_aa", "upsample_bicubic2d")

_LIMIT_WARNING = re.compile(r"hit config\.\w*(?:recompile|cache_size)_limit .*?function: '(.+?)' \((.+):(\d+)\)", re.S)

# A frame as both Dynamo's log and a graph's root name it: function, file, first line.
Frame = tuple[str, str, int]


@dataclass
class Step:
    """What one step did. ``padded`` is a bool tensor until it is asked for, so that nobody waits for the device."""

    shape: tuple[int, ...] = ()
    padded: Any = False
    graph_calls: Counter[Frame] = field(default_factory=Counter)
    interpolations: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The shape that reached the model, ``2x3x128x160``, and whether any pixel of it is padding."""
        return "x".join(map(str, self.shape)) + (" padded" if self.padded else "")


@dataclass
class Watch:
    """What an epoch did, step by step; the last step is the one that runs."""

    steps: list[Step] = field(default_factory=lambda: [Step()])
    with_graph: set[Frame] = field(default_factory=set)
    # The index of the step in which a frame hit the limit.
    hits: dict[Frame, int] = field(default_factory=dict)
    in_graph: bool = False

    @property
    def now(self) -> Step:
        """The step that runs."""
        return self.steps[-1]

    def note(self, samples: Any) -> None:
        """Note what the model is called with in this step: rfdetr's nested tensor."""
        self.now.shape = tuple(samples.tensors.shape)
        self.now.padded = False if samples.mask is None else samples.mask.any()

    def is_eager(self, index: int) -> bool:
        """Return whether a frame that has hit the limit ran this step, or its part of it, without its graph.

        It then calls its compiled graph less often than it does elsewhere in the epoch. A frame whose graphs all
        belong to what it calls is judged by all calls of the step. From torch 2.6 such a frame goes on to use what
        was compiled for it before; older torch runs it eager from then on.
        """
        return any(self._lacks(frame, index) for frame, hit in self.hits.items() if hit <= index)

    def _lacks(self, frame: Frame, index: int) -> bool:
        def calls(step: Step) -> int:
            return step.graph_calls[frame] if frame in self.with_graph else step.graph_calls.total()

        return calls(self.steps[index]) < max(map(calls, self.steps))


def run_epoch(built: Built, folder: Path, progress: Progress) -> list[Signal]:
    """Train one epoch of the data set at ``folder`` and return the signals of shapes and compilation.

    Call :func:`perf.probes.compilation.reset` before ``built`` is made. Shapes are read after rfdetr's own
    batch-start hook; the steps are Lightning's own, so that the global step which rfdetr draws a size from advances.
    """
    return watch_epoch(built, functools.partial(fit_epoch, built, folder), progress)


def watch_epoch(built: Built, fit: Callable[[Any], None], progress: Progress) -> list[Signal]:
    """Call ``fit`` with a Lightning callback, watch the epoch that it runs, and return its signals."""
    watch = Watch()
    epoch = _Epoch(built, watch)
    detail = functools.partial(_detail, watch)
    what = "compiling, one epoch" if built.case.compile else "one epoch"
    with _watching(built.module.model, watch), epoch.asking(), progress.during(what, detail):
        fit(epoch.callback())
    compiled = [*epoch.compiled, *limit_signals(watch)]
    return [*shape_signals(watch), *compiled, *epoch.times, _interpolations(watch), *epoch.interpolation]


@contextlib.contextmanager
def _watching(model: Any, watch: Watch) -> Iterator[None]:
    with _graph_calls(watch), _limit_hits(watch), _eager_interpolations(watch), _shapes(model, watch):
        yield


def _detail(watch: Watch) -> str:
    done, compiled = f"{len(watch.steps) - 1} steps done", compilation.progress()
    return f"{done}, {compiled}" if compiled else done


class _Epoch:
    """Follows the fit: times it, begins a new step after every batch, and takes the compilation's signals."""

    def __init__(self, built: Built, watch: Watch) -> None:
        self.built = built
        self.watch = watch
        self.times: list[Signal] = []
        self.compiled: list[Signal] = []
        self.interpolation: list[Signal] = []
        self._interpolated: tuple[Step, Any] | None = None
        self._began = 0.0
        self._first = 0.0
        self._asked = 0.0
        self._waits: list[float] = []

    def callback(self) -> Any:
        """Return the Lightning callback that does it."""
        from pytorch_lightning import Callback

        epoch = self

        class Follow(Callback):
            def on_train_epoch_start(self, *_: Any) -> None:
                epoch.begin()

            def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
                epoch.begin_step(index)

            def on_train_batch_end(self, trainer: Any, module: Any, _: Any, batch: Any, index: int) -> None:
                epoch.end_step(batch, index, last=trainer.is_last_batch)

        return Follow()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Note when the loader is asked for a batch: before, Lightning has ranks wait for rank 0 and for the device."""
        profiler = self.built.trainer.profiler  # is told of it, with or without one
        real = profiler.start

        def start(action: str) -> None:
            if action == NEXT_BATCH:
                self._asked = time.perf_counter()
            real(action)

        with mock.patch.object(profiler, "start", start):
            yield

    def begin(self) -> None:
        self._began = time.perf_counter()

    def begin_step(self, index: int) -> None:
        now = time.perf_counter()
        if index == 0:
            self._first = now
        else:
            self._waits.append(1e3 * (now - self._asked))

    def end_step(self, batch: Any, index: int, *, last: bool) -> None:
        if index == 0:
            self.times.append(self._seconds("first_step", self._first, batch))
        if not self.watch.now.shape:  # rfdetr's CUDA graphs replay the forward without calling it
            self.watch.note(batch[0])
        if self.watch.now.interpolations:
            self._interpolated = self.watch.now, batch
        if not last:
            self.watch.steps.append(Step())
            return
        self.times += [self._seconds("epoch_time", self._began, batch), *self._input_wait()]
        self.compiled = compilation.signals(self.built.module.model)
        if self._interpolated is not None:
            self._time_interpolation(*self._interpolated)

    def _seconds(self, name: str, since: float, batch: Any) -> Signal:
        Stepper(self.built, batch).synchronize()
        return Signal(name=name, kind="info", unit="s", value=time.perf_counter() - since)

    def _input_wait(self) -> list[Signal]:
        """Return how long the host waits for the next batch, and to hand it to the device, between two steps."""
        waits = self._waits
        return [Signal(name="input_wait", kind="info", unit="ms", value=median(waits), samples=waits)] if waits else []

    def _time_interpolation(self, step: Step, batch: Any) -> None:
        # By a step that is not one of the epoch's, so that no profiler is in the epoch's times and counts.
        self.watch.steps.append(Step())
        milliseconds = interpolation_ms(Stepper(self.built, batch), batch)
        self.watch.steps.pop()
        if milliseconds is not None:
            part = Part(name=step.name, value=milliseconds)
            self.interpolation = [
                Signal(name="pos_embed_time", kind="info", unit="ms", value=milliseconds, parts=[part])
            ]


@contextlib.contextmanager
def _shapes(model: Any, watch: Watch) -> Iterator[None]:
    """Note in every step what the model is called with."""
    handle = model.register_forward_pre_hook(lambda _, inputs: watch.note(inputs[0]))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _graph_calls(watch: Watch) -> Iterator[None]:
    """Note every call of every graph that Dynamo captures while the context is open.

    What the backend returns is wrapped, which Dynamo neither traces nor guards. From torch 2.2 to 2.15 all backends
    are called through this method.
    """
    from torch._dynamo.output_graph import OutputGraph

    real = OutputGraph.call_user_compiler

    def call_user_compiler(self: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        bicubic = sum(map(_is_bicubic, graph.graph.nodes))  # before a backend may change it
        return _counted(real(self, graph, *args, **kwargs), _frame(self.root_tx.f_code), bicubic, watch)

    with mock.patch.object(OutputGraph, "call_user_compiler", call_user_compiler):
        yield


def _counted(compiled: Callable[..., Any], frame: Frame, bicubic: int, watch: Watch) -> Callable[..., Any]:
    watch.with_graph.add(frame)

    def counted(*args: Any, **kwargs: Any) -> Any:
        watch.now.graph_calls[frame] += 1
        if bicubic:
            watch.now.interpolations[INSIDE] += bicubic
        outer, watch.in_graph = watch.in_graph, True
        try:
            return compiled(*args, **kwargs)
        finally:
            watch.in_graph = outer

    # Whether arguments come as one list. Nothing else is copied: Dynamo's own marks would lead it past this wrapper.
    if hasattr(compiled, "_boxed_call"):
        counted._boxed_call = compiled._boxed_call  # type: ignore[attr-defined]
    return counted


def _frame(code: CodeType) -> Frame:
    return code.co_name, code.co_filename, code.co_firstlineno


def _is_bicubic(node: Any) -> bool:
    mode = node.kwargs.get("mode") or (node.args[3] if len(node.args) > 3 else None)
    name = getattr(node.target, "__name__", str(node.target))
    return (name == "interpolate" and mode == "bicubic") or any(op in name for op in _BICUBIC)


@contextlib.contextmanager
def _eager_interpolations(watch: Watch) -> Iterator[None]:
    """Note every bicubic interpolation that Python code asks for, which graphs do without Python or are counted for.

    ``interpolate`` goes into a graph as one node, so Dynamo does not look at the function that is replaced here.
    """
    import torch

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def noted(image: Any, *args: Any, **kwargs: Any) -> Any:
            # Tracing calls it too, with fake tensors.
            if type(image) in (torch.Tensor, torch.nn.Parameter) and not watch.in_graph:
                watch.now.interpolations[OUTSIDE] += 1
            return real(image, *args, **kwargs)

        return noted

    with contextlib.ExitStack() as stack:
        for name in _BICUBIC:
            stack.enter_context(mock.patch.object(torch._C._nn, name, noting(getattr(torch._C._nn, name))))
        yield


@contextlib.contextmanager
def _limit_hits(watch: Watch) -> Iterator[None]:
    """Note which frames hit the recompile limit, and in which step, from Dynamo's own warning.

    After it a frame is never compiled again, so each is told once. The warning is the same from torch 2.2 to 2.15.
    """

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            frame = parse_limit_warning(record.getMessage())
            if frame is not None:
                watch.hits.setdefault(frame, len(watch.steps) - 1)

    logger, handler = logging.getLogger("torch._dynamo.convert_frame"), Note(logging.WARNING)
    level = logger.level
    if not logger.isEnabledFor(logging.WARNING):
        logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def parse_limit_warning(message: str) -> Frame | None:
    """Return the frame that Dynamo's warning on a recompile limit names; None of another message."""
    found = _LIMIT_WARNING.search(message)
    return (found[1], found[2], int(found[3])) if found else None


def shape_signals(watch: Watch) -> list[Signal]:
    """Return how many distinct sizes reached the model, and the steps of each, in order of first appearance."""
    names = Counter(step.name for step in watch.steps)
    parts = [Part(name=name, value=count) for name, count in names.items()]
    distinct = len({step.shape for step in watch.steps})
    return [
        Signal(name="distinct_shapes", kind="count-strict", unit="shapes", value=distinct),
        Signal(name="shapes", kind="info", unit="steps", value=len(watch.steps), parts=parts),
    ]


def limit_signals(watch: Watch) -> list[Signal]:
    """Return Dynamo's recompile limit, the frames that hit it, and the steps that ran eager because of it."""
    from torch._dynamo import config

    limit = config.recompile_limit if hasattr(config, "recompile_limit") else config.cache_size_limit  # up to 2.6
    each = [Part(name=_name(frame), value=1, where=[_where(frame)]) for frame in watch.hits]
    hits = list(parts_by_name(each).values())
    eager = Counter(step.name for index, step in enumerate(watch.steps) if watch.is_eager(index))
    parts = [Part(name=name, value=count) for name, count in eager.items()]
    return [
        Signal(name="recompile_limit", kind="info", unit="graphs a frame", value=limit, direction="higher"),
        Signal(name="recompile_limit_hits", kind="count-strict", unit="frames", value=len(each), parts=hits),
        Signal(name="eager_steps", kind="count-strict", unit="steps", value=eager.total(), parts=parts),
    ]


def _name(frame: Frame) -> str:
    return f"{short_path(frame[1])}:{without_line(frame[0])}"


def _where(frame: Frame) -> str:
    return f"{short_path(frame[1])}:{frame[2]}"


def _interpolations(watch: Watch) -> Signal:
    """Return how often the positional embedding was interpolated in the epoch."""
    counts: Counter[str] = Counter()
    for step in watch.steps:
        counts.update(step.interpolations)
    parts = [Part(name=name, value=counts[name]) for name in (INSIDE, OUTSIDE) if counts[name]]
    return Signal(name="pos_embed_interpolations", kind="info", unit="calls", value=counts.total(), parts=parts)


def interpolation_ms(stepper: Stepper, batch: Any) -> float | None:
    """Return the time in ms that bicubic interpolation, forward and backward, takes in one step on ``batch``.

    Time on the device for a GPU, else on the CPU. None where the profiler sees no such op.
    """
    from torch.profiler import ProfilerActivity, profile

    on_gpu = stepper.device.type == "cuda"
    stepper.synchronize()
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as profiler:
        stepper.step(batch)
        stepper.synchronize()
    ops = [event for event in profiler.key_averages() if any(name in event.key for name in _BICUBIC)]
    return sum(_self_us(event, on_gpu) for event in ops) / 1e3 if ops else None


def _self_us(event: Any, on_gpu: bool) -> float:
    if not on_gpu:
        return float(event.self_cpu_time_total)
    # Renamed from "cuda" to "device" in torch 2.4 and 2.5.
    renamed = hasattr(event, "self_device_time_total")
    return float(event.self_device_time_total if renamed else event.self_cuda_time_total)
