"""What the profiler saw of a few updates of a real fit: where the device was busy and where it waited for the host.

A device event belongs to the phase in which the host launched it; a gap of the device to the phase that the host was in
meanwhile. The profiler slows the host, not the kernels: gaps are longer here than without it, busy time is not.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from perf.probes.distributed import Span, length, overlap
from perf.probes.phases import OTHER
from perf.probes.profile import kernel_name
from perf.probes.trace import KERNEL, LAUNCHES, MARK, ON_GPU, OP, correlation, phase_at
from perf.record import Kind, Part, Signal

SMALL_US = 5.0
TOP = 20
REST = "all other kernels"
INSIDE, OUTSIDE = "inside a graph", "outside a graph"

Raw = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """One kernel, copy or fill of the device, in us; ``launched`` is when the host asked for it, ``op`` the ATen op."""

    name: str
    category: str
    start: float
    duration: float
    launched: float
    phase: str
    op: Raw | None

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel."""
        return self.category == KERNEL


@dataclass(frozen=True)
class Window:
    """One update under the profiler, in us: when the host was in it, and in which phase, and what it launched.

    ``busy`` are the stretches in which the device was at work, whoever launched that, each with the phase of the work
    that began first: they do not overlap, whatever streams did.
    """

    start: float
    end: float
    host: list[tuple[Span, str]]
    launched: list[Work]
    busy: list[tuple[Span, str]]
    raw: list[Raw] = field(repr=False)

    @property
    def duration(self) -> float:
        """How long it took the host."""
        return self.end - self.start


def mark(update: int, phase: str) -> str:
    """Return the name of the mark that says: ``update`` is in ``phase`` from here on."""
    return f"{MARK}{update}|{phase}"


# The mark after the last update; phase_at knows it.
_END = "end"
END_MARK = MARK + _END


def windows(raw: Sequence[Raw], whole: Collection[int]) -> list[Window]:
    """Return the updates of a trace whose numbers are in ``whole``, in order."""
    marks = sorted((e["ts"], e["name"].removeprefix(MARK)) for e in raw if _is_mark(e))
    work = _work(raw, marks)
    busy = _busy(work)
    spans = [(one, two[0]) for one, two in itertools.pairwise(marks) if one[1] != _END]
    found: dict[int, list[tuple[Span, str]]] = defaultdict(list)
    for (start, name), end in spans:
        update, _, phase = name.partition("|")
        found[int(update)].append(((start, end), phase))
    return [_window(found[update], work, busy, raw) for update in sorted(found) if update in whole]


def _is_mark(event: Raw) -> bool:
    return bool(event["name"].startswith(MARK)) and event.get("cat") != "gpu_user_annotation"


def _window(host: list[tuple[Span, str]], work: list[Work], busy: list[tuple[Span, str]], raw: Sequence[Raw]) -> Window:
    start, end = host[0][0][0], host[-1][0][1]
    clipped = [((max(s, start), min(e, end)), phase) for (s, e), phase in busy if s < end and e > start]
    inside = [event for event in raw if start <= event["ts"] < end]
    return Window(start, end, host, [one for one in work if start <= one.launched < end], clipped, inside)


def _work(raw: Sequence[Raw], marks: list[tuple[float, str]]) -> list[Work]:
    """Return all that the device did, in the order in which it began."""
    launched: dict[Any, Any] = {
        correlation(e): e["ts"] for e in raw if e.get("cat") in LAUNCHES and correlation(e) is not None
    }
    ops = {_external(event): event for event in raw if event.get("cat") == OP and _external(event) is not None}
    first = min((number for number in launched if isinstance(number, int)), default=None)
    found = []
    for event in raw:
        if event.get("cat") not in ON_GPU:
            continue
        number = correlation(event)
        at = launched[number] if number in launched else _unseen(event, first)
        # What was launched before the first mark, and still ran, is of no phase that is known.
        phase = (phase_at(marks, at) or f"|{OTHER}").partition("|")[2]
        op = ops.get(_external(event))
        found.append(Work(event["name"], event["cat"], event["ts"], event.get("dur", 0.0), at, phase, op))
    return sorted(found, key=lambda one: one.start)


