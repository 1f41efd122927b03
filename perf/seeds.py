"""What the seeds of a training teach: how they scatter, and which margin so many pairs of them can defend."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from perf.baselines import BaselineSignal
from perf.pool import by_case, by_signal, reject_repeated_seeds
from perf.quality import seeds_needed
from perf.quality_gates import MAP, PASS_ERROR, expected, margin_gate
from perf.record import Record, Signal

# In mAP; a smaller one is not worth its seeds, a larger one is no defence.
MARGINS = (0.005, 0.01, 0.02, 0.03, 0.05)
SIMULATED = 20


class Lesson(NamedTuple):
    """What the seeds of one case teach. ``floor`` is that of one seed more; ``seconds`` the time of one training.

    ``needed`` holds the pairs of seeds for each margin, None for too many.
    """

    case_id: str
    runs: list[float]
    sd: float
    floor: float
    seconds: float
    needed: dict[float, int | None]


def lessons(records: Sequence[Record]) -> list[Lesson]:
    """Return what each case of finished trainings in ``records`` teaches, those with two seeds or more.

    Raises:
        ValueError: runs of one case that cannot be pooled, one seed twice, or no case with two seeds.
    """
    trained = [record for record in records if record.case.trains and record.status == "finished"]
    found = [_lesson(group) for group in by_case(trained).values() if len(group) > 1]
    if not found:
        msg = "no case with two finished trainings or more: run the suite convergence with --runs 5"
        raise ValueError(msg)
    return found


def _lesson(records: Sequence[Record]) -> Lesson:
    reject_repeated_seeds(records)
    runs = [signal.value for signal in by_signal(records)[MAP]]
    sd = statistics.stdev(runs)
    # Pairing gains nothing for certain: the sides share the seed, and after a few steps little else.
    needed = {margin: seeds_needed(math.sqrt(2) * sd, margin, PASS_ERROR) for margin in MARGINS}
    floor = expected(MAP, runs, 1).low
    seconds = statistics.median(r.seconds for r in records if r.seconds is not None)
    return Lesson(records[0].case_id, runs, sd, floor, seconds, needed)


def passes(runs: Sequence[float], pairs: int, margin: float, draws: int = SIMULATED) -> int:
    """Return how many of ``draws`` simulated sessions of unchanged code pass, each ``pairs`` drawn from ``runs``.

    Both sides are drawn with replacement and for themselves, always the same for the same ``runs``.
    """
    import numpy as np

    draw = np.random.default_rng(0)
    return sum(_passes(draw.choice(runs, (2, pairs)).tolist(), margin) for _ in range(draws))


def _passes(sides: Sequence[Sequence[float]], margin: float) -> bool:
    base, head = sides
    known = BaselineSignal(name=MAP, kind="quality", unit="mAP", direction="higher", runs=list(base), approval=0)
    now = [Signal(name=MAP, kind="quality", unit="mAP", direction="higher", value=value) for value in head]
    return margin_gate(known, now, margin).verdict in ("pass", "improved")


def text(found: Sequence[Lesson], pairs: int) -> str:
    """Return all of it as lines to read: a paragraph a case."""
    return "\n\n".join("\n".join(_lines(one, pairs)) for one in found)


def _lines(one: Lesson, pairs: int) -> list[str]:
    runs = ", ".join(f"{value:.4f}" for value in one.runs)
    return [
        f"{one.case_id}: {len(one.runs)} seeds, mAP {statistics.fmean(one.runs):.4f}, sd {one.sd:.4f} ({runs})",
        f"  floor of the next seed: {one.floor:.4f}; a training took {one.seconds:.0f} s (median)",
        *(f"  margin {margin:g}: {_cost(one, margin, pairs)}" for margin in one.needed),
    ]


def _cost(one: Lesson, margin: float, pairs: int) -> str:
    needed = one.needed[margin]
    count = passes(one.runs, pairs, margin)
    told = f"{count} of {SIMULATED} simulated sessions of unchanged code pass with {pairs} pairs"
    if needed is None:
        return f"too many seeds; {told}"
    return f"{needed} pairs ({2 * needed} trainings, {2 * needed * one.seconds:.0f} s one after another); {told}"
