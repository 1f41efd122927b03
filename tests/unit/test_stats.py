from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from perf.stats import MOST_FURTHER_RUNS, further_runs, learned_band, ratio_interval

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


def test_a_band_is_the_prediction_interval_of_one_more_run() -> None:
    runs = [100.0, 101.0, 99.0, 100.5, 99.5]
    half = scipy_stats.t.ppf(0.975, 4) * scipy_stats.tstd(runs) * math.sqrt(1 + 1 / 5)
    assert learned_band(runs, floor=0.001) == pytest.approx(half / 100)


@pytest.mark.parametrize("runs", [[5.0], [5.0, 5.0, 5.0], [0.0, 0.0]])
def test_a_band_is_never_below_its_floor(runs: list[float]) -> None:
    assert learned_band(runs, floor=0.01) == 0.01
