"""The procedure as a whole: what must hold of every gate, and how often sessions of known noise end how."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from factories import GPU_EAGER, a_signal, runs_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from perf.baselines import BaselineSignal
from perf.compare import compare
from perf.gates import DEVICE_ERROR, WALL_ERROR, Outcome, device_gate, strict_gate, volume_gate, wall_gate
from perf.judge import Options
from perf.record import Direction, Kind, Signal
from perf.sequential import Look, looks
from perf.session_gates import (
    DEVICE_SDS_ONE_SESSION,
    OneSession,
    device_session_gate,
    more_pairs_may_tell,
    wall_session_gate,
)
from perf.simulation import (
    IMPROVED,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    SHAPES,
    NoiseShape,
    Rates,
    Shape,
    device_ranks,
    simulate,
    simulate_device,
    wall_ends,
    wall_ranks,
)
from perf.simulation import more_pairs_may_tell as rows_that_go_on
from perf.stats import NO_NOISE, Noise, noise_of, t_quantile
from perf.verdicts import SEVERITY, SignalVerdict, Verdict

Runs = list[float]
Gate = Callable[[BaselineSignal, list[Signal]], Outcome]
# A slower head moves along this, and never back.
BETTER_TO_WORSE: list[Verdict | None] = ["improved", "pass", "inconclusive", "regressed"]
MIRRORED: dict[Verdict | None, Verdict] = {"regressed": "improved", "improved": "regressed"}
# Six runs of nano-b4-compile on one H200, and how far run medians of its wall time scatter (log).
H200 = noise_of([10.26, 10.256, 10.265, 10.257, 10.262, 10.252])
WALL_SD = 0.017
DEVICE_SIGNALS = 3

GATES_OF_A_SESSION: list[tuple[str, Kind, Gate]] = [
    ("step_time", "wall", wall_session_gate),
    ("step_time", "wall", lambda base, now: wall_session_gate(base, now, shares=3)),
    ("gpu_busy", "device", lambda base, now: device_session_gate(base, now, noise=H200)),
    ("peak_memory", "device", lambda base, now: device_session_gate(base, now, shares=3)),
]
GATES_OF_RATIOS: list[tuple[str, Kind, Gate]] = [
    *GATES_OF_A_SESSION,
    ("gpu_busy", "device", device_gate),
    ("step_time", "wall", wall_gate),
]

in_session = pytest.mark.parametrize(("name", "kind", "gate"), GATES_OF_A_SESSION)
of_ratios = pytest.mark.parametrize(("name", "kind", "gate"), GATES_OF_RATIOS)


@st.composite
def sides(draw: st.DrawFn, least: int = 2) -> tuple[Runs, Runs]:
    """Both sides' runs: noise from none to much about a change from none to 30 %."""
    pairs = draw(st.integers(least, 12))
    sd, shift = draw(st.sampled_from([1e-4, 1e-3, 0.01, 0.1])), draw(st.floats(-0.3, 0.3))
    deviates = st.lists(st.floats(-3, 3), min_size=pairs, max_size=pairs)
    base, head = draw(deviates), draw(deviates)
    return [10 * math.exp(sd * z) for z in base], [10 * math.exp(shift + sd * z) for z in head]


def judged(name: str, kind: Kind, gate: Gate, base: Runs, now: Runs, direction: Direction = "lower") -> Outcome:
    stored = BaselineSignal(name=name, kind=kind, unit="ms", direction=direction, runs=base, approval=0)
    return gate(stored, [a_signal(name, value, kind, "ms", direction=direction) for value in now])


@of_ratios
@given(runs=sides(), factor=st.floats(1e-3, 1e3))
def test_another_unit_gives_the_same_verdict(
    name: str, kind: Kind, gate: Gate, runs: tuple[Runs, Runs], factor: float
) -> None:
    base, head = runs
    scaled = judged(name, kind, gate, [factor * v for v in base], [factor * v for v in head])
    assert scaled.verdict == judged(name, kind, gate, base, head).verdict


@in_session
@given(runs=sides())
def test_swapped_sides_swap_regressed_and_improved(name: str, kind: Kind, gate: Gate, runs: tuple[Runs, Runs]) -> None:
    base, head = runs
    forth, back = judged(name, kind, gate, base, head), judged(name, kind, gate, head, base)
    claims = [found.verdict if found.verdict in MIRRORED else None for found in (forth, back)]
    assert claims[1] == MIRRORED.get(claims[0])


@in_session
@given(runs=sides())
def test_of_a_rate_less_is_worse(name: str, kind: Kind, gate: Gate, runs: tuple[Runs, Runs]) -> None:
    base, head = runs
    before, now = ([1 / value for value in side] for side in runs)
    assert judged(name, kind, gate, before, now, "higher").verdict == judged(name, kind, gate, base, head).verdict


