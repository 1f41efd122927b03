from __future__ import annotations

import pytest
import torch

from perf.probes.parity_differences import Pair
from perf.probes.parity_ties import MATCHING, POINTS, TIES, TOP_K, Tie
from perf.rfdetr_parity import Choices, Taken


def selecting(scores: list[float], error: float, picked: list[int]) -> Tie:
    """Return the tie between the two best of ``scores`` and the ``picked`` ones."""
    low = torch.tensor(scores).reshape(1, 1, -1)
    own = low.topk(2).indices
    reference = Pair(Taken(scores=low, own=Choices(own)), Taken(scores=low.double() + error))
    held = Taken(chosen=Choices(torch.tensor(picked).reshape(1, 1, -1)))
    return TIES[TOP_K](Pair(held, held), reference, 2.0**-23)


def test_a_top_k_tie_is_as_near_as_rounding_errors_allow() -> None:
    near, error = [1.0, 0.5, 0.5 - 1e-6, 0.1], 1e-7
    same, swapped, far = (selecting(near, error, picked) for picked in ([0, 1], [0, 2], [0, 3]))

    assert (same.differ, same.is_tie) == (0, True)
    assert (swapped.differ, swapped.is_tie) == (1, True)
    assert swapped.gap == pytest.approx(1e-6, rel=0.1)
    assert (far.differ, far.is_tie) == (1, False)


def matching(cost: list[list[float]], error: float, rows: list[int]) -> Tie:
    """Return the tie between the diagonal assignment and the one of ``rows``, for the second of two groups."""
    costs = [torch.eye(3, dtype=torch.float64)[:, :2], torch.tensor(cost, dtype=torch.float64)]
    own, chosen = (
        Choices(assigned=[[(torch.tensor([0, 1, 3 + a, 3 + b]), torch.tensor([0, 1, 0, 1]))]])
        for a, b in ([0, 1], rows)
    )
    low = Taken(groups=2, costs=costs, own=own, chosen=chosen)
    pair = Pair(low, Taken(costs=[one + error for one in costs]))
    return TIES[MATCHING](pair, pair, 2.0**-23)


def test_a_matching_tie_costs_no_more_than_rounding_errors_allow() -> None:
    cost = [[0.1, 0.9], [0.9, 0.2], [0.1 + 1e-6, 0.9]]
    same, swapped, far = (matching(cost, 1e-7, rows) for rows in ([0, 1], [2, 1], [0, 2]))

    assert (same.differ, same.total, same.is_tie) == (0, 4, True)
    assert (swapped.differ, swapped.is_tie) == (1, True)
    assert swapped.gap == pytest.approx(1e-6, rel=0.1)
    assert (far.differ, far.is_tie) == (1, False)


def test_costs_that_were_not_seen_prove_no_tie() -> None:
    assigned = [[(torch.tensor([0, 1]), torch.tensor([0, 1]))]]
    other = [[(torch.tensor([0, 2]), torch.tensor([0, 1]))]]
    low = Taken(own=Choices(assigned=assigned), chosen=Choices(assigned=other))

    assert not TIES[MATCHING](Pair(low, Taken()), Pair(low, Taken()), 2.0**-23).is_tie


def test_a_point_tie_is_as_near_as_rounding_errors_allow() -> None:
    def points(own: list[float], chosen: list[float]) -> Tie:
        places = [torch.zeros(1, 2, 2), torch.ones(1, 2, 2)]
        values = [torch.tensor([side], dtype=torch.float64) for side in (own, chosen)]
        low = Taken(own=Choices(points=places[:1]), chosen=Choices(points=places[1:]))
        low.uncertainties = [(values[0], values[1])]
        high = Taken(uncertainties=[(values[0], values[1] + 1e-7)])
        return TIES[POINTS](Pair(low, high), Pair(low, high), 2.0**-23)

    assert points([0.1, 0.2], [0.2, 0.1 + 1e-6]).is_tie
    assert not points([0.1, 0.2], [0.2, 0.1 + 1e-4]).is_tie
