"""The diagnosis of a training loop: which of input, host, GPU and their waiting for each other sets the pace. Pure.

A step is shared out by who is at work in it. The loader: ``input_wait`` is how long the loop waits for it. The GPU:
``busy`` is how long it computes. The host: what is left of the step once it waits neither for input nor, in a
synchronizing call, for the GPU. Whoever is at work all the time sets the pace; where nobody is, they take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

Kind = Literal["input-bound", "host-bound", "GPU-bound", "sync-bound", "mixed", "unknown"]

# Who is at work for so much of a step sets its pace: all else together can give at most 1 / 0.8 = 1.25x.
BOUND = 0.8
# With workers a loop waits for input only when their queue is empty, so that a steady wait means that they are slower
# than the step, however small it is. Below a tenth it is worth at most 1.11x, and fetching a finished batch, the first
# batches of an epoch and the scatter of a shared host (README: runs 5 % apart) can make as much.
INPUT = 0.1
# A ceiling below this, or so close to one of the same share, tells nothing: runs differ by as much (see INPUT).
WORTH = 1.05
# Without workers the loop loads by itself: every batch waits, and that is the pace only where it is most of the step.
INPUT_ALONE = 0.5


class Budget(NamedTuple):
    """One run's mean or median step in ms, shared out; None is what was not measured.

    ``idle_waiting``: how long the GPU is idle while the loop waits for input. ``sync_wait``: how long the host is in
    calls that wait for the GPU, an upper bound of what they cost.
    """

    step: float
    input_wait: float | None = None
    busy: float | None = None
    idle_waiting: float | None = None
    sync_wait: float | None = None


class Shares(NamedTuple):
    """A budget as shares of the step, 0 to 1.

    ``input``: the GPU idle, and the loop waiting for input. ``waited``: the host in a synchronizing call while the GPU
    computes; None where it is not known. ``host``: the host at work.
    """

    input: float
    busy: float
    waited: float | None
    host: float

    @property
    def idle(self) -> float:
        """The GPU idle for another reason than input: that is the host's doing."""
        return max(0.0, 1 - self.busy - self.input)

    @property
    def overlap(self) -> float | None:
        """What goes if no call waited, host and GPU working side by side: at most."""
        return None if self.waited is None else min(self.waited, self.idle)


class Ceiling(NamedTuple):
    """What a step could gain: ``times`` faster at most, were ``removed`` gone and all else as it was here."""

    because: str
    removed: str
    times: float

    @property
    def gain(self) -> str:
        """What could be gained, as the rest of a sentence."""
        # What is near 1 is told apart by its hundredths.
        times = f"{self.times:.2f}" if self.times < 2 else f"{self.times:.1f}"
        return f"at most {times}x from {self.removed}, as measured here."

    @property
    def text(self) -> str:
        """The whole of it, as a sentence."""
        return f"{self.because}: {self.gain}"


class Diagnosis(NamedTuple):
    """What sets the pace, in a sentence; the numbers behind it; what could be gained at most, its own ceiling first.

    ``agree`` of ``runs`` come to the same by themselves.
    """

    kind: Kind
    sentence: str
    evidence: list[str]
    ceilings: list[Ceiling]
    agree: int
    runs: int

    @property
    def told(self) -> str:
        """The diagnosis and its ceiling as one sentence: it names the share that the ceiling is of."""
        return f"{self.sentence.removesuffix('.')}: {self.ceilings[0].gain}" if self.ceilings else self.sentence


def shares(budget: Budget) -> Shares | None:
    """Return the shares of a budget; None where GPU busy or the wait for input is unknown, or the step took no time.

    A wait counts to what the GPU computes meanwhile at most: a synchronizing call waits for nothing else.
    """
    if budget.input_wait is None or budget.busy is None or budget.step <= 0:
        return None
    # Kernels of several streams at the same time can sum to more than the step.
    busy = min(1.0, budget.busy / budget.step)
    starved = min(_starved(budget, budget.busy) / budget.step, 1 - busy)
    waited = None if budget.sync_wait is None else min(budget.sync_wait / budget.step, busy)
    # Where the waits are not known, the host may have waited as long as the GPU computed.
    host = max(0.0, 1 - budget.input_wait / budget.step - (busy if waited is None else waited))
    return Shares(starved, busy, waited, host)


