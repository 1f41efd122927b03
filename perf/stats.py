"""Estimators and intervals over runs. A run is the unit: the steps inside one are not independent experiments.

Intervals are Welch's t intervals on the logarithms of the run values, so that what is estimated is a ratio:
B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34 (1947), with the Welch-Satterthwaite degrees of freedom. scipy supplies Student's t quantile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
# Nobody runs a case more often than this to settle one number; beyond it the answer is a quieter machine.
MOST_FURTHER_RUNS = 50


class RatioInterval(NamedTuple):
    """A ratio now / baseline (no unit), and the two ends of its confidence interval."""

    ratio: float
    low: float
    high: float

    def inverse(self) -> RatioInterval:
        """Return the interval of baseline / now."""
        return RatioInterval(1 / self.ratio, 1 / self.high, 1 / self.low)


class _Sample(NamedTuple):
    """Mean, variance and size of the logarithms of one side."""

    mean: float
    variance: float
    size: int

    @property
    def squared_error(self) -> float:
        return self.variance / self.size


def ratio_interval(base: Sequence[float], now: Sequence[float], confidence: float = CONFIDENCE) -> RatioInterval:
    """Return the ratio of the geometric means of ``now`` and ``base`` with its two-sided Welch t interval.

    The values are one a run (for a wall signal the median of that run's samples), in one unit.

    Raises:
        ValueError: fewer than two runs on a side, or a value that is not above 0.
    """
    before, after = _logs(base), _logs(now)
    centre = after.mean - before.mean
    half = _half_width(before, after, confidence)
    return RatioInterval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def further_runs(
    base: Sequence[float], now: Sequence[float], boundary: float, confidence: float = CONFIDENCE
) -> int | None:
    """Return about how many more runs of ``now`` would take ``boundary`` (a ratio) out of the interval.

    An approximation from what was measured: the smallest k with

        t(confidence, df) * sqrt(s_base^2 / n_base + s_now^2 / (n_now + k)) < |log(boundary) - log(ratio)|

    where s are the standard deviations of the log run values, taken as they are, and so is the ratio.
    None: more than ``MOST_FURTHER_RUNS``, or the spread of the baseline's own runs stands in the way.

    Raises:
        ValueError: as :func:`ratio_interval`.
    """
    before, after = _logs(base), _logs(now)
    distance = abs(math.log(boundary) - (after.mean - before.mean))
    for extra in range(1, MOST_FURTHER_RUNS + 1):
        if _half_width(before, after._replace(size=after.size + extra), confidence) < distance:
            return extra
    return None


def learned_band(runs: Sequence[float], floor: float, confidence: float = CONFIDENCE) -> float:
    """Return how far, as a fraction of their mean, one further run may lie from ``runs`` by chance alone.

    The half-width of the normal prediction interval for one further observation, t * s * sqrt(1 + 1/n), over the
    mean (Hahn and Meeker, "Statistical Intervals", 1991, chapter 4); never below ``floor``, which is also the
    answer where one run, or a mean of 0, has nothing to teach.
    """
    mean = statistics.fmean(runs)
    if len(runs) < 2 or mean <= 0:
        return floor
    half = _t_quantile(len(runs) - 1, confidence) * statistics.stdev(runs) * math.sqrt(1 + 1 / len(runs))
    return max(floor, half / mean)


def _logs(values: Sequence[float]) -> _Sample:
    if len(values) < 2:
        msg = f"an interval needs at least 2 runs on each side, not {len(values)}"
        raise ValueError(msg)
    if min(values) <= 0:
        msg = f"a ratio needs run values above 0, not {min(values):g}"
        raise ValueError(msg)
    logs = [math.log(value) for value in values]
    return _Sample(statistics.fmean(logs), statistics.variance(logs), len(logs))


def _half_width(base: _Sample, now: _Sample, confidence: float) -> float:
    total = base.squared_error + now.squared_error
    if total == 0:
        return 0.0
    share = base.squared_error / total
    degrees = 1 / (share**2 / (base.size - 1) + (1 - share) ** 2 / (now.size - 1))
    return _t_quantile(degrees, confidence) * math.sqrt(total)


def _t_quantile(degrees: float, confidence: float) -> float:
    from scipy.special import stdtrit  # here, since judging counts needs no scipy and starts in half the time

    return float(stdtrit(degrees, (1 + confidence) / 2))