@in_session
@given(runs=sides(), slower=st.floats(1, 1.5))
def test_a_slower_head_never_gets_a_better_verdict(
    name: str, kind: Kind, gate: Gate, runs: tuple[Runs, Runs], slower: float
) -> None:
    base, head = runs
    before = judged(name, kind, gate, base, head).verdict
    after = judged(name, kind, gate, base, [slower * value for value in head]).verdict
    assert BETTER_TO_WORSE.index(after) >= BETTER_TO_WORSE.index(before)


@of_ratios
@given(runs=sides(), slower=st.floats(1, 1.5))
def test_a_slower_head_stays_regressed_and_a_faster_one_improved(
    name: str, kind: Kind, gate: Gate, runs: tuple[Runs, Runs], slower: float
) -> None:
    base, head = runs
    before = judged(name, kind, gate, base, head).verdict
    after = judged(name, kind, gate, base, [slower * value for value in head]).verdict
    assert after == "regressed" or before != "regressed"
    assert before == "improved" or after != "improved"


@pytest.mark.parametrize(("kind", "gate"), [("count-strict", strict_gate), ("count-volume", volume_gate)])
@given(base=st.lists(st.integers(0, 10_000), min_size=1, max_size=4), count=st.integers(0, 10_000), more=st.integers(0))
def test_a_higher_count_never_gets_a_better_verdict(
    kind: Kind, gate: Gate, base: list[int], count: int, more: int
) -> None:
    runs = [float(value) for value in base]
    few, many = (judged("n", kind, gate, runs, [float(value)]).verdict for value in (count, count + more % 10_000))
    assert BETTER_TO_WORSE.index(many) >= BETTER_TO_WORSE.index(few)


def mean_deviation(degrees: int) -> float:
    """The expected standard deviation of normal values, in units of their own (c4 of statistical process control)."""
    return math.sqrt(2 / degrees) * math.exp(gammaln((degrees + 1) / 2) - gammaln(degrees / 2))


@pytest.mark.parametrize("error", [0.05, WALL_ERROR, DEVICE_ERROR, DEVICE_ERROR / 12])
@pytest.mark.parametrize("prior", [0, H200.degrees])
def test_more_runs_never_widen_the_intervals_expectation(error: float, prior: int) -> None:
    paired = [t_quantile(n - 1, 1 - error) * mean_deviation(n - 1) / math.sqrt(n) for n in range(2, 60)]
    degrees = [prior + 2 * (n - 1) for n in range(2, 60)]
    pooled = [t_quantile(own, 1 - error) * mean_deviation(own) * math.sqrt(2 / n) for n, own in enumerate(degrees, 2)]
    for widths in (paired, pooled):
        assert all(after < before for before, after in pairwise(widths))


def of_rows(verdict: Verdict | None) -> int:
    assert verdict is not None
    return SEVERITY.index(verdict)


@st.composite
def drawn_sides(draw: st.DrawFn) -> tuple[NoiseShape, int, int, float]:
    shape = NoiseShape(draw(st.sampled_from(SHAPES)), draw(st.sampled_from([0.0005, 0.003, 0.017, 0.06])))
    return shape, draw(st.integers(2, 12)), draw(st.integers(0, 2**32)), draw(st.floats(-0.1, 0.1))


