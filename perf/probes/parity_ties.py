"""Ties: choices in which two steps differ, and whether rounding errors alone can have turned them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from perf.probes.parity_differences import FACTOR, FLOOR_ULPS, NO_NUMBER, ULP, Pair, finite
from perf.rfdetr_parity import Choices

# The (query, target) pairs of one assignment problem.
Pairs = set[tuple[int, int]]
TOP_K, MATCHING, POINTS = "top-k", "matching ties", "mask point ties"


@dataclass(frozen=True)
class Tie:
    """How one kind of choice differs: ``differ`` of ``total`` choices, at most ``gap`` apart where ``limit`` is a tie.

    ``unit`` is one unit in the last place of what was compared, in the precision in use.
    """

    kind: str
    differ: int
    total: int
    gap: float
    limit: float
    unit: float

    @property
    def is_tie(self) -> bool:
        """Whether rounding errors alone can have turned these choices."""
        return self.gap <= self.limit

    def __str__(self) -> str:
        what = {TOP_K: "queries", MATCHING: "matched pairs", POINTS: "points"}[self.kind]
        ulps = self.gap / self.unit if self.unit else 0.0
        return f"{self.differ} of {self.total} {what} differ, gap {ulps:.2g} ulp"


def _selection_tie(pair: Pair, reference: Pair, spacing: float) -> Tie:
    """Compare the selected queries, rank by rank.

    The value at a rank moves by no more than the largest error e of any score; so a token that rounding errors
    brought to a rank has a score within 2 e of the one that was there.
    """
    own, chosen = reference.low.own.selected, pair.low.chosen.selected
    if own is None or chosen is None:
        return Tie(TOP_K, 0, 0, 0.0, 0.0, 0.0)
    low, high = (side.scores.double() for side in (reference.low, reference.high))
    gap = float((low.gather(-1, own) - low.gather(-1, chosen)).abs().max())
    scale = float(low.abs().max())
    limit = 2 * _most_error(low, high, scale)
    return Tie(TOP_K, int((own != chosen).sum()), own.numel(), gap, limit, spacing * scale)


def _most_error(low: Any, high: Any, scale: float) -> float:
    return max(FACTOR * finite(float((low - high).abs().max())), FLOOR_ULPS * ULP * scale)


def _matching_tie(pair: Pair, reference: Pair, spacing: float) -> Tie:
    """Compare the assignments, problem by problem: a layer, a query group, an image.

    With each cost off by e at most, the assignment of n pairs that is best by one set of costs is at most 2 n e
    worse than the best by the other.
    """
    low, found = pair.low, Tie(MATCHING, 0, 0, 0.0, 0.0, 0.0)
    problems = low.groups * sum(map(len, low.own.assigned))
    if not len(low.costs) == len(pair.high.costs) == problems:
        unproven = int(_listed(low.own) != _listed(low.chosen))
        return replace(found, differ=unproven, total=problems, gap=NO_NUMBER * unproven)
    for index, (cost, exact) in enumerate(zip(low.costs, pair.high.costs, strict=True)):
        own, chosen = (_problem(side, index, low.groups, len(cost)) for side in (low.own, low.chosen))
        found = _worse(found, _problem_tie(own, chosen, cost, exact, spacing))
    return found


def _listed(choices: Choices) -> list[list[list[int]]]:
    return [[side.tolist() for side in image] for layer in choices.assigned for image in layer]


def _problem_tie(own: Pairs, chosen: Pairs, cost: Any, exact: Any, spacing: float) -> Tie:
    if own == chosen:
        return Tie(MATCHING, 0, len(own), 0.0, 0.0, 0.0)
    scale = float(cost.abs().max())
    gap = abs(_cost_of(chosen, cost) - _cost_of(own, cost))
    limit = 2 * len(own) * _most_error(cost, exact, scale)
    return Tie(MATCHING, len(own - chosen), len(own), gap, limit, spacing * scale)


def _worse(one: Tie, other: Tie) -> Tie:
    """Return both as one tie, with the gap of the one that is less of a tie."""
    shown = other if other.gap * one.limit >= one.gap * other.limit and other.differ else one
    return replace(shown, differ=one.differ + other.differ, total=one.total + other.total)


def _problem(choices: Choices, index: int, groups: int, queries: int) -> Pairs:
    """Return the (query in its group, target in its image) pairs of the ``index``-th of the solved problems."""
    layer, rest = divmod(index, groups * len(choices.assigned[0]))
    group, image = divmod(rest, len(choices.assigned[0]))
    rows, columns = (list(map(int, side)) for side in choices.assigned[layer][image])
    pairs = [(row - group * queries, column) for row, column in zip(rows, columns, strict=True)]
    return {pair for pair in pairs if 0 <= pair[0] < queries}


def _cost_of(pairs: Pairs, cost: Any) -> float:
    return math.fsum(float(cost[pair]) for pair in pairs)


def _point_tie(pair: Pair, reference: Pair, spacing: float) -> Tie:
    """Compare the uncertain points of the mask losses, as the queries are compared: by the value at each rank."""
    low, high = pair.low, pair.high
    differ = sum(
        int((own != chosen).any(-1).sum()) for own, chosen in zip(low.own.points, low.chosen.points, strict=True)
    )
    total = sum(points.shape[0] * points.shape[1] for points in low.own.points)
    gap, limit, scale = 0.0, 0.0, 0.0
    for (own, chosen), (_, exact) in zip(low.uncertainties, high.uncertainties, strict=True):
        gap = max(gap, float((own.sort(-1).values - chosen.sort(-1).values).abs().max()))
        scale = max(scale, float(chosen.abs().max()))
        limit = max(limit, 2 * _most_error(chosen, exact, scale))
    return Tie(POINTS, differ, total, gap, limit, spacing * scale)


# By kind: what compares the choices of that kind.
TIES: dict[str, Callable[[Pair, Pair, float], Tie]] = {
    TOP_K: _selection_tie,
    MATCHING: _matching_tie,
    POINTS: _point_tie,
}
