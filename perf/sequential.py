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


def looks(most: int, error: float, shares: int = 1) -> list[Look]:
    """Return the looks of an experiment of at most ``most`` pairs that claims a change wrongly with rate ``error``.

    One-sided; ``shares`` signals share it, each taking its part of a look's level. A look that can prove nothing
    (:func:`can_prove`) spends nothing on claims, so that its level is left to the next. The levels themselves then add
    up to more, at most to twice ``error`` (1.34 times with 10 pairs), which concerns only a pass in spite of a slowdown
    as large as the tolerance.
    """
    found: list[Look] = []
    before = claimed = 0.0
    for pairs in [*range(min(FIRST_LOOK, most), most, PAIRS_A_BLOCK), most]:
        spent = _spent(pairs / most, error)
        look = Look(pairs, spent - claimed)
        if can_prove(look, shares):
            claimed = spent
        else:
            look = Look(pairs, spent - before)
        found.append(look)
        before = spent
    return found


def can_prove(look: Look, shares: int = 1) -> bool:
    """Return whether pairs that all agree prove a change here: sign flips of n pairs have no p-value below 2^-n."""
    return 2.0**-look.pairs <= look.level / shares


def least_pairs(error: float, shares: int = 1) -> int:
    """Return the fewest pairs of which an experiment can prove a change at all: with fewer no wall signal regresses."""
    return math.ceil(math.log2(shares / error))


def first_is_base(pair: int) -> bool:
    """Return whether the base comes first in this pair (0, 1, ...): ABBA, so that a steady drift cancels out."""
    return pair % 2 == 0


def _spent(fraction: float, error: float) -> float:
    from scipy.special import ndtr, ndtri

    return float(2 * ndtr(ndtri(error / 2) / math.sqrt(fraction)))