def _starved(budget: Budget, busy: float) -> float:
    """Return how long the GPU is idle while the loop waits for input, in ms.

    ``idle_waiting`` is of updates under the profiler, which slows the host: the loader gets ahead meanwhile, and waits
    grow short. But without it too the GPU cannot be busy in a wait for longer than in the whole step.
    """
    waited = budget.input_wait or 0.0
    if budget.idle_waiting is None:
        return waited
    return min(waited, max(budget.idle_waiting, waited - busy))


def diagnose(budgets: Sequence[Budget], workers: int, *, has_gpu: bool = True) -> Diagnosis:
    """Return the diagnosis of the runs of one case; each share is the median of the runs.

    ``workers``: processes that load data beside the loop. ``has_gpu`` is False on the cpu lane.
    """
    if not budgets:
        return _unknown("no run of the training loop finished", [], 0)
    if not has_gpu:
        return _without_gpu(budgets, workers)
    each = [found for budget in budgets if (found := shares(budget)) is not None]
    if len(each) < len(budgets):
        return _unknown(_missing(budgets), _waiting(budgets), len(budgets))
    whole = _median(each)
    kind = kind_of(whole, workers)
    agree = sum(kind_of(one, workers) == kind for one in each)
    return Diagnosis(
        kind, _SENTENCES[kind](whole, workers), _evidence(each, workers), _ceilings(whole, kind), agree, len(each)
    )


def kind_of(found: Shares, workers: int) -> Kind:
    """Return what sets the pace; see :data:`BOUND` and :data:`INPUT` for why there.

    The GPU comes first: while it computes, nothing that waits can be what is lacking. Then input: a loader that is
    behind stays behind whatever the host saves. Then the host, and last the waiting of host and GPU for each other.
    """
    if found.busy >= BOUND:
        return "GPU-bound"
    if found.input >= (INPUT if workers else INPUT_ALONE):
        return "input-bound"
    if found.host >= BOUND:
        return "host-bound"
    if found.waited is None:
        return "unknown"
    # The same step as for the others: worth 1.25x or more, at most.
    return "sync-bound" if min(found.waited, found.idle) >= 1 - BOUND else "mixed"


def _median(each: Sequence[Shares]) -> Shares:
    waits = [one.waited for one in each if one.waited is not None]
    waited = statistics.median(waits) if len(waits) == len(each) else None
    starved, busy, host = (statistics.median(getattr(one, name) for one in each) for name in ("input", "busy", "host"))
    return Shares(starved, busy, waited, host)


def _input_bound(found: Shares, workers: int) -> str:
    who = f"{workers} workers" if workers else "the loop itself, which has no workers,"
    return (
        f"Input-bound: for {_percent(found.input)} of a step the GPU is idle because the loop waits for data "
        f"that {who} did not load in time."
    )


def _host_bound(found: Shares, _: int) -> str:
    told = "" if found.waited is None else f", waiting for the GPU for {_percent(found.waited)} at most"
    return (
        f"Host-bound: the host is at work for {_percent(found.host)} of a step or more{told}, "
        f"and the GPU is busy for {_percent(found.busy)}."
    )


def _gpu_bound(found: Shares, _: int) -> str:
    return f"GPU-bound: the GPU is busy for {_percent(found.busy)} of a step."


def _sync_bound(found: Shares, _: int) -> str:
    return (
        f"Sync-bound, as far as waits tell: host and GPU take turns, the host waiting for {_percent(found.waited)} "
        f"of a step at most and the GPU idle for {_percent(found.idle)}; only removing the syncs shows what they cost."
    )


def _mixed(found: Shares, _: int) -> str:
    return (
        f"Mixed: nothing takes {_percent(BOUND)} of a step; the GPU is busy for {_percent(found.busy)}, "
        f"the host at work for {_percent(found.host)}, waiting for input takes {_percent(found.input)}."
    )


def _host_or_sync(found: Shares, _: int) -> str:
    return (
        f"Unknown, host-bound or sync-bound: the GPU is busy for {_percent(found.busy)} of a step, and how long "
        f"the host waits for it was not measured."
    )


_SENTENCES: dict[Kind, Callable[[Shares, int], str]] = {
    "input-bound": _input_bound,
    "host-bound": _host_bound,
    "GPU-bound": _gpu_bound,
    "sync-bound": _sync_bound,
    "mixed": _mixed,
    "unknown": _host_or_sync,
}


