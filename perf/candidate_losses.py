"""Whether a candidate computes rfdetr's losses: held against rfdetr's own and, where they differ, against float64.

In bf16 the two may differ and the candidate be the better one. rfdetr's classification loss takes ``logsigmoid(x)``
from ``x``, near-equal numbers that each op has rounded, where a fused kernel rounds once at its end. So a loss that is
not within the tolerance of the eager one must be right by itself: no further than one rounding of the outputs' type
from the same loss in float64, and no further than the eager one. The same outputs in float32, where rounding hides no
error of more than the tolerance, are a check of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from perf.candidates import Candidate


# What a loss in float32 is from one in float64, as a share: sums of some thousand terms.
_FLOAT32 = 1e-6


class Loss(NamedTuple):
    """One loss: rfdetr's, the candidate's, and rfdetr's in float64 with the same matching; None: not to be had."""

    name: str
    eager: float
    candidate: float
    reference: float | None


class Check(NamedTuple):
    """All losses from the same outputs in ``dtype``, whose rounding errs by ``roundoff``, a share, at most."""

    dtype: str
    roundoff: float
    losses: tuple[Loss, ...]


def read_checks(raw: list[Any]) -> list[Check]:
    """Return the checks that JSON has made lists of."""
    return [Check(dtype, roundoff, tuple(Loss(*loss) for loss in losses)) for dtype, roundoff, losses in raw]


def judged(candidate: Candidate, check: Check) -> tuple[bool, str]:
    """Return whether the losses are right, and that in words, with every loss that is not within the tolerance."""
    differ = [loss for loss in check.losses if not _alike(loss.eager, loss.candidate, candidate.tolerance)]
    wrong = [loss for loss in differ if not _as_right(loss, candidate.tolerance, check.roundoff)]
    count, rest = len(check.losses), f"within {candidate.tolerance:g} of eager"
    if wrong:
        head = f"{len(wrong)} of {count} losses differ"
    elif differ:
        head = f"{len(differ)} of {count} losses are not those of eager, but nearer to float64; the others {rest}"
    else:
        exact = all(loss.eager == loss.candidate for loss in check.losses)
        head = f"{count} losses {'bitwise equal' if exact else rest}"
    lines = [f"  {check.dtype}: {head}", *(f"    {_line(loss, candidate.name)}" for loss in wrong or differ)]
    return not wrong, "\n".join(lines)


def _alike(before: float, after: float, tolerance: float) -> bool:
    return before == after or math.isclose(before, after, rel_tol=tolerance, abs_tol=tolerance * 1e-2)


def _as_right(loss: Loss, tolerance: float, roundoff: float) -> bool:
    """Say whether a loss that is not the eager one is as right; never where the candidate's claim is bitwise."""
    if loss.reference is None or not tolerance:
        return False
    eager, candidate = (abs(value - loss.reference) for value in (loss.eager, loss.candidate))
    size = abs(loss.reference)
    return candidate <= eager + tolerance * size and candidate <= max(tolerance, roundoff) * size


def _line(loss: Loss, candidate: str) -> str:
    sides = (("eager", loss.eager), (candidate, loss.candidate))
    return f"{loss.name}: " + ", ".join(f"{side} {value!r}{_off(value, loss.reference)}" for side, value in sides)


def _off(value: float, reference: float | None) -> str:
    """Return how far a loss is from its reference, as `` (1.8 % below float64)``; empty where that is no number."""
    if not reference or not math.isfinite(value):
        return ""
    share = value / reference - 1
    if abs(share) < _FLOAT32:
        return " (as in float64)"
    return f" ({100 * abs(share):.2g} % {'below' if share < 0 else 'above'} float64)"
