"""Gates for quality: a floor learned from stored seeds, and non-inferiority over paired seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perf.baselines import BaselineSignal
from perf.gates import Outcome, plain, sign
from perf.quality import (
    Interval,
    difference_interval,
    pairs_to_settle,
    prediction_interval,
    seeds_needed,
    share_interval,
)
from perf.record import Signal

MAP = "map"
# mAP over AP50: how closely the boxes fit that were found. Seeds move it a quarter as far as mAP, and it falls further
# where a box loss is broken (H200, docs/convergence.md), so it tells what mAP alone cannot with a few seeds.
FIT = "map_to_ap50"
# How often one signal of an unchanged training falls beyond its floor. Once in a thousand pull requests, since a
# collapse lies far below: a broken loss costs tenths of mAP.
COLLAPSE_ERROR = 0.001
# Seeds that happen to agree know less of the next than they seem to. In rad for mAP, where 0.006 is 0.005 of a mAP of
# 0.8; of a loss relative to it.
LEAST_SD_MAP, LEAST_SD_LOSS = 0.006, 0.01
# One-sided: of passing a head that is worse than the margin, and of claiming that one is worse which is not.
PASS_ERROR, CLAIM_ERROR = 0.05, 0.01
# In mAP (0 to 1), and in its share of AP50. What a change may cost before it is no win any more: the least that the
# default number of seeds defends; docs/convergence.md says what a smaller one takes.
MARGIN, FIT_MARGIN = 0.03, 0.02


def collapse_gate(base: BaselineSignal, now: Sequence[Signal]) -> Outcome:
    """Judge the mean of the seeds measured now against the floor that the baseline's seeds set.

    The floor is one end of what is :func:`expected`; beyond the other end the baseline is stale.
    """
    if len(base.runs) < 2:
        return Outcome("inconclusive", "a floor needs 2 seeds or more in the baseline, and there is one: approve more")
    around = expected(base.name, base.runs, len(now))
    value = statistics.fmean(signal.value for signal in now)
    worst, best = (around.low, around.high) if base.direction == "higher" else (around.high, around.low)
    turn = sign(base.direction)
    text = (
        f"{plain(value)}, the {'floor' if base.direction == 'higher' else 'ceiling'} is {worst:.4g}: {len(base.runs)} "
        f"seeds with mean {statistics.fmean(base.runs):.4g}, sd {statistics.stdev(base.runs):.2g}{_demand(base)}"
    )
    if turn * (value - worst) > 0:
        return Outcome("regressed", text)
    if base.direction == "higher" and worst <= 0:
        return Outcome("inconclusive", f"{text}; nothing can fall below it: approve more seeds")
    return Outcome("improved" if turn * (value - best) < 0 else "pass", text)


def expected(name: str, runs: Sequence[float], further: int) -> Interval:
    """Return where the mean of ``further`` seeds of an unchanged training falls, but for ``COLLAPSE_ERROR`` a side."""
    if name in (MAP, FIT):
        return share_interval(runs, further, COLLAPSE_ERROR, LEAST_SD_MAP)
    return prediction_interval(runs, further, COLLAPSE_ERROR, LEAST_SD_LOSS * abs(statistics.fmean(runs)))


def margin_gate(base: BaselineSignal, now: Sequence[Signal], margin: float = MARGIN, shares: int = 1) -> Outcome:
    """Judge mAP, or its share of AP50, over paired seeds: pass once it is proven not to be worse by the margin.

    That is ``margin`` of mAP, ``FIT_MARGIN`` of the share. It claims a loss, which has to lie beyond 0, with its part
    of ``CLAIM_ERROR``: one of two in each of ``shares`` cases; and passes with the whole of ``PASS_ERROR``, since a
    session passes only if every signal does. Where the base learned no more than the margin, a head that learned
    nothing would pass too, so that none does. Other signals are only shown.
    """
    if base.name not in (MAP, FIT):
        return Outcome(None)
    margin, shares = margin if base.name == MAP else FIT_MARGIN, 2 * shares
    runs = [signal.value for signal in now]
    if min(len(base.runs), len(runs)) < 2:
        return Outcome("inconclusive", f"non-inferiority needs 2 paired seeds; there are {len(base.runs)}")
    least = least_sd_of_differences(base.runs)
    passing, claim = (difference_interval(base.runs, runs, rate, least) for rate in (PASS_ERROR, CLAIM_ERROR / shares))
    name = "mAP" if base.name == MAP else "mAP / AP50"
    text = f"{_told(passing, name)} over {len(runs)} seeds, margin {margin:g}"
    learned = statistics.fmean(base.runs)
    if passing.low > -margin and (learned > margin or claim.low > margin):
        return Outcome("improved" if claim.low > margin else "pass", text)
    if claim.high < 0:
        return Outcome("regressed", f"{_told(claim, name)} over {len(runs)} seeds, margin {margin:g}")
    if learned <= margin:
        nothing = f"the base learned {learned:.4f} {name}, no more than the margin, so that nothing can be worse by it"
        return Outcome("inconclusive", f"{text}; {nothing}: train longer, with a case of more steps (-s1000)")
    return Outcome("inconclusive", f"{text}; {_to_settle(base.runs, runs, margin, CLAIM_ERROR / shares)}")


def least_sd_of_differences(shares: Sequence[float]) -> float:
    """Return the least standard deviation of a pair's difference in mAP: that of two seeds, at the mean of ``shares``.

    By the delta method, from ``LEAST_SD_MAP`` on the scale of asin(sqrt(share)), whose derivative is
    1 / (2 sqrt(share (1 - share))). Near 0 and 1 it is that at 0.02 and 0.98.
    """
    share = min(0.98, max(0.02, statistics.fmean(shares)))
    return math.sqrt(2) * LEAST_SD_MAP * 2 * math.sqrt(share * (1 - share))


def _told(interval: Interval, name: str) -> str:
    return f"{interval.centre:+.4f} {name}, bounds {interval.low:+.4f} and {interval.high:+.4f}"


def _to_settle(base: Sequence[float], now: Sequence[float], margin: float, claim_error: float) -> str:
    """Return how many more seeds would settle it: as a pass, or where the loss exceeds the margin as a regression."""
    change = statistics.fmean(now) - statistics.fmean(base)
    lost = change <= -margin
    distance, error = (-change, claim_error) if lost else (change + margin, PASS_ERROR)
    pairs = pairs_to_settle(base, now, distance, error, least_sd_of_differences(base))
    what = "prove the loss" if lost else "settle it"
    if pairs is None:
        return "these seeds scatter so much that no number of them that is worth it would settle it: widen the margin"
    more = max(1, pairs - len(now))
    return f"about {more} more seed{'' if more == 1 else 's'} would {what}"


def _demand(base: BaselineSignal) -> str:
    """Return how many pairs of seeds that scatter like the baseline's a comparison takes, in words; of mAP only."""
    if base.name != MAP:
        return ""
    needed = seeds_needed(math.sqrt(2) * statistics.stdev(base.runs), MARGIN, PASS_ERROR)
    return f"; margin {MARGIN:g} takes {needed or 'too many'} pairs of such seeds"
