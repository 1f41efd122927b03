"""Estimators, tests and intervals over runs. A run is the unit: the steps inside one are not independent experiments.

All work on the logarithms of the run values, so that what is estimated is a ratio. The intervals are Student's t
intervals, scipy supplying the quantiles: Welch's for two separate sets of runs (B. L. Welch, "The generalization of
'Student's' problem when several different population variances are involved", Biometrika 34, 1947), the paired one
where the runs of two sides were interleaved, and the pooled one for device signals, whose spread is the same on both
sides and often known from earlier runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE = 0.95
# Nobody runs a case more often than this to settle one number; beyond it the answer is a quieter machine.
MOST_FURTHER_RUNS = 50
# Up to so many pairs all 2^n sign changes are tried; beyond, this many of them, drawn with a fixed seed.
EXACT_PAIRS = 14
# e^700 and its inverse are still finite; no ratio of two times is near either.
MOST_LOG = 700.0


class RatioInterval(NamedTuple):
    """A ratio now / baseline (no unit), and the two ends of its confidence interval."""

    ratio: float
    low: float
    high: float

    def inverse(self) -> RatioInterval:
        """Return the interval of baseline / now."""
        return RatioInterval(1 / self.ratio, 1 / self.high, 1 / self.low)


class Noise(NamedTuple):
    """How runs of unchanged code scatter: the variance of the log run values, and its degrees of freedom."""

    variance: float
    degrees: int


NO_NOISE = Noise(0.0, 0)


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
    return _interval(after.mean - before.mean, _half_width(before, after, confidence))


def paired_interval(base: Sequence[float], now: Sequence[float], confidence: float = CONFIDENCE) -> RatioInterval:
    """Return the same ratio from pairs of runs, one of each side, that were measured one after the other.

    What both runs of a pair share, such as a host that slows down in the course of a session, is in neither end.

    Raises:
        ValueError: fewer than two pairs, sides of different length, or a value that is not above 0.
    """
    changes = log_changes(base, now)
    sample = _Sample(statistics.fmean(changes), statistics.variance(changes), len(changes))
    half = t_quantile(sample.size - 1, confidence) * math.sqrt(sample.squared_error)
    return _interval(sample.mean, half)


class MedianInterval(NamedTuple):
    """A median and the two ends of its confidence interval, in the unit of the values."""

    median: float
    low: float
    high: float

    @property
    def excludes_none(self) -> bool:
        """Whether 0 is outside: what was measured is there, and its sign is known."""
        return self.low > 0 or self.high < 0


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MedianInterval | None:
    """Return the median of ``values`` with its two-sided interval, whatever their distribution; None for too few.

    Its ends are order statistics: the k-th smallest and the k-th largest, with the largest k for which fewer than k of
    n fair coins fall on one side with probability (1 - confidence) / 2 at most (as scipy.stats.quantile_test has it,
    which takes a second to import). At 95 % that needs six values, and is then the range of them.
    """
    ordered, count = sorted(values), len(values)
    tail, rank = 2.0**-count, 0
    while tail <= (1 - confidence) / 2:
        rank += 1
        tail += math.comb(count, rank) * 2.0**-count
    if not rank:
        return None
    return MedianInterval(statistics.median(ordered), ordered[rank - 1], ordered[-rank])


def pooled_interval(
    base: Sequence[float], now: Sequence[float], confidence: float = CONFIDENCE, noise: Noise = NO_NOISE
) -> RatioInterval | None:
    """Return the ratio of the geometric means, the spread being one for both sides and for the runs of ``noise``.

    The half-width is t * s * sqrt(1/n + 1/m), with s^2 the mean of all variances, each weighed by its degrees of
    freedom, and t with the sum of those. One run a side will do where ``noise`` has runs to teach.

    Returns:
        The interval, or None where no run at all has a second to be compared with.

    Raises:
        ValueError: no run on a side, or a value that is not above 0.
    """
    sides = [_positive_logs(base), _positive_logs(now)]
    spread = _pooled([noise, spread_of(base, now)])
    if not spread.degrees:
        return None
    half = t_quantile(spread.degrees, confidence) * math.sqrt(spread.variance * sum(1 / len(side) for side in sides))
    return _interval(statistics.fmean(sides[1]) - statistics.fmean(sides[0]), half)


def spread_of(base: Sequence[float], now: Sequence[float]) -> Noise:
    """Return how the runs of both sides scatter about their own means; nothing where each side has but one.

    Raises:
        ValueError: no run on a side, or a value that is not above 0.
    """
    sides = [_positive_logs(base), _positive_logs(now)]
    return _pooled([Noise(statistics.variance(side), len(side) - 1) for side in sides if len(side) > 1])


def exceeds(own: Noise, known: Noise, level: float) -> bool:
    """Return whether ``own`` scatters more than ``known`` lets happen with probability ``level``, by the F test."""
    return own.variance > least_excess(own.degrees, known, level)


def least_excess(degrees: int, known: Noise, level: float) -> float:
    """Return the variance that runs of ``known`` noise exceed with probability ``level``; infinite if nothing tells.

    It is F(level; degrees, known degrees) times the known variance.
    """
    if not (degrees and known.degrees):
        return math.inf
    from scipy.special import fdtri

    return float(fdtri(degrees, known.degrees, 1 - level)) * known.variance


def _pooled(spreads: Sequence[Noise]) -> Noise:
    degrees = sum(spread.degrees for spread in spreads)
    total = sum(spread.variance * spread.degrees for spread in spreads)
    return Noise(total / degrees, degrees) if degrees else NO_NOISE


def noise_of(runs: Sequence[float]) -> Noise:
    """Return what these runs of unchanged code teach; nothing where there is but one, or a value is not above 0."""
    if len(runs) < 2 or min(runs) <= 0:
        return NO_NOISE
    return Noise(statistics.variance([math.log(value) for value in runs]), len(runs) - 1)


def log_changes(base: Sequence[float], now: Sequence[float]) -> list[float]:
    """Return log(now / base) of each pair of runs.

    Raises:
        ValueError: fewer than two pairs, sides of different length, or a value that is not above 0.
    """
    if len(base) != len(now):
        msg = f"pairs need as many runs on one side as on the other, not {len(base)} and {len(now)}"
        raise ValueError(msg)
    _require(base)
    _require(now)
    return [math.log(after / before) for before, after in zip(base, now, strict=True)]


def sign_flip_p(changes: Sequence[float], boundary: float, *, above: bool) -> float:
    """Return the p-value of the mean of the paired log ``changes`` lying ``above`` (or below) a log ``boundary``.

    Fisher's randomization test: were there no change beyond the boundary, each difference from it would be as likely
    to have the other sign, whatever its distribution (R. A. Fisher, "The Design of Experiments", 1935, section 21).
    So it holds where a t interval does not, on a host that jumps between two speeds; and with n pairs it is never
    less than 2^-n, so that few pairs prove nothing.
    """
    import numpy as np

    shifted = (1 if above else -1) * (np.asarray(changes, dtype=np.float64) - boundary)
    observed = shifted.sum()
    # Sums that are equal but for the order of adding up.
    reached = observed - 1e-12 * np.abs(shifted).sum()
    if len(shifted) > EXACT_PAIRS:
        # What was observed is one of them, so that p is never 0.
        return float((1 + np.count_nonzero(_signs(len(shifted)) @ shifted >= reached)) / (1 + 2**EXACT_PAIRS))
    sums = np.zeros(1)
    for change in shifted:
        sums = np.concatenate([sums + change, sums - change])
    return float(np.mean(sums >= reached))


@lru_cache(maxsize=2)
def _signs(count: int) -> NDArray[np.float64]:
    """Return the sign changes that are tried of so many pairs, always the same, a row each."""
    import numpy as np

    drawn = np.random.default_rng(0).integers(0, 2, (2**EXACT_PAIRS, count), dtype=np.int8)
    return np.asarray(2.0 * drawn - 1.0, dtype=np.float64)


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


def further_pairs(changes: Sequence[float], boundary: float, confidence: float = CONFIDENCE) -> int | None:
    """Return about how many more pairs would take the log ``boundary`` out of the paired interval of ``changes``.

    As :func:`further_runs`: the smallest k with t * s / sqrt(n + k) below the distance from the mean to the boundary.
    """
    distance = abs(boundary - statistics.fmean(changes))
    spread, size = statistics.stdev(changes), len(changes)
    for extra in range(1, MOST_FURTHER_RUNS + 1):
        if t_quantile(size + extra - 1, confidence) * spread / math.sqrt(size + extra) < distance:
            return extra
    return None


def _interval(centre: float, half: float) -> RatioInterval:
    return RatioInterval(*(_exp(log) for log in (centre, centre - half, centre + half)))


def _exp(log: float) -> float:
    """Return e^log, kept where it and its inverse are finite: two pairs far apart give ends beyond any float."""
    return math.exp(max(-MOST_LOG, min(MOST_LOG, log)))


def _require(values: Sequence[float]) -> None:
    if len(values) < 2:
        msg = f"an interval needs at least 2 runs on each side, not {len(values)}"
        raise ValueError(msg)
    if min(values) <= 0:
        msg = f"a ratio needs run values above 0, not {min(values):g}"
        raise ValueError(msg)


def _positive_logs(values: Sequence[float]) -> list[float]:
    if min(values, default=0) <= 0:
        msg = "a ratio needs at least one run on each side, and run values above 0"
        raise ValueError(msg)
    return [math.log(value) for value in values]


def _logs(values: Sequence[float]) -> _Sample:
    _require(values)
    logs = [math.log(value) for value in values]
    return _Sample(statistics.fmean(logs), statistics.variance(logs), len(logs))


def _half_width(base: _Sample, now: _Sample, confidence: float) -> float:
    total = base.squared_error + now.squared_error
    if total == 0:
        return 0.0
    share = base.squared_error / total
    degrees = 1 / (share**2 / (base.size - 1) + (1 - share) ** 2 / (now.size - 1))
    return t_quantile(degrees, confidence) * math.sqrt(total)


def t_quantile(degrees: float, confidence: float) -> float:
    """Return the quantile of Student's t that bounds the middle ``confidence`` of it (0 to 1)."""
    from scipy.special import stdtrit  # here, since judging counts needs no scipy and starts in half the time

    return float(stdtrit(degrees, (1 + confidence) / 2))