def rows(shape: NoiseShape, pairs: int, seed: int, shift: float, sessions: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    base, head = (shape.draw(rng, sessions, pairs) for _ in range(2))
    return base, head + shift


@settings(max_examples=60)
@given(drawn=drawn_sides(), error=st.sampled_from([0.5, 0.05, WALL_ERROR]), shares=st.integers(1, 4))
def test_simulated_wall_decisions_are_those_of_the_gate(
    drawn: tuple[NoiseShape, int, int, float], error: float, shares: int
) -> None:
    base, head = rows(*drawn)
    ranks = wall_ranks(base, head, error, shares)
    going_on = rows_that_go_on(ranks, base, head, error)
    for row, (before, after) in enumerate(zip(100 * np.exp(base), 100 * np.exp(head), strict=True)):
        one = judged(
            "step_time", "wall", lambda b, n: wall_session_gate(b, n, error, shares), before.tolist(), after.tolist()
        )
        assert ranks[row] == of_rows(one.verdict)
        assert bool(going_on[row]) == more_pairs_may_tell(wall_row(one))


def wall_row(outcome: Outcome) -> SignalVerdict:
    ends = (outcome.interval.low, outcome.interval.high) if outcome.interval else None
    return SignalVerdict(case_id="c", signal="step_time", kind="wall", verdict=outcome.verdict, interval=ends)


@settings(max_examples=60)
@given(
    drawn=drawn_sides(),
    prior=st.sampled_from([NO_NOISE, H200, Noise(0.0, 3), Noise(1e-5, 4)]),
    shares=st.integers(1, 6),
    name=st.sampled_from(["gpu_busy", "peak_memory", "peak_reserved"]),
)
def test_simulated_device_decisions_are_those_of_the_gate(
    drawn: tuple[NoiseShape, int, int, float], prior: Noise, shares: int, name: str
) -> None:
    base, head = rows(*drawn)
    ranks = device_ranks(base, head, DEVICE_ERROR, prior, shares, name)
    for row, (before, after) in enumerate(zip(100 * np.exp(base), 100 * np.exp(head), strict=True)):
        one = judged(
            name,
            "device",
            lambda b, n: device_session_gate(b, n, DEVICE_ERROR, prior, shares),
            before.tolist(),
            after.tolist(),
        )
        assert ranks[row] == of_rows(one.verdict)


def by_records(base: Runs, head: Runs, look: Look, cases: int) -> SignalVerdict:
    """The wall signal's row as ``rfdetr-perf ab`` has it at one look."""
    step = a_signal("step_time", 0, "wall", "ms")
    session = OneSession(wall_error=2 * look.level, cases=cases)
    before, now = (runs_of(step, side[: look.pairs], GPU_EAGER) for side in (base, head))
    [case] = compare(before, now, Options(one_session=session)).cases
    [row] = case.signals
    return row


@settings(max_examples=25, deadline=None)
@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**32), shift=st.floats(-0.1, 0.1), cases=st.integers(1, 4))
def test_a_simulated_session_ends_as_its_records_do(shape: Shape, seed: int, shift: float, cases: int) -> None:
    base, head = rows(NoiseShape(shape, WALL_SD), 10, seed, shift, sessions=1)
    [rank], [pairs] = wall_ends(base, head, cases)
    for look in looks(10, WALL_ERROR / 2, cases):
        row = by_records((100 * np.exp(base[0])).tolist(), (100 * np.exp(head[0])).tolist(), look, cases)
        if not more_pairs_may_tell(row):
            break
    assert (rank, pairs) == (of_rows(row.verdict), look.pairs)


@settings(max_examples=30, deadline=None)
@given(runs=sides(), slower=st.floats(1, 1.5), factor=st.sampled_from([0.001, 3.0]))
def test_comparisons_of_records_scale_mirror_and_never_reward_a_slower_head(
    runs: tuple[Runs, Runs], slower: float, factor: float
) -> None:
    base, head = runs
    look = Look(len(base), WALL_ERROR / 2)
    verdict = by_records(base, head, look, 1).verdict
    assert by_records([factor * v for v in base], [factor * v for v in head], look, 1).verdict == verdict
    worse = by_records(base, [slower * v for v in head], look, 1).verdict
    assert BETTER_TO_WORSE.index(worse) >= BETTER_TO_WORSE.index(verdict)
    if verdict in MIRRORED:
        assert by_records(head, base, look, 1).verdict == MIRRORED[verdict]


@pytest.mark.parametrize("signals", [1, 3])
def test_swapped_sides_stop_at_the_same_look(signals: int) -> None:
    base, head = rows(NoiseShape("normal", WALL_SD), 10, 0, 0.04, sessions=2000)
    (forth, pairs), (back, pairs_back) = wall_ends(base, head, signals), wall_ends(head, base, signals)
    assert ((forth == REGRESSED) == (back == IMPROVED)).all()
    assert ((forth == IMPROVED) == (back == REGRESSED)).all()
    assert (pairs == pairs_back).all()
    assert {INCONCLUSIVE, PASS, REGRESSED} <= set(forth.tolist())


def at_most(rates: Rates, fraction: float) -> float:
    return rates.bounds(fraction)[1]


