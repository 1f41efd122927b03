from __future__ import annotations

import re
from typing import Any

import pytest
from factories import GPU_EAGER as GPU
from factories import a_baseline, a_signal, runs_of

from perf.baselines import BaselineSignal
from perf.gates import Outcome
from perf.record import Kind, Signal
from perf.session_gates import (
    DEGREES_OF_A_BOUND,
    DEVICE_SDS_ONE_SESSION,
    device_session_gate,
    more_pairs_may_tell,
    session_noise,
    unconfirmed,
    wall_session_gate,
)
from perf.stats import NO_NOISE, Noise, noise_of
from perf.verdicts import SignalVerdict, Verdict


def approved(signal: Signal, values: list[float]) -> BaselineSignal:
    found = a_baseline(runs_of(signal, values, GPU)).signal(signal.name)
    assert found
    return found


def several(name: str, kind: Kind, values: list[float]) -> list[Signal]:
    return [a_signal(name, value, kind, "ms") for value in values]


def paired(base: list[float], now: list[float], error: float = 0.01) -> Outcome:
    return wall_session_gate(
        approved(a_signal("step_time", 0, "wall", "ms"), base), several("step_time", "wall", now), error
    )


STEADY = [100.0, 101, 99, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100]


class TestWallOfOneSession:
    @pytest.mark.parametrize(
        ("factor", "verdict"), [(1.0, "pass"), (1.02, "regressed"), (0.98, "improved"), (1.001, "pass")]
    )
    def test_pairs_see_less_than_the_tolerance(self, factor: float, verdict: str) -> None:
        jitter = [1, 1.001, 0.999, 1.002, 1, 0.998, 1, 1.001, 1, 0.999]
        outcome = paired(STEADY, [factor * value * more for value, more in zip(STEADY, jitter, strict=True)])
        assert outcome.verdict == verdict
        assert "tolerance 5 %" in outcome.message

    def test_what_both_of_a_pair_share_is_no_noise(self) -> None:
        drift = [100 * 1.05**index for index in range(10)]
        assert paired(drift, [1.03 * value for value in drift]).verdict == "regressed"

    def test_four_pairs_that_all_rise_prove_nothing_beyond_the_tolerance(self) -> None:
        outcome = paired([100, 101, 99, 100], [120, 121, 119, 120.5])
        assert outcome.verdict == "inconclusive"
        assert "would settle it" in outcome.message

    def test_two_speeds_of_a_host_are_no_change(self) -> None:
        fast, slow = 100.0, 120.0
        assert (
            paired(
                [fast, fast, slow, fast, slow, fast, slow, fast], [slow, slow, slow, slow, fast, slow, slow, fast]
            ).verdict
            == "inconclusive"
        )

    def test_noise_beyond_any_number_of_pairs_says_so(self) -> None:
        outcome = paired([100, 180, 90, 170], [170, 100, 185, 95])
        assert "; more than 50 pairs would be needed: use a quieter machine; " in outcome.message

    def test_one_pair_gives_no_interval(self) -> None:
        outcome = paired([100], [100])
        assert outcome.verdict == "inconclusive"
        assert outcome.message.endswith("; fewer than 8 pairs prove no change of time, however large")

    @pytest.mark.parametrize(("pairs", "shares", "told"), [(7, 1, "8"), (8, 1, ""), (8, 2, "9"), (10, 6, "11")])
    def test_too_few_pairs_to_prove_a_change_are_said_to_be(self, pairs: int, shares: int, told: str) -> None:
        base = approved(a_signal("step_time", 0, "wall", "ms"), [100.0, 150.0] * (pairs // 2) + [100.0] * (pairs % 2))
        now = several("step_time", "wall", [value + 30 * (index % 3) for index, value in enumerate(base.runs)])
        outcome = wall_session_gate(base, now, shares=shares)
        assert outcome.verdict == "inconclusive"
        said = re.findall("fewer than (.*) pairs prove no change of time", outcome.message)
        assert said == ([told] if told else [])

    def test_of_a_rate_less_is_worse(self) -> None:
        rate = a_signal("images_per_second", 0, "wall", direction="higher")
        base = approved(rate, STEADY)
        now = [rate.model_copy(update={"value": 0.9 * value}) for value in STEADY]
        assert wall_session_gate(base, now, 0.01).verdict == "regressed"


def wall_row(verdict: Verdict, low: float, high: float, **changes: Any) -> SignalVerdict:
    row = SignalVerdict(case_id="c", signal="step_time", kind="wall", verdict=verdict, interval=(low, high))
    return row.model_copy(update=changes)


class TestMorePairsMayTell:
    @pytest.mark.parametrize(
        ("verdict", "low", "high", "more"),
        [
            ("inconclusive", 0.99, 1.08, True),
            ("regressed", 1.01, 1.08, False),
            ("improved", 0.9, 0.97, False),
            ("pass", 0.98, 1.02, False),
            # It may be faster by 6 %: to stop at the first look would never find that.
            ("pass", 0.94, 1.02, True),
        ],
    )
    def test_of_what_is_undecided_or_may_have_improved(
        self, verdict: Verdict, low: float, high: float, more: bool
    ) -> None:
        assert more_pairs_may_tell(wall_row(verdict, low, high)) == more
        rate = wall_row(verdict, 1 / high, 1 / low, direction="higher")
        assert more_pairs_may_tell(rate) == more

    def test_without_an_interval_the_verdict_tells(self) -> None:
        assert more_pairs_may_tell(wall_row("inconclusive", 1, 1, interval=None))
        assert not more_pairs_may_tell(wall_row("failed", 1, 1, interval=None))

    def test_of_other_kinds_nothing_is_awaited(self) -> None:
        assert not more_pairs_may_tell(wall_row("inconclusive", 0.9, 1.1, kind="device"))

    def test_without_wall_signals_a_device_signal_that_does_not_pass_waits_for_another_pair(self) -> None:
        device = [wall_row(verdict, 0.9, 1.1, kind="device") for verdict in ("pass", "regressed", "inconclusive")]
        assert list(map(unconfirmed, device)) == [False, True, True]
        assert not unconfirmed(wall_row("regressed", 1, 1, kind="count-strict"))

    def test_a_first_step_may_gain_more_before_it_matters(self) -> None:
        assert not more_pairs_may_tell(wall_row("pass", 0.8, 1.1, signal="first_step"))


def test_a_pass_does_not_share_the_error_rate_and_a_claim_does() -> None:
    base = approved(a_signal("step_time", 0, "wall", "ms"), STEADY)
    jitter = [1.03, 0.97, 1.02, 0.98, 1.03, 0.97, 1.01, 0.99, 1.02, 0.98]
    level = several("step_time", "wall", [v * more for v, more in zip(STEADY, jitter, strict=True)])
    slower = several("step_time", "wall", [1.03 * v for v in [*STEADY[1:], STEADY[0]]])
    assert [wall_session_gate(base, level, shares=shares).verdict for shares in (1, 20)] == ["pass", "pass"]
    assert [wall_session_gate(base, slower, shares=shares).verdict for shares in (1, 20)] == ["regressed", "pass"]


def busy(base: list[float], now: list[float], noise: Noise = NO_NOISE, name: str = "gpu_busy") -> Outcome:
    return device_session_gate(
        approved(a_signal(name, 0, "device", "ms"), base), several(name, "device", now), 0.001, noise
    )


# Six runs of nano-b4-compile on one H200.
H200 = noise_of([10.26, 10.256, 10.265, 10.257, 10.262, 10.252])


class TestDeviceOfOneSession:
    @pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.01, "regressed"), (0.99, "improved")])
    def test_two_runs_a_side_see_one_percent_where_the_noise_is_known(self, factor: float, verdict: str) -> None:
        assert busy([10.26, 10.257], [factor * 10.258, factor * 10.262], H200).verdict == verdict

    def test_two_runs_a_side_alone_do_not(self) -> None:
        outcome = busy([10.26, 10.25], [10.37, 10.36])
        assert outcome.verdict == "inconclusive"
        assert "more runs narrow it" in outcome.message

    def test_one_run_a_side_needs_noise_that_is_known(self) -> None:
        assert "take two" in busy([10.26], [10.37]).message
        assert busy([10.26], [10.37], H200).verdict == "regressed"

    def test_a_bound_that_is_known_of_a_signal_takes_the_place_of_a_quieter_baseline(self) -> None:
        bound = Noise(DEVICE_SDS_ONE_SESSION["gpu_busy"] ** 2, DEGREES_OF_A_BOUND)
        assert session_noise("gpu_busy", [10, 10], [10, 10], H200) == bound
        louder = Noise(4 * bound.variance, 5)
        assert session_noise("gpu_busy", [10, 10], [10, 10], louder) == louder
        # Of the others, and of a device without a baseline, nothing more is known than is taught.
        assert session_noise("peak_reserved", [10, 10], [10, 10], H200) == H200
        assert session_noise("gpu_busy", [10, 10], [10, 10], NO_NOISE) == NO_NOISE

    def test_runs_that_scatter_beyond_all_that_is_known_count_alone(self) -> None:
        assert session_noise("gpu_busy", [10, 10.2], [10, 10.1], H200) == NO_NOISE
        assert busy([10, 10.2], [10.5, 10.6], H200).verdict == "inconclusive"

    def test_the_allocators_two_peaks_are_no_change(self) -> None:
        assert busy([1.86496e9] * 3, [1.86753e9] * 3, name="peak_memory").verdict == "pass"

    def test_two_runs_a_side_pass_with_either_of_the_allocators_peaks(self) -> None:
        # seg-nano-b4-compile on an H200, base and head alike; its baseline has three runs.
        base, head = [2.535716e9, 2.535716e9], [2.533506e9, 2.535716e9]
        assert busy(base, head, name="peak_memory").verdict == "inconclusive"
        assert busy(base, head, noise_of([*base, 2.533506e9]), name="peak_memory").verdict == "pass"
        assert busy(base, [1.01 * peak for peak in head], H200, name="peak_memory").verdict == "regressed"

    def test_nothing_used_is_no_ratio(self) -> None:
        assert busy([0, 0], [0, 0]).verdict == "inconclusive"