def _unseen(event: Raw, first: int | None) -> float:
    """Return when something was launched whose launch is not in the trace; ``first`` is the first one that is.

    CUPTI numbers calls as they come: what has a smaller number was launched before the trace began, and still to be
    done then by a GPU that is behind.
    """
    number = correlation(event)
    before = first is not None and isinstance(number, int) and number < first
    return float("-inf") if before else float(event["ts"])


def _external(event: Raw) -> Any:
    """Return the number that a GPU event shares with the innermost op that it is of."""
    return event.get("args", {}).get("External id")


def _busy(work: Iterable[Work]) -> list[tuple[Span, str]]:
    found: list[tuple[Span, str]] = []
    until = float("-inf")
    for one in work:
        end = one.start + one.duration
        if end > until:
            found.append(((max(one.start, until), end), one.phase))
            until = end
    return found


def device_signals(seen: Sequence[Window]) -> list[Signal]:
    """Return the device's signals per update; none where the profiler saw no kernel.

    Times are means over the updates, so that parts sum to them; counts are those of the update with the median count.
    """
    if not any(one.is_kernel for window in seen for one in window.launched):
        return []
    return [
        mean_signal("fit_gpu_busy", "device", [_busy_ms(window) for window in seen]),
        mean_signal("fit_gpu_idle", "wall", [_idle_ms(window) for window in seen]),
        mean_signal("profiled_step", "info", [{"": window.duration / 1e3} for window in seen]),
        _count("fit_kernels", "count-volume", seen, lambda one: one.is_kernel),
        _count("small_kernels", "info", seen, lambda one: one.is_kernel and one.duration < SMALL_US),
        _by_kernel(seen),
    ]


def mean_signal(name: str, kind: Kind, each: Sequence[dict[str, float]], unit: str = "ms") -> Signal:
    """Return the mean over updates of the sum of their parts, and each part's own mean; one without a name has none."""
    samples = [sum(parts.values()) for parts in each]
    names = dict.fromkeys(name for parts in each for name in parts if name)
    means = {name: fmean(parts.get(name, 0.0) for parts in each) for name in names}
    parts = [Part(name=name, value=value) for name, value in sorted(means.items(), key=lambda item: -item[1])]
    return Signal(name=name, kind=kind, unit=unit, value=fmean(samples), samples=samples, parts=parts)


def _busy_ms(window: Window) -> dict[str, float]:
    return _sums((phase, end - start) for (start, end), phase in window.busy)


def _idle_ms(window: Window) -> dict[str, float]:
    edges = [window.start, *(edge for span, _ in window.busy for edge in span), window.end]
    gaps = [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1]]
    found: dict[str, list[Span]] = defaultdict(list)
    for span, phase in window.host:
        found[phase].append(span)
    return {phase: length(overlap(gaps, spans)) / 1e3 for phase, spans in found.items()}