def at_least(rates: Rates, fraction: float) -> float:
    return rates.bounds(fraction)[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("signals", [1, 4])
@pytest.mark.parametrize("most", [10, 16])
def test_sessions_of_unchanged_code_claim_a_change_of_wall_time_in_at_most_1_percent(
    shape: Shape, signals: int, most: int
) -> None:
    rates = simulate(NoiseShape(shape, WALL_SD), 0.0, 20_000 // signals, most=most, signals=signals, seed=1)
    assert at_most(rates, rates.claims) <= WALL_ERROR


@pytest.mark.parametrize("shape", SHAPES)
def test_early_stopping_and_noise_that_hides_five_percent_claim_no_more(shape: Shape) -> None:
    rates = simulate(NoiseShape(shape, 0.08), 0.0, 10_000, most=20, seed=2)
    assert at_most(rates, rates.claims) <= WALL_ERROR


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_5_percent_slower_seldom_passes(shape: Shape) -> None:
    rates = simulate(NoiseShape(shape, WALL_SD), 0.05, 4000, most=10, seed=3)
    assert at_most(rates, rates.passed) <= WALL_ERROR


@pytest.mark.parametrize("shift", [0.05, 1 / 1.05 - 1])
def test_5_percent_of_wall_time_is_found_within_10_pairs_with_power_95(shift: float) -> None:
    rates = simulate(NoiseShape("normal", WALL_SD), shift, 4000, most=10, seed=4)
    assert at_least(rates, rates.regressed if shift > 0 else rates.improved) >= 0.95


def test_most_sessions_of_ten_unchanged_cases_pass() -> None:
    rates = simulate(NoiseShape("normal", WALL_SD), 0.0, 1000, most=10, signals=10, seed=5)
    assert at_least(rates, rates.passed) >= 0.85


BOUND = DEVICE_SDS_ONE_SESSION["gpu_busy"]


@pytest.mark.parametrize("sd", [0.0004, 0.001, BOUND])
@pytest.mark.parametrize("runs", [2, 4, 10])
def test_sessions_of_unchanged_code_claim_a_change_of_gpu_busy_in_at_most_1_of_1000(sd: float, runs: int) -> None:
    rates = simulate_device(sd, 0.0, runs, 20_000, signals=DEVICE_SIGNALS, prior=H200, seed=6)
    assert at_most(rates, rates.claims) <= DEVICE_ERROR


@pytest.mark.parametrize("shape", ["clock-states", "sticky-states", "linear-drift", "random-walk"])
def test_nor_do_clock_states_and_drift_within_the_bound(shape: Shape) -> None:
    rates = simulate_device(BOUND, 0.0, 2, 20_000, signals=DEVICE_SIGNALS, prior=H200, seed=6, shape=shape)
    assert at_most(rates, rates.claims) <= DEVICE_ERROR


@pytest.mark.parametrize("sd", [0.0004, 0.001, BOUND])
@pytest.mark.parametrize("shift", [0.01, -0.01])
def test_1_percent_of_gpu_busy_is_found_by_2_runs_in_99_of_100(sd: float, shift: float) -> None:
    rates = simulate_device(sd, shift, 2, 20_000, signals=DEVICE_SIGNALS, prior=H200, seed=7)
    assert at_least(rates, rates.regressed if shift > 0 else rates.improved) >= 0.99


@pytest.mark.parametrize(("shape", "runs"), [("outliers", 4), ("log-normal", 4), ("normal", 4), ("heavy-tails", 8)])
def test_where_two_runs_are_too_few_for_the_noise_more_are_not(shape: Shape, runs: int) -> None:
    few, enough = (
        simulate_device(BOUND, 0.0, number, 20_000, signals=DEVICE_SIGNALS, prior=H200, seed=8, shape=shape)
        for number in (2, runs)
    )
    assert at_most(enough, enough.claims) <= DEVICE_ERROR
    assert few.claims >= enough.claims


def test_more_runs_never_find_less_of_gpu_busy() -> None:
    found = [
        simulate_device(BOUND, 0.01, runs, 20_000, signals=DEVICE_SIGNALS, prior=H200, seed=7).regressed
        for runs in (2, 3, 4, 5, 6, 8, 10)
    ]
    assert all(more >= fewer - 0.001 for fewer, more in pairwise(found)), found


def test_noise_far_beyond_what_is_known_gives_up_the_prior() -> None:
    rates = simulate_device(0.05, 0.0, 4, 20_000, signals=DEVICE_SIGNALS, prior=H200, seed=9)
    # What is left is Student's t test of so much noise, whose rate is the level itself and not below it.
    assert at_least(rates, rates.claims) <= DEVICE_ERROR
    assert at_most(rates, rates.claims) <= 3 * DEVICE_ERROR


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_has_the_size_that_was_asked_for(shape: Shape) -> None:
    drawn = NoiseShape(shape, WALL_SD).draw(np.random.default_rng(0), 200_000, 2)
    quartiles = np.subtract(*np.percentile(drawn, [75, 25])) / 1.349
    if shape == "heavy-tails":
        assert quartiles == pytest.approx(WALL_SD, rel=0.02)
    elif shape == "outliers":
        assert np.mean(drawn > 0.3) == pytest.approx(0.05, rel=0.05)
    elif shape in ("linear-drift", "random-walk"):
        assert np.abs(drawn[:, 1] - drawn[:, 0]).mean() > 0.5 * WALL_SD
    else:
        assert drawn.std() == pytest.approx(WALL_SD, rel=0.02)
        assert drawn.mean() == pytest.approx(0, abs=0.001)


STAYING: dict[Shape, float] = {"clock-states": 0.5, "sticky-states": 0.8}


def test_states_last_where_they_are_sticky() -> None:
    for shape, share in STAYING.items():
        drawn = NoiseShape(shape, WALL_SD).draw(np.random.default_rng(0), 20_000, 6)
        assert np.mean((drawn[:, 1:] > 0) == (drawn[:, :-1] > 0)) == pytest.approx(share, abs=0.01)
