from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from perf.quality import (
    MOST_SEEDS,
    difference_interval,
    pairs_to_settle,
    power,
    prediction_interval,
    seeds_needed,
    share_interval,
)

SEEDS = [0.80, 0.82, 0.79, 0.81, 0.805]
values = st.lists(st.floats(0, 1), min_size=2, max_size=8)


def test_a_prediction_interval_is_the_textbook_one() -> None:
    found = prediction_interval(SEEDS, 1, 0.05)
    half = scipy.stats.t.ppf(0.95, 4) * statistics.stdev(SEEDS) * math.sqrt(1 + 1 / 5)

    assert found == pytest.approx((0.805, 0.805 - half, 0.805 + half))


def test_seeds_that_happen_to_agree_are_not_taken_at_their_word() -> None:
    assert prediction_interval([0.8, 0.8], 1, 0.05).low == 0.8
    assert prediction_interval([0.8, 0.8], 1, 0.05, least_sd=0.01).low < 0.75


@pytest.mark.parametrize(("known", "further"), [([0.8], 1), ([], 1), (SEEDS, 0)])
def test_a_prediction_needs_runs_to_learn_from_and_to_predict(known: list[float], further: int) -> None:
    with pytest.raises(ValueError, match="at least 2 known runs and 1 further one"):
        prediction_interval(known, further, 0.05)


@pytest.mark.parametrize("further", [1, 3])
@pytest.mark.parametrize("number", [3, 5])
def test_a_prediction_errs_as_often_as_it_says(number: int, further: int) -> None:
    draw = np.random.default_rng(number)
    outside = 0
    for _ in range(4000):
        known, new = draw.normal(0.8, 0.01, number), draw.normal(0.8, 0.01, further)
        outside += bool(new.mean() < prediction_interval(list(known), further, 0.05).low)

    assert 0.04 < outside / 4000 < 0.06


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.integers(1, 5))
def test_a_share_is_predicted_within_0_and_1(runs: list[float], further: int) -> None:
    found = share_interval(runs, further, 0.001)

    assert 0 <= found.low <= found.centre <= found.high <= 1
    assert min(runs) - 1e-9 <= found.centre <= max(runs) + 1e-9


def test_shares_that_crowd_at_1_leave_more_room_below() -> None:
    crowded = [1.0, 0.97, 0.98, 1.0, 0.90]

    assert share_interval(crowded, 1, 0.001).low < prediction_interval(crowded, 1, 0.001).low
    middle = [0.49, 0.52, 0.50, 0.51]
    assert share_interval(middle, 1, 0.05).low == pytest.approx(prediction_interval(middle, 1, 0.05).low, abs=1e-3)


@pytest.mark.parametrize("centre", [0.5, 0.9])
def test_a_prediction_of_shares_errs_as_often_as_it_says(centre: float) -> None:
    draw = np.random.default_rng(7)
    seeds = draw.binomial(60, centre, (4000, 6)) / 60
    outside = sum(share_interval(list(row[:5]), 1, 0.05).low > row[5] for row in seeds)

    assert 0.03 < outside / 4000 < 0.07


def test_a_difference_is_that_of_pairs() -> None:
    base = [0.1, 0.5, 0.9]
    found = difference_interval(base, [value - 0.05 for value in base], 0.05)

    assert found == pytest.approx((-0.05, -0.05, -0.05))


@given(values)
def test_a_difference_turns_its_sign_with_the_sides(runs: list[float]) -> None:
    other = runs[::-1]
    there, back = difference_interval(runs, other, 0.05), difference_interval(other, runs, 0.05)

    assert there.centre == pytest.approx(-back.centre)
    assert there.low == pytest.approx(-back.high)
    assert there.low <= there.centre <= there.high


@pytest.mark.parametrize(("base", "now"), [([0.8], [0.8]), (SEEDS, SEEDS[1:])])
def test_a_difference_needs_pairs(base: list[float], now: list[float]) -> None:
    with pytest.raises(ValueError, match="2 pairs or more"):
        difference_interval(base, now, 0.05)


def test_the_pairs_that_settle_do_settle_if_nothing_changes() -> None:
    base, now = [0.80, 0.82, 0.79], [0.79, 0.83, 0.80]
    pairs = pairs_to_settle(base, now, 0.01, 0.05)

    assert pairs is not None
    spread = statistics.stdev(after - before for before, after in zip(base, now, strict=True))
    assert scipy.stats.t.ppf(0.95, pairs - 1) * spread / math.sqrt(pairs) < 0.01
    assert scipy.stats.t.ppf(0.95, pairs - 2) * spread / math.sqrt(pairs - 1) >= 0.01


def test_no_number_of_pairs_settles_what_is_too_near() -> None:
    assert pairs_to_settle([0.8, 0.81], [0.77, 0.785], 0.0001, 0.05) is None


@pytest.mark.parametrize("pairs", [3, 6, 12])
def test_power_is_how_often_equal_sides_pass(pairs: int) -> None:
    draw, sd, margin = np.random.default_rng(pairs), 0.02, 0.02
    changes = draw.normal(0, sd, (5000, pairs))
    half = scipy.stats.t.ppf(0.95, pairs - 1) * changes.std(axis=1, ddof=1) / math.sqrt(pairs)
    passed = float(np.mean(changes.mean(axis=1) - half > -margin))

    assert power(sd, pairs, margin, 0.05) == pytest.approx(passed, abs=0.02)


def test_power_grows_with_seeds_and_shrinks_with_spread() -> None:
    assert power(0.02, 12, 0.02, 0.05) > power(0.02, 6, 0.02, 0.05) > power(0.04, 6, 0.02, 0.05)
    assert (power(0.02, 1, 0.02, 0.05), power(0.0, 2, 0.02, 0.05)) == (0.0, 1.0)
    assert power(1e-4, 6, 0.02, 0.05) == pytest.approx(1)


def test_the_seeds_needed_are_the_fewest() -> None:
    needed = seeds_needed(0.014, 0.02, 0.05)

    assert needed is not None
    assert power(0.014, needed, 0.02, 0.05) >= 0.9 > power(0.014, needed - 1, 0.02, 0.05)
    assert seeds_needed(1.0, 0.001, 0.05) is None
    assert MOST_SEEDS == 100
