"""Simulations of the procedure: what the gates of one session say of noise whose shape and size are known.

The false-alarm rate and the power of looks, shared error rates and gates together follow from no formula once noise is
not normal, so sessions are drawn and judged. Each decision is that of the gate itself: numpy settles the sessions whose
t interval lies clear of every boundary, and all others go through :mod:`perf.session_gates` one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from perf.baselines import BaselineSignal
from perf.gates import DEVICE_ERROR, DEVICE_FLOOR, WALL_ERROR, WALL_TOLERANCE, Outcome
from perf.record import Kind, Signal
from perf.sequential import first_is_base, looks
from perf.session_gates import (
    DEVICE_FLOOR_ONE_SESSION,
    DEVICE_FLOORS_ONE_SESSION,
    WALL_FLOOR_ONE_SESSION,
    contradiction_level,
    device_session_gate,
    session_noise,
    wall_session_gate,
)
from perf.stats import NO_NOISE, Noise, exceeds, least_excess, t_quantile
from perf.verdicts import SEVERITY

Floats: TypeAlias = NDArray[np.float64]
Ranks: TypeAlias = NDArray[np.intp]
Booleans: TypeAlias = NDArray[np.bool_]
Shape = Literal[
    "normal",
    "log-normal",
    "clock-states",
    "sticky-states",
    "linear-drift",
    "random-walk",
    "outliers",
    "heavy-tails",
]
SHAPES: tuple[Shape, ...] = get_args(Shape)

# How often a host goes over to its other speed between two runs, where its states last.
SWITCHES = 0.2
# Of the variance, the share that stays within a clock state: runs of one state are not equal to the last digit.
WITHIN_STATE = 0.01
# One run in 20 takes half as long again: another user's job, a host that swaps.
OUTLIER_SHARE, OUTLIER_FACTOR = 0.05, 1.5
# Interquartile range of the standard normal and of Student's t of 2 degrees of freedom, which has no variance.
NORMAL_RANGE, T2_RANGE = 1.348980, 1.632993
# numpy and the gates round differently, by less than this in a logarithm of a ratio.
ROUNDING = 1e-9
# About what one step and one kernel sum take; no decision depends on it.
TYPICAL_MS = 100.0


class NoiseShape(NamedTuple):
    """How runs of unchanged code scatter: ``sd`` is that of the logarithms of the run values.

    Of heavy tails ``sd`` is that of the normal distribution with the same quartiles, of outliers that of all other
    runs, and of a drift that of the change from one run to the next, beside (linear) normal noise of the same size.
    """

    name: Shape
    sd: float

    def draw(self, rng: np.random.Generator, sessions: int, runs: int) -> Floats:
        """Return the logarithms of the run values, less their mean level: a row a session, its ``runs`` in time."""
        return self.sd * _DRAWS[self.name](rng, sessions, runs, self.sd)


class Rates(NamedTuple):
    """How ``sessions`` ended, as fractions of them by the worst verdict of their signals; ``pairs`` is the mean."""

    sessions: int
    regressed: float
    improved: float
    inconclusive: float
    passed: float
    pairs: float

    @property
    def claims(self) -> float:
        """The fraction that claimed a change, for better or worse: false alarms, where nothing was shifted."""
        return self.regressed + self.improved

    def bounds(self, fraction: float, confidence: float = 0.99) -> tuple[float, float]:
        """Return the exact two-sided interval (Clopper and Pearson, 1934) of a rate of which ``fraction`` was seen."""
        from scipy.stats import binomtest

        found = binomtest(round(fraction * self.sessions), self.sessions).proportion_ci(confidence, method="exact")
        return float(found.low), float(found.high)


def simulate(noise: NoiseShape, shift: float, sessions: int, *, most: int, signals: int = 1, seed: int = 0) -> Rates:
    """Return how A/B sessions of at most ``most`` pairs end on wall signals, with the looks of :mod:`perf.ab`.

    Each of the ``signals`` belongs to a case of its own, with noise of its own, and they share ``WALL_ERROR``. On the
    first the head is slower by ``shift`` (0.05: 5 %), on all others nothing changed.
    """
    drawn = _draw(noise, shift, sessions, most, signals, seed)
    ranks, pairs = wall_ends(drawn.base, drawn.head, signals)
    return _rates(ranks.reshape(sessions, signals), float(pairs.mean()))


def wall_ends(base: Floats, head: Floats, signals: int = 1) -> tuple[Ranks, Floats]:
    """Return the verdict with which each row, all pairs of a session in time, ends, and after how many pairs."""
    ranks, pairs = np.zeros(len(base), dtype=np.intp), np.zeros(len(base))
    going_on = np.arange(len(base))
    for look in looks(base.shape[1], WALL_ERROR / 2, signals):
        before, after = base[going_on, : look.pairs], head[going_on, : look.pairs]
        ranks[going_on], pairs[going_on] = wall_ranks(before, after, 2 * look.level, signals), look.pairs
        going_on = going_on[more_pairs_may_tell(ranks[going_on], before, after, 2 * look.level)]
    return ranks, pairs


def simulate_device(
    sd: float,
    shift: float,
    runs: int,
    sessions: int,
    *,
    signals: int = 1,
    prior: Noise = NO_NOISE,
    seed: int = 0,
    shape: Shape = "normal",
    name: str = "gpu_busy",
) -> Rates:
    """Return how A/B sessions of ``runs`` runs a side end on device signals that share ``DEVICE_ERROR``.

    ``prior`` is what a stored baseline teaches of each signal's scatter, and ``name`` what they are called, since the
    gate has floors and bounds of its own for some. The shift is as in :func:`simulate`.
    """
    drawn = _draw(NoiseShape(shape, sd), shift, sessions, runs, signals, seed)
    ranks = device_ranks(drawn.base, drawn.head, DEVICE_ERROR, prior, signals, name)
    return _rates(ranks.reshape(sessions, signals), float(runs))


# Verdicts as their place in SEVERITY, worst first, so that the least of a row is the worst of a session.
REGRESSED, IMPROVED, INCONCLUSIVE, PASS = (
    SEVERITY.index(verdict) for verdict in ("regressed", "improved", "inconclusive", "pass")
)


def wall_ranks(base: Floats, head: Floats, error: float, shares: int = 1) -> Ranks:
    """Return the verdict of :func:`perf.session_gates.wall_session_gate` on each row of pairs of log run values.

    Sign flips, and so the gate itself, are asked only where the t interval claims a change or touches a boundary: all
    else they cannot turn into a claim.
    """
    claim, passing = (_paired(base, head, rate) for rate in (error / shares, error))
    ranks = _ranks(claim, passing, WALL_FLOOR_ONE_SESSION, WALL_TOLERANCE)
    asked = _near(claim, passing, WALL_FLOOR_ONE_SESSION, WALL_TOLERANCE) | (ranks < INCONCLUSIVE)
    return _ask(ranks, asked, base, head, lambda old, now: wall_session_gate(old, now, error, shares), _WALL)


def more_pairs_may_tell(ranks: Ranks, base: Floats, head: Floats, error: float) -> Booleans:
    """Return the answer of :func:`perf.session_gates.more_pairs_may_tell` for each row, to a rounding."""
    best = _paired(base, head, error).low
    going_on: Booleans = (ranks == INCONCLUSIVE) | ((ranks == PASS) & (best < -math.log1p(WALL_TOLERANCE)))
    return going_on


def device_ranks(
    base: Floats,
    head: Floats,
    error: float,
    prior: Noise = NO_NOISE,
    shares: int = 1,
    name: str = "gpu_busy",
) -> Ranks:
    """Return the verdict of :func:`perf.session_gates.device_session_gate` on each row of log run values."""
    floor = DEVICE_FLOORS_ONE_SESSION.get(name, DEVICE_FLOOR_ONE_SESSION)
    contradicted = _contradicted(base, head, prior, name)
    ranks, asked = np.full(len(base), INCONCLUSIVE), np.zeros(len(base), dtype=np.bool_)
    # One run a side contradicts nothing.
    known = session_noise(name, [1.0], [1.0], prior)
    for rows, noise in ((~contradicted, known), (contradicted, NO_NOISE)):
        claim, passing = (_pooled(base[rows], head[rows], rate, noise) for rate in (error / shares, error))
        ranks[rows] = _ranks(claim, passing, floor, DEVICE_FLOOR)
        asked[rows] = _near(claim, passing, floor, DEVICE_FLOOR)
    signal = _signal(name, "device")
    return _ask(ranks, asked, base, head, lambda old, now: device_session_gate(old, now, error, prior, shares), signal)


class _Sides(NamedTuple):
    base: Floats
    head: Floats


class _Intervals(NamedTuple):
    """The ends of intervals of log ratios, one a row."""

    low: Floats
    high: Floats


def _ranks(claim: _Intervals, passing: _Intervals, floor: float, tolerance: float) -> Ranks:
    """As ``perf.session_gates._by_interval``, of signals of which less is better."""
    ranks = np.where(passing.high < math.log1p(tolerance), PASS, INCONCLUSIVE)
    ranks = np.where(claim.high < -math.log1p(floor), IMPROVED, ranks)
    return np.where(claim.low > math.log1p(floor), REGRESSED, ranks)


def _near(claim: _Intervals, passing: _Intervals, floor: float, tolerance: float) -> Booleans:
    """Return where an end lies so near a boundary that rounding decides."""
    beyond = (claim.high + math.log1p(floor), claim.low - math.log1p(floor), passing.high - math.log1p(tolerance))
    near: Booleans = np.min(np.abs(beyond), axis=0) < ROUNDING
    return near


def _paired(base: Floats, head: Floats, error: float) -> _Intervals:
    """As :func:`perf.stats.paired_interval`."""
    changes, pairs = head - base, base.shape[1]
    half = t_quantile(pairs - 1, 1 - error) * changes.std(axis=1, ddof=1) / math.sqrt(pairs)
    centre = changes.mean(axis=1)
    return _Intervals(centre - half, centre + half)


def _pooled(base: Floats, head: Floats, error: float, noise: Noise) -> _Intervals:
    """As :func:`perf.stats.pooled_interval`; infinitely wide where nothing tells the spread."""
    variance, own = _spreads(base, head)
    degrees = own + noise.degrees
    centre = head.mean(axis=1) - base.mean(axis=1)
    if not degrees:
        return _Intervals(np.full_like(centre, -math.inf), np.full_like(centre, math.inf))
    pooled = (noise.variance * noise.degrees + variance * own) / degrees
    half = t_quantile(degrees, 1 - error) * np.sqrt(pooled * 2 / base.shape[1])
    return _Intervals(centre - half, centre + half)


def _spreads(base: Floats, head: Floats) -> tuple[Floats, int]:
    """As :func:`perf.stats.spread_of`: the variance of each row about its sides' means, and its degrees of freedom."""
    own = base.shape[1] - 1
    if not own:
        return np.zeros(len(base)), 0
    return (base.var(axis=1, ddof=1) + head.var(axis=1, ddof=1)) / 2, 2 * own


