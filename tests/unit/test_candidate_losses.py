from __future__ import annotations

import json
import math

import pytest

from perf.candidate_losses import Check, Loss, judged, read_checks
from perf.candidates import find_candidate

COMPILED = find_candidate("compiled_loss")
BITWISE = find_candidate("device_assignment")
BF16 = 2.0**-8
# Of Nano at batch 4, bf16: rfdetr's criterion is 1.8 % below float64.
EAGER, EXACT = 0.2964, 0.3017


def check(candidate: float, *, eager: float = EAGER, reference: float | None = EXACT, roundoff: float = BF16) -> Check:
    loss = Loss("loss_ce", eager, candidate, reference)
    return Check("bfloat16", roundoff, (loss, Loss("loss_bbox", 0.5, 0.5, 0.5)))


def test_bitwise_equal_is_said() -> None:
    assert judged(BITWISE, check(EAGER)) == (True, "  bfloat16: 2 losses bitwise equal")


def test_within_the_tolerance_of_eager_no_reference_is_asked() -> None:
    right, told = judged(COMPILED, check(EAGER * 1.00005, reference=None))
    assert right
    assert told == "  bfloat16: 2 losses within 0.0001 of eager"


def test_one_that_rounds_less_than_eager_is_right_and_says_by_how_much() -> None:
    right, told = judged(COMPILED, check(EXACT * 1.0001))
    assert right
    assert "1 of 2 losses are not those of eager, but nearer to float64; the others within 0.0001 of eager" in told
    assert "eager 0.2964 (1.8 % below float64), compiled_loss 0.30173" in told
    assert "(0.01 % above float64)" in told


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        (EXACT * 1.02, "as far from float64 as eager, on its other side"),
        (EXACT * 0.985, "nearer than eager, but by more than one rounding wrong"),
        (EXACT * 1.005, "nearer than eager, but by more than one rounding wrong"),
        (math.nan, "no number"),
        (math.inf, "no number"),
    ],
)
def test_eager_being_far_off_is_no_leave_to_be(candidate: float, why: str) -> None:
    right, told = judged(COMPILED, check(candidate))
    assert not right, why
    assert "bfloat16: 1 of 2 losses differ\n    loss_ce: eager 0.2964 (1.8 % below float64), compiled_loss" in told


def test_one_further_from_float64_than_eager_is_wrong_though_within_one_rounding() -> None:
    assert judged(COMPILED, check(EXACT * 0.998, eager=EXACT * 1.001))[0] is False
    assert judged(COMPILED, check(EXACT * 0.999, eager=EXACT * 1.001))[0] is True


def test_in_float32_a_thousandth_is_wrong() -> None:
    assert judged(COMPILED, check(EXACT * 1.001, eager=EXACT, roundoff=2.0**-24))[0] is False


def test_a_claim_of_bitwise_equality_is_not_met_by_being_nearer() -> None:
    right, told = judged(BITWISE, check(EXACT))
    assert not right
    assert "device_assignment 0.3017 (as in float64)" in told


def test_without_a_reference_only_eager_counts() -> None:
    right, told = judged(COMPILED, check(EXACT, reference=None))
    assert not right
    assert "loss_ce: eager 0.2964, compiled_loss 0.3017" in told


def test_checks_come_back_from_json() -> None:
    checks = [check(EXACT), check(EAGER, reference=None)]
    assert read_checks(json.loads(json.dumps(checks))) == checks
