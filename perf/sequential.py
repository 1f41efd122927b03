"""Looking at an experiment before it ends, without paying for it in false alarms.

Whoever looks after every pair and stops at the first interval that excludes no change finds one sooner or later. So the
error rate of the whole experiment is a budget that its looks spend: K. K. G. Lan and D. L. DeMets, "Discrete sequential
boundaries for clinical trials", Biometrika 70 (1983), with their spending function of O'Brien and Fleming's kind,

    spent(f) = 2 - 2 * Phi(z / sqrt(f)),  z = Phi^-1(1 - error / 2)

of the fraction f of the pairs, which spends little while there is little to see. Each look gets what is newly spent
as a level of its own. That the looks share their data is not used: so the rate holds for any noise, as their sum.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Two ABBA blocks; a t interval of fewer pairs says next to nothing.
FIRST_LOOK = 4
# After every ABBA block, where both sides have come first as often.
PAIRS_A_BLOCK = 2


class Look(NamedTuple):
    """After how many ``pairs`` to look, and the one-sided error ``level`` of that look."""

    pairs: int
    level: float


def looks(most: int, error: float) -> list[Look]:
    """Return the looks of an experiment of at most ``most`` pairs whose one-sided error rate is ``error``."""
    at = [*range(min(FIRST_LOOK, most), most, PAIRS_A_BLOCK), most]
    spent = [_spent(pairs / most, error) for pairs in at]
    return [Look(pairs, now - before) for pairs, now, before in zip(at, spent, [0.0, *spent], strict=False)]


def first_is_base(pair: int) -> bool:
    """Return whether the base comes first in this pair (0, 1, ...): ABBA, so that a steady drift cancels out."""
    return pair % 2 == 0


def _spent(fraction: float, error: float) -> float:
    from scipy.special import ndtr, ndtri

    return float(2 * ndtr(ndtri(error / 2) / math.sqrt(fraction)))
