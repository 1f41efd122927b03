from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from factories import a_signal
from hypothesis import given
from hypothesis import strategies as st

from perf.baselines import BaselineSignal
from perf.quality_gates import (
    CLAIM_ERROR,
    FIT,
    FIT_MARGIN,
    MAP,
    PASS_ERROR,
    collapse_gate,
    least_sd_of_differences,
    margin_gate,
)
from perf.record import Direction, Signal

SEEDS = (0.80, 0.82, 0.79, 0.81, 0.805)
MAPS, MAPS_WITHOUT_GIOU = (0.9338, 0.9174, 0.8927, 0.9145), (0.8993, 0.8995, 0.8899, 0.8880)
FITS, FITS_WITHOUT_GIOU = (0.9696, 0.9685, 0.9618, 0.9657), (0.9304, 0.9360, 0.9324, 0.9287)


def baseline(runs: Sequence[float], name: str = MAP) -> BaselineSignal:
    direction: Direction = "higher" if name in (MAP, FIT) else "lower"
    return BaselineSignal(name=name, kind="quality", unit="", direction=direction, runs=list(runs), approval=0)


def measured(runs: Sequence[float], name: str = MAP) -> list[Signal]:
    direction = "higher" if name in (MAP, FIT) else "lower"
    return [a_signal(name, value, "quality", direction=direction) for value in runs]


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.80, "pass"), (0.74, "pass"), (0.70, "regressed"), (0.0, "regressed"), (0.95, "improved")]
)
def test_a_seed_that_falls_below_the_floor_of_the_stored_ones_has_collapsed(value: float, verdict: str) -> None:
    outcome = collapse_gate(baseline(SEEDS), measured([value]))

    assert outcome.verdict == verdict
    assert outcome.message == (
        f"{value:g}, the floor is 0.7104: 5 seeds with mean 0.805, sd 0.011; margin 0.03 takes 5 pairs of such seeds"
    )


@pytest.mark.parametrize(("value", "verdict"), [(2.5, "pass"), (4.0, "regressed"), (1.0, "improved")])
def test_a_loss_has_a_ceiling(value: float, verdict: str) -> None:
    outcome = collapse_gate(baseline((2.4, 2.5, 2.6, 2.5, 2.45), "final_loss"), measured([value], "final_loss"))

    assert outcome.verdict == verdict
    assert "the ceiling is" in outcome.message


def test_more_seeds_now_are_judged_by_their_mean_and_fall_less_far() -> None:
    assert collapse_gate(baseline(SEEDS), measured([0.73])).verdict == "pass"
    assert collapse_gate(baseline(SEEDS), measured([0.73] * 5)).verdict == "regressed"


def test_one_stored_seed_teaches_no_floor() -> None:
    outcome = collapse_gate(baseline([0.8]), measured([0.8]))

    assert (outcome.verdict, "approve more" in outcome.message) == ("inconclusive", True)


def test_a_floor_below_zero_proves_nothing() -> None:
    outcome = collapse_gate(baseline([0.2, 0.8]), measured([0.0]))

    assert outcome.verdict == "inconclusive"
    assert "nothing can fall below it" in outcome.message


def test_an_unchanged_training_collapses_once_in_a_thousand() -> None:
    draw = np.random.default_rng(0)
    verdicts = [
        collapse_gate(baseline(list(draw.normal(0.8, 0.02, 5))), measured(list(draw.normal(0.8, 0.02, 1)))).verdict
        for _ in range(5000)
    ]

    assert verdicts.count("regressed") <= 14  # 5 expected; more than 14 come once in 10 000 tries


@pytest.mark.parametrize(
    ("loss", "verdict"), [(0.0, "pass"), (0.015, "pass"), (0.1, "regressed"), (0.3, "regressed"), (-0.1, "improved")]
)
def test_a_head_passes_once_it_is_proven_not_to_be_worse_by_the_margin(loss: float, verdict: str) -> None:
    noise = (0.001, -0.001, 0.002, 0.0, -0.002)
    head = [seed - loss + jitter for seed, jitter in zip(SEEDS, noise, strict=True)]

    outcome = margin_gate(baseline(SEEDS), measured(head))

    assert outcome.verdict == verdict
    assert "over 5 seeds, margin 0.03" in outcome.message


@pytest.mark.parametrize(("lost", "verdict"), [(0.0, "pass"), (0.025, "inconclusive"), (0.07, "inconclusive")])
def test_two_pairs_that_happen_to_agree_decide_nothing(lost: float, verdict: str) -> None:
    outcome = margin_gate(baseline([0.92, 0.9]), measured([0.92 - lost, 0.9 - lost]))
    assert outcome.verdict == verdict


def test_the_least_spread_is_that_of_two_seeds_on_the_scale_of_the_angle() -> None:
    angles = np.random.default_rng(0).normal(np.arcsin(np.sqrt(0.8)), 0.006, (2, 100_000))
    first, second = np.sin(angles) ** 2
    assert least_sd_of_differences([0.7, 0.9]) == pytest.approx(np.std(first - second), rel=0.01)
    assert least_sd_of_differences([1.0]) == least_sd_of_differences([0.98]) > 0


