"""Ranks: what each process of a run measured becomes one set of signals, whose parts say of which rank they are. Pure.

A count is the sum over the ranks, so that each rank's is gated by its parts. Of the rest the worst rank's value stands
for the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from perf.pool import parts_by_name
from perf.probes.parts import Tally
from perf.record import Part, Record, Signal

MISMATCHES, SLOW, IMBALANCE = "rank_mismatches", "slow_ranks", "rank_imbalance"
# What every rank does alike: the same graphs, ops and collectives. Python's calls are not, since rank 0 alone logs; and
# kernels are not, since Inductor decides by stopwatch which matrices to pad.
_ALIKE = (
    *("graphs", "graph_nodes", "graph_breaks", "recompiles", "frames_failed", "ddp_graph_pieces"),
    *("eval_graphs", "eval_graph_breaks", "eval_recompiles", "eval_frames_failed"),
    *("aten_ops", "collectives", "ddp_buckets", "distinct_shapes"),
)
# A rank is slow that takes so many times as long by itself as the others, in every step that was looked at. Runs of
# the same code on a shared host differ by up to 15 %, and steps within one by more.
SLOW_RATIO = 1.5
LEAST_STEPS = 3


def merged(ranks: Sequence[Sequence[Signal]]) -> list[Signal]:
    """Return the signals of a run from those of its ranks, in the order of ranks."""
    by_rank = [{signal.name: signal for signal in signals} for signals in ranks]
    names = dict.fromkeys(name for found in by_rank for name in found)
    signals = [_merge(_standing(name, by_rank), [found.get(name) for found in by_rank]) for name in names]
    return [*signals, _mismatches(by_rank), *_balance([found.get("own_time") for found in by_rank])]


def _standing(name: str, by_rank: Sequence[dict[str, Signal]]) -> Signal | None:
    """Return the value of the rank that stands for the run where that depends on another signal, else None.

    How much of the collectives is hidden is told of the rank whose time in them is told.
    """
    if name != "collective_overlap":
        return None
    return max(by_rank, key=lambda found: found["collective_time"].value if "collective_time" in found else 0).get(name)


def _merge(standing: Signal | None, found: Sequence[Signal | None]) -> Signal:
    """Return one signal for the same of all ranks; a rank that lacks it adds no part."""
    there = [signal for signal in found if signal]
    first = there[0]
    if first.kind.startswith("count"):
        parts = [part for rank, signal in enumerate(found) if signal for part in _parts_of(rank, signal)]
        same = len({len(signal.samples) for signal in there}) == 1
        samples = [sum(step) for step in zip(*(s.samples for s in there), strict=True)] if same else []
        return first.model_copy(update={"value": sum(s.value for s in there), "samples": samples, "parts": parts})
    # The least of the proofs that the model compiled; else the worst.
    most = min if first.direction == "higher" else max
    worst = standing or most(there, key=lambda signal: signal.value)
    of_rank = [Part(name=f"rank {rank}", value=signal.value) for rank, signal in enumerate(found) if signal]
    more = [part for rank, signal in enumerate(found) if signal and signal.parts for part in _parts_of(rank, signal)]
    return worst.model_copy(update={"parts": [*of_rank, *more]})


def _parts_of(rank: int, signal: Signal) -> list[Part]:
    if not signal.parts:
        return [Part(name=f"rank {rank}", value=signal.value)] if signal.value else []
    return [part.model_copy(update={"name": f"rank {rank}: {part.name}"}) for part in signal.parts]


class _Odd(NamedTuple):
    rank: int
    what: str
    value: float
    others: float


def _mismatches(by_rank: Sequence[dict[str, Signal]]) -> Signal:
    """Return in how many ways a rank did other work than most: each a part that names the rank and what it did."""
    tally = Tally()
    for name in _ALIKE:
        for odd in _odd(name, [found.get(name) for found in by_rank]):
            tally.add(f"rank {odd.rank}: {name} {odd.what}{odd.value:g}, the others {odd.others:g}".replace("  ", " "))
    return Signal(name=MISMATCHES, kind="count-strict", unit="differences", value=tally.total, parts=tally.parts())


def _odd(name: str, found: Sequence[Signal | None]) -> Iterator[_Odd]:
    """Yield the ranks that differ in a part of a signal, or in all of one that has no parts."""
    values = [_values(signal) for signal in found]
    for what in dict.fromkeys(what for named in values for what in named):
        of_rank = [named.get(what, 0.0) for named in values]
        usual = _usual(of_rank)
        yield from (_Odd(rank, what, value, usual) for rank, value in enumerate(of_rank) if value != usual)


def _values(signal: Signal | None) -> dict[str, float]:
    if signal is None:
        return {}
    named = {f"{name}: ": part.value for name, part in parts_by_name(signal.parts).items()}
    return named or {"": signal.value}


def _usual(values: Sequence[float]) -> float:
    """Return what most ranks have; of two that differ the lesser, since more work is what has to be explained."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def _balance(own: Sequence[Signal | None]) -> list[Signal]:
    """Return by how much the slowest rank takes longer by itself than the others, and how many are slow in all steps.

    Both are shown: the judge says what a slow rank means. Nothing where not all ranks were timed, or there is but one.
    """
    timed = [signal for signal in own if signal]
    if len(timed) < max(2, len(own)):
        return []
    excess = [100 * (_ratio(timed, rank) - 1) for rank in range(len(timed))]
    parts = [Part(name=f"rank {rank}", value=percent) for rank, percent in enumerate(excess)]
    slow = [Part(name=f"rank {rank}", value=1) for rank in range(len(timed)) if _is_slow(timed, rank)]
    return [
        Signal(name=IMBALANCE, kind="info", unit="%", value=max(excess), parts=parts),
        Signal(name=SLOW, kind="info", unit="ranks", value=len(slow), parts=slow),
    ]


def _ratio(own: Sequence[Signal], rank: int) -> float:
    others = median(signal.value for index, signal in enumerate(own) if index != rank)
    return own[rank].value / others if others else 1.0


def _is_slow(own: Sequence[Signal], rank: int) -> bool:
    steps = list(zip(*(signal.samples for signal in own), strict=False))
    ratios = [step[rank] / median(step[:rank] + step[rank + 1 :]) for step in steps]
    return len(ratios) >= LEAST_STEPS and min(ratios) > SLOW_RATIO


def different_machines(records: Sequence[Record]) -> list[str]:
    """Return in words which rank has another device or other software than rank 0; empty where all are alike."""
    first = records[0].environment
    names = ("device", "torch", "rfdetr", "rfdetr_source", "python")
    return [
        f"rank {rank}: {name} {getattr(record.environment, name)}, rank 0 {getattr(first, name)}"
        for rank, record in enumerate(records)
        for name in names
        if getattr(record.environment, name) != getattr(first, name)
    ]


def rate(step_time: Signal, images: int) -> Signal:
    """Return images per second of all ranks together, ``images`` a step, from the slowest rank's step time in ms."""
    samples = [1e3 * images / sample for sample in step_time.samples]
    value = 1e3 * images / step_time.value
    return Signal(
        name="images_per_second", kind="wall", unit="images/s", value=value, direction="higher", samples=samples
    )
