"""Several ranks: what DDP sends, what of it is hidden behind the backward, and which graphs a rank compiled.

Each rank answers for itself; :mod:`perf.ranked` makes one record of all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

from perf.probes.parts import Tally
from perf.probes.profile import is_collective_kernel
from perf.probes.source import short_path, without_line
from perf.probes.trace import KERNEL, OP, Event, export, profiling
from perf.record import Part, Signal
from perf.rfdetr_api import Stepper

Span = tuple[float, float]
# What a gloo worker thread spends on a collective, waiting for the other ranks included, as torch's profiler has it.
_GLOO = "gloo:"


class Traffic(NamedTuple):
    """One step: its collectives by name, and in ms its wall time, the time in them, and of that the hidden share.

    ``each`` is the name of each of them and how long it took, in ms, in the order in which they began.
    """

    names: Tally
    wall: float
    inside: float
    hidden: float
    each: list[tuple[str, float]]


def gather(text: str) -> list[str]:
    """Return what each rank passed, in the order of ranks; every rank has to call it."""
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, text)
    return found


def communication(stepper: Stepper, steps: int, *, timed: bool) -> list[Signal]:
    """Return the collectives of this rank per step, the DDP buckets, and if ``timed`` what they cost, in ms.

    ``collective_time`` is the time in which at least one is under way, waiting for slower ranks included;
    ``collective_overlap`` the share of it in which this rank computes; ``own_time`` the rest of the step, which is what
    a rank takes by itself: all take equally long in the end, since the fast ones wait. ``transfer_time`` is what the
    collectives of a step take without the waiting.
    """
    seen = [_traffic(stepper) for _ in range(steps)]
    parts = seen[0].names.parts()
    count = Signal(name="collectives", kind="count-strict", unit="collectives", value=seen[0].names.total, parts=parts)
    counts = [count, buckets(stepper.ddp)]
    if not timed:
        return counts
    shares = [100 * step.hidden / step.inside if step.inside else 0.0 for step in seen]
    return [
        *counts,
        _shown("collective_time", "ms", [step.inside for step in seen]),
        _shown("collective_overlap", "%", shares).model_copy(update={"direction": "higher"}),
        _shown("own_time", "ms", [step.wall - step.inside for step in seen]),
        *_transfer([step.each for step in seen]),
    ]


def _transfer(own: list[list[tuple[str, float]]]) -> list[Signal]:
    """Return what the collectives of a step take by themselves, in ms; ``own`` is what each took on this rank.

    The last rank to come waits for nobody, so the shortest of all ranks counts, of each collective: they belong
    together by their order, which is that of NCCL's stream. Nothing where the ranks had not the same ones.
    """
    samples = []
    for ranks in zip(*(json.loads(text) for text in gather(json.dumps(own))), strict=True):
        if len({tuple(name for name, _ in each) for each in ranks}) > 1:
            return []
        samples.append(sum(min(took for _, took in same) for same in zip(*ranks, strict=True)))
    return [_shown("transfer_time", "ms", samples)]


def _shown(name: str, unit: str, samples: list[float]) -> Signal:
    return Signal(name=name, kind="info", unit=unit, value=median(samples), samples=samples)


def _traffic(stepper: Stepper) -> Traffic:
    batch = stepper.prepare()
    stepper.synchronize()
    with profiling(stepper) as profiler:
        started = time.perf_counter()
        stepper.step(batch)
        stepper.synchronize()
        wall = 1e3 * (time.perf_counter() - started)
    raw = export(profiler)
    return traffic([Event(e.get("cat", ""), e["name"], e["ts"], e.get("dur", 0.0), "") for e in raw], wall)


def traffic(events: list[Event], wall: float) -> Traffic:
    """Return what ``events``, those of one step of ``wall`` ms, say of its collectives."""
    sent, names = sorted(filter(is_collective, events), key=lambda event: event.start), Tally()
    for event in sent:
        names.add(_operation(event.name))
    kernels = [event for event in events if event.category == KERNEL and not is_collective(event)]
    # Without a GPU the host's ops are what computes.
    computing = kernels or [event for event in events if event.category == OP and event.name.startswith("aten::")]
    inside = union(list(map(_span, sent)))
    hidden = overlap(inside, union(list(map(_span, computing))))
    each = [(_operation(event.name), event.duration / 1e3) for event in sent]
    return Traffic(names, wall, length(inside) / 1e3, length(hidden) / 1e3, each)


def _operation(name: str) -> str:
    """Return which collective a kernel is of: its algorithm, the rest of its name, depends on how GPUs are wired."""
    found = re.search(r"AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv", name)
    return f"nccl {found[0]}" if found else name


def is_collective(event: Event) -> bool:
    """Return whether this is a collective at work: an NCCL kernel, or gloo's worker."""
    return is_collective_kernel(event) or (event.category != OP and event.name.startswith(_GLOO))