def _count(name: str, kind: Kind, seen: Sequence[Window], wanted: Callable[[Work], bool]) -> Signal:
    tallies = [Counter(one.phase for one in window.launched if wanted(one)) for window in seen]
    samples = [float(tally.total()) for tally in tallies]
    middle = sorted(tallies, key=Counter.total)[(len(tallies) - 1) // 2]
    parts = [Part(name=phase, value=count) for phase, count in middle.most_common()]
    return Signal(name=name, kind=kind, unit="kernels", value=middle.total(), samples=samples, parts=parts)


def _by_kernel(seen: Sequence[Window]) -> Signal:
    """Return the time of all kernels, at once or not, of the :data:`TOP` by name and of the rest."""
    each = [_sums((kernel_name(one.name), one.duration) for one in window.launched if one.is_kernel) for window in seen]
    whole = mean_signal("kernel_time", "info", each)
    rest = sum(part.value for part in whole.parts[TOP:])
    more = [Part(name=REST, value=rest)] if rest else []
    return whole.model_copy(update={"parts": [*whole.parts[:TOP], *more]})


def _sums(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the sum of us by name, in ms."""
    found: dict[str, float] = defaultdict(float)
    for name, microseconds in pairs:
        found[name] += microseconds / 1e3
    return found


# Where the dimensions of the two factors are among an op's own.
_GEMMS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_addmm_activation": 1}
# Of a kernel that no such op launched: a CUDA graph's, or Inductor's own.
_GEMM_NAME = re.compile(r"gemm|cutlass|nvjet|wgmma|xmma|triton_tem_\w*mm", re.IGNORECASE)
# Attention's own kernels: they are written with cutlass and wgmma too, and say so in their names.
_ATTENTION_NAME = re.compile(r"flash|fmha|sdpa|attention", re.IGNORECASE)
UNNAMED = "by the kernel's name, shapes unknown"


def gemm_signals(seen: Sequence[Window]) -> list[Signal]:
    """Return the time of the kernels of matrix products per update, and their rate; ``seen`` has to hold shapes.

    Products are those of aten::mm, addmm, bmm and baddbmm, with the formulas of torch.utils.flop_counter (2 m n k).
    Kernels that are only named like one are in the time, and not in the rate.
    """
    each: list[dict[str, float]] = []
    flops, timed = 0, 0.0
    for window in seen:
        kernels = [one for one in window.launched if one.is_kernel]
        each.append(_sums((name, one.duration) for one in kernels if (name := _gemm(one))))
        known = {id(one.op): one.op for one in kernels if one.op is not None and _flops(one.op)}
        flops += sum(map(_flops, known.values()))
        timed += sum(one.duration for one in kernels if id(one.op) in known)
    if not any(each):
        return []
    found = [mean_signal("gemm_time", "info", each)]
    if timed:  # operations per us are millions of them a second
        rate = flops / timed / 1e6
        found.append(Signal(name="gemm_rate", kind="info", unit="TFLOP/s", value=rate, direction="higher"))
    return found


def _gemm(one: Work) -> str:
    if one.op is not None and one.op["name"] in _GEMMS:
        return str(one.op["name"])
    return UNNAMED if _GEMM_NAME.search(one.name) and not _ATTENTION_NAME.search(one.name) else ""


def _flops(op: Raw) -> int:
    """Return the floating point operations of an op by its shapes; 0 where they are not told."""
    from torch.utils.flop_counter import bmm_flop, mm_flop

    at, shapes = _GEMMS.get(op["name"]), op.get("args", {}).get("Input Dims") or []
    if at is None or len(shapes) < at + 2:
        return 0
    one, two = shapes[at : at + 2]
    if (len(one), len(two)) not in ((2, 2), (3, 3)):
        return 0
    return int(mm_flop(one, two) if len(one) == 2 else bmm_flop(one, two))


_BICUBIC = "upsample_bicubic2d"
_GRAPH = re.compile(r"Torch-Compiled Region|CompiledFunction|## Call CompiledFxGraph|torch_compile")


def interpolation(seen: Sequence[Window]) -> Signal:
    """Return the time of interpolating the positional encoding per update, forward and backward.

    The device's time where kernels were seen, else that of the ops on the CPU.
    """
    return mean_signal("pos_embed", "info", [_sums(_interpolations(window)) for window in seen])


def _interpolations(window: Window) -> Iterable[tuple[str, float]]:
    graphs = [event for event in window.raw if _GRAPH.search(event["name"])]
    if any(one.is_kernel for one in window.launched):
        for one in window.launched:
            if _BICUBIC in one.name or (one.op is not None and _is_bicubic(one.op)):
                yield _where(one.op, graphs), one.duration
        return
    ops = [event for event in window.raw if event.get("cat") == OP and _is_bicubic(event)]
    for op in ops:
        if not any(_encloses(other, op) for other in ops if other is not op):  # one overload calls another
            yield _where(op, graphs), op.get("dur", 0.0)


def _is_bicubic(op: Raw) -> bool:
    return str(op["name"]).startswith("aten::") and _BICUBIC in op["name"]


def _where(op: Raw | None, graphs: list[Raw]) -> str:
    """Return where an op ran; a kernel without one is Inductor's own, or a CUDA graph's."""
    return INSIDE if op is None or any(_encloses(graph, op) for graph in graphs) else OUTSIDE


def _encloses(outer: Raw, inner: Raw) -> bool:
    if outer.get("tid") != inner.get("tid"):
        return False
    start, end = outer["ts"], outer["ts"] + outer.get("dur", 0.0)
    return bool(start <= inner["ts"] and inner["ts"] + inner.get("dur", 0.0) <= end)
