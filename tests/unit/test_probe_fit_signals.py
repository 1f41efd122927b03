from __future__ import annotations

import pytest

from perf.probes.fit_phases import AUGMENTATION, FIT_PHASES, INPUT_WAIT, MODEL, SCORING, Update
from perf.probes.fit_signals import cost_signals, fit_step, forwards_signal, kernel_compiles, validation_signals
from perf.probes.phases import BACKWARD, FORWARD, OTHER


def test_parts_sum_to_the_step_which_is_the_mean_of_the_updates() -> None:
    signal = fit_step([Update({FORWARD: 0.010, OTHER: 0.002}), Update({FORWARD: 0.020, BACKWARD: 0.008})])

    assert (signal.name, signal.kind, signal.unit) == ("fit_step", "wall", "ms")
    assert signal.samples == pytest.approx([12, 28])
    assert signal.value == pytest.approx(20) == pytest.approx(sum(part.value for part in signal.parts))
    assert tuple(part.name for part in signal.parts) == FIT_PHASES
    assert {part.name: part.value for part in signal.parts if part.value} == pytest.approx(
        {FORWARD: 15, BACKWARD: 4, OTHER: 1}
    )


def test_augmentation_is_a_part_only_where_the_device_does_it() -> None:
    signal = fit_step([Update({AUGMENTATION: 0.001})])

    assert [part.name for part in signal.parts] == [*FIT_PHASES, AUGMENTATION]


def test_compiled_kernels_are_counted_by_name_and_by_update() -> None:
    signal = kernel_compiles([Update({}), Update({}, compiled=("a", "b", "a")), Update({}, compiled=("b",))])

    assert (signal.name, signal.kind, signal.unit, signal.value) == ("kernel_compiles", "info", "compiles", 4)
    assert signal.samples == [0, 3, 1]
    assert {part.name: part.value for part in signal.parts} == {"a": 2, "b": 2}


def test_a_validation_says_what_was_the_model_and_what_scoring() -> None:
    seconds = {MODEL: 3.0, FORWARD: 0.5, SCORING: 1.0, INPUT_WAIT: 0.25, "logging": 0.25, OTHER: 1.0}
    wall, steps = validation_signals("validation", Update(seconds), 7)

    assert (wall.kind, wall.unit, wall.value) == ("wall", "s", 6)
    assert {part.name: part.value for part in wall.parts} == {"model": 3.5, SCORING: 1, INPUT_WAIT: 0.25, OTHER: 1.25}
    assert (steps.name, steps.value, steps.unit) == ("validation_steps", 7, "batches")


def test_the_first_validation_may_compile_and_is_shown_only() -> None:
    assert validation_signals("first_validation", Update({MODEL: 1.0}), 1)[0].kind == "info"


def test_every_call_of_a_model_in_a_validation_counts_by_which_it_was() -> None:
    signal = forwards_signal(["averaged", "trained", "averaged"])

    assert (signal.name, signal.kind, signal.value) == ("validation_forwards", "count-strict", 3)
    assert {part.name: part.value for part in signal.parts} == {"averaged": 2, "trained": 1}


def test_a_cost_is_the_median_of_what_the_rounds_saved() -> None:
    rounds: list[dict[str, float]] = [
        {"": 100, "logging_cost": 97},
        {"": 100, "logging_cost": 101},
        {"": 110, "logging_cost": 105},
        {"": 9},
    ]
    [signal] = cost_signals(rounds)

    assert (signal.name, signal.kind, signal.unit) == ("logging_cost", "info", "ms")
    assert (signal.value, signal.samples) == (3, [3, -1, 5])
    assert cost_signals([{}]) == []