def _span(event: Event) -> Span:
    return event.start, event.start + event.duration


def union(spans: list[Span]) -> list[Span]:
    """Return the same stretch of time as spans that neither meet nor overlap, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def overlap(one: list[Span], other: list[Span]) -> list[Span]:
    """Return the time that is in both of two unions."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        i, j = (i + 1, j) if one[i][1] < other[j][1] else (i, j + 1)
    return found


def length(spans: list[Span]) -> float:
    """Return how long ``spans`` are in all."""
    return sum(end - start for start, end in spans)


def buckets(ddp: Any) -> Signal:
    """Return the buckets in which DDP reduces gradients, by size and number of parameters, as its reducer has them."""
    told = ddp._get_ddp_logging_data()
    sizes = _listed(told.get("rebuilt_bucket_sizes") or told["bucket_sizes"])
    parameters = [len(indices.split()) for indices in _listed(told.get("rebuilt_per_bucket_param_indices", ""))]
    counted = (
        [f", {number} parameters" for number in parameters] if len(parameters) == len(sizes) else [""] * len(sizes)
    )
    names = [f"bucket {i}: {size} B{more}" for i, (size, more) in enumerate(zip(sizes, counted, strict=True))]
    parts = [Part(name=name, value=1) for name in names]
    return Signal(name="ddp_buckets", kind="count-strict", unit="buckets", value=len(parts), parts=parts)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


class Graphs:
    """The graphs that Dynamo captured in this process, and the pieces into which its DDPOptimizer cut them."""

    def __init__(self) -> None:
        self.captured: list[Part] = []
        self.pieces: list[Part] = []
        self._frame = ""

    def add(self, frame: str, graph: Any) -> None:
        """Take a captured graph: by its function, and a hash of its operations with the shapes and types they give."""
        operations = [(node.op, _target(node.target), _kind(node)) for node in graph.graph.nodes]
        digest = hashlib.sha256(repr(operations).encode()).hexdigest()[:12]
        self.captured.append(Part(name=f"{frame} {digest}", value=len(operations)))
        self._frame = frame

    def cut(self, buckets: list[Any]) -> None:
        """Take the pieces of the graph that was captured last, in the order in which the forward runs them."""
        names = [f"{self._frame} piece {i}: {b.size} B of parameters" for i, b in enumerate(reversed(buckets))]
        self.pieces += [Part(name=name, value=1) for name in names]

    def signals(self) -> list[Signal]:
        """Return the hashes of the graphs, shown only, and the number of pieces; 0 where Dynamo did not split."""
        pieces = Signal(
            name="ddp_graph_pieces", kind="count-strict", unit="pieces", value=len(self.pieces), parts=self.pieces
        )
        nodes = sum(part.value for part in self.captured)
        return [pieces, Signal(name="graph_nodes", kind="info", unit="nodes", value=nodes, parts=self.captured)]


def _target(target: Any) -> str:
    return str(getattr(target, "__name__", target))


def _kind(node: Any) -> str:
    example = node.meta.get("example_value")
    return f"{tuple(getattr(example, 'shape', ()))} {getattr(example, 'dtype', '')}"


@contextlib.contextmanager
def watching_graphs() -> Iterator[Graphs]:
    """Note every graph that Dynamo captures while the context is open, before a backend may change it.

    From torch 2.2 to 2.15 all backends are called through this method; DDPOptimizer keeps the buckets it made.
    """
    from torch._dynamo.backends.distributed import DDPOptimizer
    from torch._dynamo.output_graph import OutputGraph

    graphs, call, split = Graphs(), OutputGraph.call_user_compiler, DDPOptimizer.compile_fn

    def call_user_compiler(self: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        code = self.root_tx.f_code
        graphs.add(f"{short_path(code.co_filename)}:{without_line(code.co_name)}", graph)
        return call(self, graph, *args, **kwargs)

    def compile_fn(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = split(self, *args, **kwargs)
        graphs.cut(self.buckets)
        return compiled

    with (
        mock.patch.object(OutputGraph, "call_user_compiler", call_user_compiler),
        mock.patch.object(DDPOptimizer, "compile_fn", compile_fn),
    ):
        yield graphs