def _contradicted(base: Floats, head: Floats, prior: Noise, name: str) -> Booleans:
    """Return where :func:`perf.session_gates.session_noise` gives up the prior."""
    known = session_noise(name, [1.0], [1.0], prior)
    variance, own = _spreads(base, head)
    level = contradiction_level(own)
    least = least_excess(own, known, level)
    found: Booleans = variance > least
    if not math.isfinite(least):
        return found
    # The gate's own test where rounding could decide it.
    for row in np.flatnonzero(np.abs(variance - least) <= ROUNDING * least):
        found[row] = exceeds(Noise(float(variance[row]), own), known, level)
    return found


_Gate: TypeAlias = Callable[[BaselineSignal, list[Signal]], Outcome]


def _signal(name: str, kind: Kind) -> Signal:
    return Signal(name=name, kind=kind, unit="ms", value=TYPICAL_MS)


_WALL = _signal("step_time", "wall")


def _ask(ranks: Ranks, asked: Booleans, base: Floats, head: Floats, gate: _Gate, signal: Signal) -> Ranks:
    """Return ``ranks`` with those that are ``asked`` for as the gate itself has them."""
    for row in np.flatnonzero(asked):
        runs = (TYPICAL_MS * np.exp(head[row])).tolist()
        now = [signal.model_copy(update={"value": value}) for value in runs]
        verdict = gate(_stored(signal, (TYPICAL_MS * np.exp(base[row])).tolist()), now).verdict
        assert verdict is not None, signal.name
        ranks[row] = SEVERITY.index(verdict)
    return ranks