def test_what_the_seeds_leave_open_says_how_many_more_would_settle_it() -> None:
    head = [0.82, 0.80, 0.82, 0.79, 0.79]

    outcome = margin_gate(baseline(SEEDS), measured(head), 0.02)

    assert outcome.verdict == "inconclusive"
    assert outcome.message.endswith("about 2 more seeds would settle it")
    worse = margin_gate(baseline(SEEDS), measured([seed - 0.03 for seed in head]), 0.02)
    assert worse.verdict == "inconclusive"
    assert worse.message.endswith("more seeds would prove the loss")
    wild = margin_gate(baseline([0.1, 0.9]), measured([0.9, 0.1]))
    assert wild.message.endswith("widen the margin")


def test_how_closely_boxes_fit_is_judged_with_a_margin_of_its_own() -> None:
    # Four seeds each on an H200: Nano, and Nano without its giou term; mAP alone leaves it open.
    fits = margin_gate(baseline(FITS, FIT), measured(FITS_WITHOUT_GIOU, FIT))
    maps = margin_gate(baseline(MAPS), measured(MAPS_WITHOUT_GIOU))

    assert (fits.verdict, maps.verdict) == ("regressed", "inconclusive")
    assert "mAP / AP50, bounds" in fits.message
    assert f"margin {FIT_MARGIN:g}" in fits.message


def test_a_fit_has_a_floor_like_map() -> None:
    outcomes = [collapse_gate(baseline(FITS, FIT), measured([value], FIT)).verdict for value in (FITS[0], 0.8)]

    assert outcomes == ["pass", "regressed"]


def test_pairs_are_needed_and_only_map_and_fit_are_judged() -> None:
    assert margin_gate(baseline([0.8]), measured([0.8])).verdict == "inconclusive"
    assert margin_gate(baseline((2.0, 2.1), "final_loss"), measured([9, 9], "final_loss")).verdict is None


def rates(sd: float, loss: float, seeds: int, draws: int = 4000, margin: float = 0.02) -> dict[str | None, float]:
    """How often each verdict comes of unpaired normal seeds, the head worse by ``loss``."""
    draw = np.random.default_rng(seeds)
    found = [
        margin_gate(
            baseline(list(draw.normal(0.8, sd, seeds))),
            measured(list(draw.normal(0.8 - loss, sd, seeds))),
            margin=margin,
        ).verdict
        for _ in range(draws)
    ]
    return {verdict: found.count(verdict) / draws for verdict in set(found)}


@pytest.mark.parametrize("seeds", [3, 6])
@pytest.mark.parametrize("sd", [0.005, 0.02])
def test_equal_sides_are_claimed_to_differ_no_more_often_than_stated(sd: float, seeds: int) -> None:
    found = rates(sd, 0.0, seeds)

    assert found.get("regressed", 0) <= CLAIM_ERROR + 0.005
    assert found.get("improved", 0) <= CLAIM_ERROR


@pytest.mark.parametrize("seeds", [3, 6])
def test_a_head_that_is_worse_by_the_margin_passes_no_more_often_than_stated(seeds: int) -> None:
    assert rates(0.01, 0.02, seeds).get("pass", 0) <= PASS_ERROR + 0.012


def test_six_seeds_tell_a_broken_loss_and_pass_equal_sides_at_a_spread_of_a_hundredth() -> None:
    assert rates(0.01, 0.1, 6)["regressed"] > 0.99
    assert rates(0.01, 0.0, 6)["pass"] > 0.8


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0.001, 0.5))
def test_a_head_that_is_the_base_always_passes_if_that_learned_more_than_the_margin(
    runs: list[float], margin: float
) -> None:
    expected = "pass" if statistics.fmean(runs) > margin else "inconclusive"
    assert margin_gate(baseline(runs), measured(runs), margin=margin).verdict == expected


@pytest.mark.parametrize(
    ("head", "verdict"),
    [((0.0, 0.0, 0.0), "inconclusive"), ((0.011, 0.022, 0.019), "inconclusive"), ((0.5, 0.51, 0.5), "improved")],
)
def test_where_the_base_learned_no_more_than_the_margin_nothing_can_be_worse_by_it(
    head: Sequence[float], verdict: str
) -> None:
    outcome = margin_gate(baseline((0.012, 0.02, 0.018)), measured(head))

    assert outcome.verdict == verdict
    assert ("the base learned 0.0167 mAP, no more than the margin" in outcome.message) == (verdict == "inconclusive")


def test_a_loss_that_is_proven_is_one_however_little_the_base_learned() -> None:
    assert margin_gate(baseline((0.02, 0.02, 0.0201, 0.02)), measured((0.0, 0.0, 0.0, 0.0))).verdict == "regressed"