def _evidence(each: Sequence[Shares], workers: int) -> list[str]:
    waits = [one.waited for one in each if one.waited is not None]
    lines = [
        f"GPU busy: {_range([one.busy for one in each])} of a step",
        f"GPU idle while the loop waits for input: {_range([one.input for one in each])} ({_loaders(workers)})",
        f"GPU idle otherwise: {_range([one.idle for one in each])}",
        f"host at work, neither waiting for input nor for the GPU: {_range([one.host for one in each])} or more",
    ]
    told = f"{_range(waits)}, an upper bound" if len(waits) == len(each) else "not measured"
    return [*lines, f"host waiting for the GPU in synchronizing calls: {told}"]


def _loaders(workers: int) -> str:
    return f"{workers} workers" if workers else "no workers"


def _ceilings(found: Shares, kind: Kind) -> list[Ceiling]:
    """Return what each removal could give; that of the diagnosis first, and of the others those that tell more."""
    busy = f"GPU busy for {_percent(found.busy)} of a step"
    starved = f"Waiting for input {_percent(found.input)} of a step"
    gains: dict[str, tuple[str, str, float | None]] = {
        "host-bound": (busy, "removing all host time", found.idle),
        "input-bound": (starved, "never waiting for input", found.input),
        "sync-bound": (f"Waits of {_percent(found.waited)}", "never waiting in a synchronizing call", found.overlap),
        "GPU-bound": (busy, "keeping the GPU busy all the time", 1 - found.busy),
    }
    first = {"mixed": "GPU-bound", "unknown": "GPU-bound"}.get(kind, kind)
    order = [first, *(name for name in gains if name != first)]
    # A GPU that computes nothing would make it infinite.
    known = [gains[name] for name in order if gains[name][2] is not None]
    each = [Ceiling(why, removed, 1 / (1 - gain)) for why, removed, gain in known if gain is not None and gain < 1]
    return _telling(each)


def _telling(each: Sequence[Ceiling]) -> list[Ceiling]:
    """Return the first of ``each``, and those of the others that are worth it and no other's twin."""
    found = list(each[:1])
    for one in each[1:]:
        twins = [a for a in found if a.because == one.because and one.times < WORTH * a.times]
        if one.times >= WORTH and not twins:
            found.append(one)
    return found


def _without_gpu(budgets: Sequence[Budget], workers: int) -> Diagnosis:
    """Return what can be said where everything is computed on the CPU: whether the loop waits for input."""
    waits = [budget.input_wait / budget.step for budget in budgets if budget.input_wait is not None and budget.step > 0]
    if len(waits) < len(budgets):
        return _unknown("how long the loop waits for input was not measured", [], len(budgets))
    bound = INPUT if workers else INPUT_ALONE
    wait = statistics.median(waits)
    evidence = [f"waiting for input: {_range(waits)} of a step ({_loaders(workers)})", "GPU: there is none here"]
    if wait < bound:
        why = f"there is no GPU, so that host and GPU cannot be told apart; waiting for input takes {_percent(wait)}"
        return _unknown(why, evidence, len(budgets))
    sentence = (
        f"Input-bound: the loop waits for data for {_percent(wait)} of a step ({_loaders(workers)}, "
        f"on the CPU that computes the step too; there is no GPU here)."
    )
    because = f"Waiting for input {_percent(wait)} of a step"
    ceilings = [Ceiling(because, "never waiting for input", 1 / (1 - wait))] if wait < 1 else []
    return Diagnosis("input-bound", sentence, evidence, ceilings, sum(one >= bound for one in waits), len(budgets))


def _unknown(why: str, evidence: list[str], runs: int) -> Diagnosis:
    return Diagnosis("unknown", f"Unknown: {why}.", evidence, [], runs, runs)


def _missing(budgets: Sequence[Budget]) -> str:
    names = {"input_wait": "how long the loop waits for input", "busy": "how long the GPU is busy"}
    lacking = [told for name, told in names.items() if any(getattr(budget, name) is None for budget in budgets)]
    return f"{' and '.join(lacking) or 'how long a step takes'} was not measured in every run"


def _waiting(budgets: Sequence[Budget]) -> list[str]:
    known = [b.input_wait / b.step for b in budgets if b.input_wait is not None and b.step > 0]
    if not known:
        return []
    return [f"waiting for input: {_range(known)} of a step; whether the GPU was idle meanwhile is not known"]


def _range(values: Sequence[float]) -> str:
    middle = _percent(statistics.median(values))
    if len(values) == 1:
        return f"{middle} (1 run)"
    return f"{middle} ({_percent(min(values))} to {_percent(max(values))}, {len(values)} runs)"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"
