from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from perf.probes.parity import Comparison
from perf.probes.parity_differences import FACTOR, NO_NUMBER, Pair, differences
from perf.rfdetr_parity import Taken


def a_step(**changes: Any) -> Taken:
    gradients = {"head.weight": torch.tensor([3.0, 4.0]), "backbone.0.encoder.bias": torch.tensor([12.0])}
    losses = {"loss_ce": 1.0, "loss_ce_enc": 1.0, "loss_bbox": 2.0, "loss": 4.0}
    weights = {"loss_ce": 1.0, "loss_ce_enc": 1.0, "loss_bbox": 1.0}
    return replace(Taken(losses=losses, weights=weights, gradients=gradients), **changes)


def a_pair(error: float = 1e-6) -> Pair:
    """An eager step, and one a precision up that is a relative ``error`` off in everything."""
    low = a_step()
    losses = {key: value * (1 + error) for key, value in low.losses.items()}
    gradients = {key: value.double() * (1 + error) for key, value in low.gradients.items()}
    return Pair(low, a_step(losses=losses, gradients=gradients))


def off(taken: Taken, pair: Pair | None = None) -> dict[str, float]:
    return {key: found.ratio for key, found in differences(taken, pair or a_pair()).items() if not found.agrees}


def test_the_same_step_differs_in_nothing_and_every_key_has_a_tolerance() -> None:
    found = differences(a_step(), a_pair())

    assert {difference.size for difference in found.values()} == {0.0}
    assert [*found] == [
        *["loss_ce", "loss_ce_enc", "loss_bbox", "loss", "grad_norm"],
        *["gradient of head", "gradient of backbone.encoder"],
    ]
    relative = [difference.tolerance / difference.scale for difference in found.values()]
    assert relative == pytest.approx([FACTOR * 1e-6] * 5 + [1e-3] * 2, rel=0.1)


@pytest.mark.parametrize(("relative", "agrees"), [(7e-6, True), (9e-6, False)])
def test_a_loss_is_off_beyond_the_factor_times_the_steps_own_error(relative: float, agrees: bool) -> None:
    taken = a_step(losses={**a_step().losses, "loss_ce": 1 + relative})

    assert (off(taken) == {}) is agrees
    assert off(taken).keys() <= {"loss_ce"}


def test_an_error_that_is_small_by_luck_counts_as_the_usual_one_of_that_loss() -> None:
    pair = a_pair()
    for key in ("loss_ce", "loss"):
        pair.high.losses[key] = pair.low.losses[key]
    pair.high.losses["loss_bbox"] = 2 * (1 + 1e-3)

    found = differences(a_step(), pair)
    assert found["loss_ce"].tolerance == pytest.approx(8e-6 * math.sqrt(1 / 2), rel=1e-3)
    assert found["loss_bbox"].tolerance == pytest.approx(2 * 8e-3, rel=1e-3)
    assert found["loss"].tolerance == pytest.approx(2 * 8e-3, rel=1e-3)


def test_two_precisions_that_agree_leave_a_few_units_in_the_last_place() -> None:
    found = differences(a_step(), a_pair(0.0))

    relative = [difference.tolerance / difference.scale for difference in found.values()]
    assert relative == pytest.approx([4 * 2.0**-23] * 5 + [2.0**-11.5] * 2)


def test_a_turned_gradient_of_the_same_norm_is_off() -> None:
    gradients = {**a_step().gradients, "head.weight": torch.tensor([4.0, 3.0])}

    assert off(a_step(gradients=gradients)).keys() == {"gradient of head"}


def test_a_missing_gradient_is_off_and_one_of_zeros_is_not() -> None:
    gradients = a_step().gradients
    zeros = {**gradients, "unused": torch.zeros(2)}
    missing = {"head.weight": gradients["head.weight"]}

    assert off(a_step(gradients=zeros)) == {}
    assert off(a_step(gradients=missing)).keys() == {"grad_norm", "gradient of backbone.encoder"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_on_one_side_is_off(value: float) -> None:
    losses = {**a_step().losses, "loss_ce": value}
    gradients = {**a_step().gradients, "head.weight": torch.tensor([3.0, value])}

    assert off(a_step(losses=losses)) == {"loss_ce": NO_NUMBER}
    assert off(a_step(gradients=gradients)).keys() == {"grad_norm", "gradient of head"}
    assert off(a_step(), Pair(a_step(losses=losses), a_pair().high)) == {"loss_ce": NO_NUMBER}


def test_a_key_on_one_side_only_is_off() -> None:
    losses = a_step().losses
    more = {**losses, "loss_new": 1.0}
    less = {key: value for key, value in losses.items() if key != "loss_bbox"}

    assert off(a_step(losses=more)) == {"loss_new": NO_NUMBER}
    assert off(a_step(losses=less)) == {"loss_bbox": NO_NUMBER}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_number_on_both_sides_is_no_agreement(value: float) -> None:
    losses = {**a_step().losses, "loss_ce": value}
    gradients = {**a_step().gradients, "head.weight": torch.tensor([3.0, value])}
    step = a_step(losses=losses, gradients=gradients)
    assert off(step, Pair(step, step)).keys() == {"loss_ce", "grad_norm", "gradient of head"}


def test_no_signal_holds_a_value_that_is_no_number() -> None:
    losses = {"loss_ce": math.nan, "loss_bbox": math.inf, "loss": math.nan}
    free = differences(a_step(losses=losses), Pair(a_step(losses={"loss": -math.inf}, weights={}), a_step()))

    found = {signal.name: signal for signal in Comparison(free, {}, []).signals()}
    assert found["parity_mismatches"].value == 3
    assert found["parity_difference"].value == NO_NUMBER
