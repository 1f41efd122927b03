"""Estimators for quality: how mAP and loss scatter from seed to seed, and what so many seeds can prove.

Unlike :mod:`perf.stats` these are of differences, not of ratios: a mAP of 0 is a value like any other. The bounds are
Student's t: the prediction interval for the mean of further runs (G. J. Hahn and W. Q. Meeker, "Statistical Intervals",
1991, section 4.7), and for pairs the one of their mean difference. scipy supplies the quantiles.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from perf.stats import t_quantile

# More seeds than this are no check but an experiment of its own.
MOST_SEEDS = 100


class Interval(NamedTuple):
    """A value and the two ends around it, in the unit of what was measured."""

    centre: float
    low: float
    high: float


def prediction_interval(known: Sequence[float], further: int, error: float, least_sd: float = 0.0) -> Interval:
    """Return where the mean of ``further`` runs falls, but for ``error`` on each side, if they are like ``known``.

    The half-width is t(n - 1, 1 - error) * s * sqrt(1 / further + 1 / n), with n and s the number and standard
    deviation of ``known``, and s no less than ``least_sd``.

    Raises:
        ValueError: fewer than two known runs, or no further one.
    """
    if len(known) < 2 or further < 1:
        msg = f"a prediction needs at least 2 known runs and 1 further one, not {len(known)} and {further}"
        raise ValueError(msg)
    spread = max(statistics.stdev(known), least_sd)
    half = t_quantile(len(known) - 1, 1 - 2 * error) * spread * math.sqrt(1 / further + 1 / len(known))
    return _around(statistics.fmean(known), half)


def share_interval(known: Sequence[float], further: int, error: float, least_sd: float = 0.0) -> Interval:
    """Return the :func:`prediction_interval` of values that lie within 0 and 1 and may crowd at an end.

    It is taken of asin(sqrt(value)), in which shares scatter alike everywhere (M. S. Bartlett, "The square root
    transformation in analysis of variance", 1936), and turned back. ``least_sd`` is one of those angles, in rad.

    Raises:
        ValueError: as :func:`prediction_interval`.
    """
    angles = [math.asin(math.sqrt(min(1.0, max(0.0, value)))) for value in known]
    return Interval(*map(_share, prediction_interval(angles, further, error, least_sd)))


def _share(angle: float) -> float:
    return math.sin(min(math.pi / 2, max(0.0, angle))) ** 2


def difference_interval(base: Sequence[float], now: Sequence[float], error: float, least_sd: float = 0) -> Interval:
    """Return the mean of ``now`` - ``base`` over pairs, with the bound on each side that errs with rate ``error``.

    Few pairs can agree by chance, so that their differences scatter by ``least_sd`` at least, unless all of them are 0.

    Raises:
        ValueError: fewer than two pairs, or sides of different length.
    """
    if len(base) != len(now) or len(base) < 2:
        msg = f"it takes 2 pairs or more, a run of each side, not {len(base)} and {len(now)} runs"
        raise ValueError(msg)
    changes = [after - before for before, after in zip(base, now, strict=True)]
    return _around(statistics.fmean(changes), _half(_spread(changes, least_sd), len(changes), error))


def _spread(changes: Sequence[float], least_sd: float) -> float:
    return max(statistics.stdev(changes), least_sd) if any(changes) else 0.0


def pairs_to_settle(
    base: Sequence[float], now: Sequence[float], distance: float, error: float, least_sd: float = 0
) -> int | None:
    """Return about how many pairs in all would make the bound of the mean difference less wide than ``distance``.

    The spread of the differences is that of :func:`difference_interval`. None: more than ``MOST_SEEDS``.
    """
    changes = [after - before for before, after in zip(base, now, strict=True)]
    spread = _spread(changes, least_sd)
    return next((n for n in range(len(changes), MOST_SEEDS + 1) if _half(spread, n, error) < distance), None)


def power(sd: float, pairs: int, margin: float, error: float) -> float:
    """Return how often ``pairs`` prove equal sides to be within ``margin``: the power of the paired one-sided t test.

    ``sd`` is the standard deviation of a pair's difference; the distribution is the non-central t with
    sqrt(pairs) * margin / sd.
    """
    from scipy.special import nctdtr

    if pairs < 2:
        return 0.0
    if sd == 0:
        return 1.0
    centre = math.sqrt(pairs) * margin / sd
    # Far out scipy gives nan: then nothing is left of the error.
    missed = float(nctdtr(pairs - 1, centre, t_quantile(pairs - 1, 1 - 2 * error)))
    return 1.0 if math.isnan(missed) else 1 - missed


def seeds_needed(sd: float, margin: float, error: float, wanted: float = 0.9) -> int | None:
    """Return the fewest pairs of seeds of which ``wanted`` is the :func:`power`; None: more than ``MOST_SEEDS``."""
    return next((n for n in range(2, MOST_SEEDS + 1) if power(sd, n, margin, error) >= wanted), None)


def _half(spread: float, pairs: int, error: float) -> float:
    return t_quantile(pairs - 1, 1 - 2 * error) * spread / math.sqrt(pairs)


def _around(centre: float, half: float) -> Interval:
    return Interval(centre, centre - half, centre + half)
