from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from perf.sequential import FIRST_LOOK, PAIRS_A_BLOCK, Look, can_prove, first_is_base, least_pairs, looks
from perf.stats import sign_flip_p

errors = st.floats(1e-4, 0.05)


@given(st.integers(1, 40), errors, st.integers(1, 20))
def test_looks_come_after_whole_blocks_and_end_with_the_last_pair(most: int, error: float, shares: int) -> None:
    pairs = [look.pairs for look in looks(most, error, shares)]
    assert pairs[-1] == most
    assert pairs[0] == min(FIRST_LOOK, most)
    assert all(later - earlier in (1, PAIRS_A_BLOCK) for earlier, later in pairwise(pairs))
    assert all(number % PAIRS_A_BLOCK == 0 for number in pairs[:-1])


@given(st.integers(1, 40), errors, st.integers(1, 20))
def test_the_looks_that_can_claim_a_change_spend_the_error_and_no_more(most: int, error: float, shares: int) -> None:
    found = looks(most, error, shares)
    spent = sum(look.level for look in found if can_prove(look, shares))
    assert spent <= error * (1 + 1e-9)
    assert all(look.level > 0 for look in found)
    if can_prove(found[-1], shares):
        assert spent == pytest.approx(error)


@given(st.integers(1, 40), errors, st.integers(1, 20))
def test_all_levels_together_are_at_most_twice_the_error(most: int, error: float, shares: int) -> None:
    assert sum(look.level for look in looks(most, error, shares)) <= 2 * error


def test_levels_are_those_of_the_spending_function() -> None:
    spent = [2 - 2 * norm.cdf(norm.ppf(1 - 0.005 / 2) / (pairs / 10) ** 0.5) for pairs in (4, 6, 8, 10)]
    newly = [later - earlier for earlier, later in pairwise([0.0, *spent])]
    # None of the first three can prove a change, so that the fourth has what they left.
    assert [look.level for look in looks(10, 0.005)] == pytest.approx([*newly[:3], 0.005])
    assert sum(look.level for look in looks(10, 0.005)) == pytest.approx(1.34 * 0.005, rel=0.005)


def test_one_look_has_the_whole_error() -> None:
    [look] = looks(3, 0.005)
    assert look.pairs == 3
    assert look.level == pytest.approx(0.005)


@pytest.mark.parametrize(("pairs", "proves"), [(7, False), (8, True)])
def test_a_look_can_prove_what_pairs_that_all_agree_prove(pairs: int, proves: bool) -> None:
    agreeing = [0.1] * pairs
    assert can_prove(Look(pairs, 0.005)) == proves == (sign_flip_p(agreeing, 0.0, above=True) <= 0.005)


@given(errors, st.integers(1, 50))
def test_the_least_pairs_are_the_fewest_that_prove_a_change(error: float, shares: int) -> None:
    least = least_pairs(error, shares)
    assert can_prove(Look(least, error), shares)
    assert not can_prove(Look(least - 1, error), shares)


def test_ten_pairs_prove_no_change_to_more_than_five_signals() -> None:
    assert [least_pairs(0.005, shares) for shares in (1, 5, 6, 10, 20)] == [8, 10, 11, 11, 12]


def test_pairs_are_abba_so_that_a_steady_drift_cancels_out() -> None:
    order = "".join("AB" if first_is_base(pair) else "BA" for pair in range(4))
    assert order == "ABBAABBA"
    places = {side: [place for place, at in enumerate(order) if at == side] for side in "AB"}
    assert sum(places["A"]) == sum(places["B"])
