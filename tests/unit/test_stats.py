from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from perf.stats import (
    EXACT_PAIRS,
    MOST_FURTHER_RUNS,
    NO_NOISE,
    Noise,
    exceeds,
    further_pairs,
    further_runs,
    least_excess,
    log_changes,
    median_interval,
    noise_of,
    paired_interval,
    pooled_interval,
    ratio_interval,
    sign_flip_p,
    spread_of,
)

times = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=12)


@given(times, times)
def test_the_interval_is_scipys_welch_interval_of_the_logarithms(base: list[float], now: list[float]) -> None:
    ours = ratio_interval(base, now)
    assert ours.low <= ours.ratio <= ours.high
    if len(set(base)) > 1 and len(set(now)) > 1:
        logs = [[math.log(value) for value in side] for side in (now, base)]
        theirs = scipy_stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
        assert math.log(ours.low) == pytest.approx(theirs.low, rel=1e-6, abs=1e-9)
        assert math.log(ours.high) == pytest.approx(theirs.high, rel=1e-6, abs=1e-9)


@given(times, times)
def test_swapping_the_sides_inverts_the_interval(base: list[float], now: list[float]) -> None:
    assert tuple(ratio_interval(now, base)) == pytest.approx(tuple(ratio_interval(base, now).inverse()))


def test_runs_without_spread_give_an_interval_of_no_width() -> None:
    assert ratio_interval([2.0, 2.0], [3.0, 3.0]) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize(
    ("base", "now", "why"),
    [([1.0], [1.0, 2.0], "at least 2 runs"), ([1.0, 2.0], [], "at least 2 runs"), ([0.0, 1.0], [1.0, 1.0], "above 0")],
)
def test_what_gives_no_ratio_is_an_error(base: list[float], now: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ratio_interval(base, now)


def test_further_runs_are_the_fewest_that_take_the_boundary_out() -> None:
    base, now = [99.0, 100.0, 101.0, 100.0, 100.0], [99.0, 105.0]
    runs = further_runs(base, now, 1.05)
    assert runs is not None
    assert 1 <= runs <= 10
    assert ratio_interval(base, now).high > 1.05
    # Runs that scatter as measured: that many more settle it.
    assert ratio_interval(base, now * (1 + runs)).high < 1.05


def test_no_number_of_runs_settles_what_the_baseline_leaves_open() -> None:
    assert further_runs([80.0, 120.0], [99.0, 101.0], 1.05) is None
    assert MOST_FURTHER_RUNS >= 10


# Two pairs as far apart as can be, and a t quantile of 64, keep the ends within what a float holds.
pairs = st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=2, max_size=12)


@given(pairs)
def test_the_paired_interval_is_scipys_of_the_log_ratios(runs: list[tuple[float, float]]) -> None:
    base, now = ([pair[side] for pair in runs] for side in (0, 1))
    ours, changes = paired_interval(base, now, 0.99), log_changes(base, now)
    assert ours.low <= ours.ratio <= ours.high
    if statistics.stdev(changes) > 1e-9:
        theirs = scipy_stats.ttest_1samp(changes, 0).confidence_interval(0.99)
        assert math.log(ours.low) == pytest.approx(theirs.low, rel=1e-6, abs=1e-9)
        assert math.log(ours.high) == pytest.approx(theirs.high, rel=1e-6, abs=1e-9)


@given(pairs, st.floats(0.1, 10), st.floats(0.1, 10))
def test_a_drift_that_both_of_a_pair_share_changes_nothing(
    runs: list[tuple[float, float]], first: float, more: float
) -> None:
    base, now = ([pair[side] for pair in runs] for side in (0, 1))
    drift = [first * more ** (index / 10) for index in range(len(runs))]
    moved = [[value * factor for value, factor in zip(side, drift, strict=True)] for side in (base, now)]
    assert tuple(paired_interval(moved[0], moved[1])) == pytest.approx(tuple(paired_interval(base, now)), rel=1e-6)


def test_ends_beyond_any_float_stay_finite_and_can_be_inverted() -> None:
    wide = paired_interval([1e-3, 1e3], [1e3, 1e-3], 0.99)
    assert wide.ratio == pytest.approx(1)
    assert 0 < wide.low < 1 < wide.high < math.inf
    assert wide.inverse().high == pytest.approx(wide.high)


def test_pairs_need_both_sides() -> None:
    with pytest.raises(ValueError, match="not 2 and 3"):
        paired_interval([1, 2], [1, 2, 3])