def _stored(signal: Signal, runs: list[float]) -> BaselineSignal:
    return BaselineSignal(name=signal.name, kind=signal.kind, unit=signal.unit, runs=runs, approval=0)


def _draw(noise: NoiseShape, shift: float, sessions: int, pairs: int, signals: int, seed: int) -> _Sides:
    """Return the log run values of both sides, a row a signal of a session, a column a pair, drawn in ABBA order."""
    in_time = noise.draw(np.random.default_rng(seed), sessions * signals, 2 * pairs).reshape(-1, pairs, 2)
    for pair in range(pairs):
        if not first_is_base(pair):
            in_time[:, pair] = in_time[:, pair, ::-1]
    in_time[::signals, :, 1] += math.log1p(shift)
    return _Sides(in_time[:, :, 0], in_time[:, :, 1])


def _rates(ranks: Ranks, pairs: float) -> Rates:
    worst = ranks.min(axis=1)
    regressed, improved, undecided, passed = (
        float(np.mean(worst == rank)) for rank in (REGRESSED, IMPROVED, INCONCLUSIVE, PASS)
    )
    return Rates(len(worst), regressed, improved, undecided, passed, pairs)


_Draw: TypeAlias = Callable[[np.random.Generator, int, int, float], Floats]


def _normal(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    return rng.standard_normal((sessions, runs))


def _log_normal(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    """Deviates of a log-normal distribution of shape 1, less its mean, over its standard deviation: skewness 6.2."""
    return (np.exp(_normal(rng, sessions, runs, 0)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


def _clock_states(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    """Each run is in one of two states, either as likely."""
    return _in_states(rng, rng.integers(0, 2, (sessions, runs)))


def _sticky_states(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    """As clock states, but a run stays in that of the run before it, but for ``SWITCHES`` of all runs."""
    switched = rng.random((sessions, runs)) < SWITCHES
    switched[:, 0] = rng.random(sessions) < 0.5
    return _in_states(rng, switched.cumsum(axis=1) % 2)


def _in_states(rng: np.random.Generator, states: NDArray[np.int64]) -> Floats:
    within = math.sqrt(WITHIN_STATE) * rng.standard_normal(states.shape)
    return math.sqrt(1 - WITHIN_STATE) * (2.0 * states - 1) + within


def _linear_drift(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    """A host that slows down, or speeds up, by one standard deviation of its noise from run to run."""
    slope = rng.choice([-1.0, 1.0], (sessions, 1))
    return slope * np.arange(runs) + _normal(rng, sessions, runs, 0)


def _random_walk(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    return _normal(rng, sessions, runs, 0).cumsum(axis=1)


def _outliers(rng: np.random.Generator, sessions: int, runs: int, sd: float) -> Floats:
    slower = rng.random((sessions, runs)) < OUTLIER_SHARE
    # In units of the standard deviation, as all here; the factor does not depend on it.
    return _normal(rng, sessions, runs, sd) + slower * math.log(OUTLIER_FACTOR) / sd


def _heavy_tails(rng: np.random.Generator, sessions: int, runs: int, _: float) -> Floats:
    return rng.standard_t(2, (sessions, runs)) * (NORMAL_RANGE / T2_RANGE)


_DRAWS: dict[Shape, _Draw] = {
    "normal": _normal,
    "log-normal": _log_normal,
    "clock-states": _clock_states,
    "sticky-states": _sticky_states,
    "linear-drift": _linear_drift,
    "random-walk": _random_walk,
    "outliers": _outliers,
    "heavy-tails": _heavy_tails,
}