def test_the_pooled_interval_is_students_t_interval() -> None:
    base, now = [99.0, 101, 100, 100.5], [104.0, 103, 105]
    ours = pooled_interval(base, now, 0.99)
    assert ours
    logs = [[math.log(value) for value in side] for side in (now, base)]
    theirs = scipy_stats.ttest_ind(*logs, equal_var=True).confidence_interval(0.99)
    assert math.log(ours.low) == pytest.approx(theirs.low)
    assert math.log(ours.high) == pytest.approx(theirs.high)


def test_earlier_runs_teach_how_single_ones_scatter() -> None:
    noise = noise_of([10.26, 10.256, 10.265, 10.257])
    assert pooled_interval([10.26], [10.36]) is None
    found = pooled_interval([10.26], [10.36], 0.99, noise)
    assert found
    half = scipy_stats.t.ppf(0.995, 3) * math.sqrt(2 * noise.variance)
    assert math.log(found.high / found.ratio) == pytest.approx(half)


@pytest.mark.parametrize("runs", [[], [5.0], [5.0, 0.0]])
def test_what_teaches_nothing_is_no_noise(runs: list[float]) -> None:
    assert noise_of(runs) == NO_NOISE


@pytest.mark.parametrize(("count", "p"), [(2, 1 / 4), (4, 1 / 16), (10, 1 / 1024)])
def test_pairs_that_all_rise_have_the_least_p_value_there_is(count: int, p: float) -> None:
    rises = [0.05 + index / 1000 for index in range(count)]
    assert sign_flip_p(rises, 0.0, above=True) == pytest.approx(p)
    assert sign_flip_p([-rise for rise in rises], 0.0, above=False) == pytest.approx(p)
    assert sign_flip_p(rises, 0.2, above=True) == 1.0


def test_many_pairs_are_drawn_from_and_always_alike() -> None:
    rises = [0.05 + index / 1000 for index in range(EXACT_PAIRS + 6)]
    assert sign_flip_p(rises, 0.0, above=True) == sign_flip_p(rises, 0.0, above=True) < 2**-12


# Sums of these are exact: whether two of them are equal is not left to rounding, of which scipy forgives less.
exact = st.integers(-512, 512).map(lambda number: number / 1024)


@given(st.lists(exact, min_size=2, max_size=10), exact.map(lambda change: change / 8), st.booleans())
def test_sign_flips_are_scipys_permutation_test(changes: list[float], boundary: float, above: bool) -> None:
    shifted = (1 if above else -1) * (np.asarray(changes) - boundary)
    theirs = scipy_stats.permutation_test(
        (shifted,), np.mean, permutation_type="samples", alternative="greater", n_resamples=2**10
    )
    assert sign_flip_p(changes, boundary, above=above) == pytest.approx(theirs.pvalue)


def test_an_f_test_tells_that_runs_scatter_more_than_is_known() -> None:
    own, known = Noise(5.0, 6), Noise(1.0, 5)
    p = scipy_stats.f.sf(5.0, 6, 5)
    assert exceeds(own, known, p * 1.01)
    assert not exceeds(own, known, p * 0.99)
    assert not exceeds(own, NO_NOISE, 0.5)
    assert not exceeds(NO_NOISE, known, 0.5)
    assert least_excess(6, known, p) == pytest.approx(5.0)


@given(times, times)
def test_the_spread_of_two_sides_is_about_their_own_means(base: list[float], now: list[float]) -> None:
    found = spread_of(base, now)
    squares = [statistics.variance([math.log(v) for v in side]) * (len(side) - 1) for side in (base, now)]
    assert found.degrees == len(base) + len(now) - 2
    assert found.variance * found.degrees == pytest.approx(sum(squares))
    assert spread_of([1.0], [2.0]) == NO_NOISE


def test_further_pairs_are_the_fewest_that_take_the_boundary_out() -> None:
    changes = [0.02, -0.03, 0.01, -0.01]
    more = further_pairs(changes, math.log(1.02), 0.95)
    assert more is not None
    half = scipy_stats.t.ppf(0.975, 4 + more - 1) * statistics.stdev(changes) / math.sqrt(4 + more)
    assert half < math.log(1.02) - statistics.fmean(changes)
    assert further_pairs([0.5, -0.5], 0.01) is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=60))
def test_the_interval_of_a_median_is_that_of_scipy(values: list[float]) -> None:
    found = median_interval(values)
    known: Any = scipy_stats.quantile_test(values, p=0.5).confidence_interval(0.95)

    assert found is not None
    assert (found.low, found.high) == (known.low, known.high)
    assert found.median == np.median(values)
    assert found.excludes_none == (known.low > 0 or known.high < 0)


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_values_have_no_interval(count: int) -> None:
    assert median_interval([1.0] * count) is None
