"""Gates of one session: base and head measured beside each other, so that intervals may be taken at their word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perf.baselines import BaselineSignal
from perf.gates import (
    DEVICE_ERROR,
    DEVICE_FLOOR,
    WALL_ERROR,
    WALL_TOLERANCE,
    WALL_TOLERANCES,
    Outcome,
    all_positive,
    further_text,
    interval_text,
    no_interval,
    percent,
    sign,
)
from perf.quality_gates import MARGIN
from perf.record import Signal
from perf.sequential import least_pairs
from perf.stats import (
    NO_NOISE,
    Noise,
    RatioInterval,
    exceeds,
    further_pairs,
    log_changes,
    paired_interval,
    pooled_interval,
    sign_flip_p,
    spread_of,
)
from perf.verdicts import SignalVerdict, Verdict

# Less than this is not worth a verdict where both sides were measured in one session, be it real. The allocator has
# peaks 0.14 % apart for the same work (H200, nano-b4-compile), and reserves in segments of many megabytes.
DEVICE_FLOOR_ONE_SESSION, WALL_FLOOR_ONE_SESSION = 0.001, 0.002
DEVICE_FLOORS_ONE_SESSION = {"peak_memory": 0.005, "peak_reserved": 0.01}
# The most by which runs of one session scatter (standard deviation of the logarithm), where many sessions have shown
# it: 0.04 to 0.14 % on H200s. A bound needs no t quantile, so two runs a side see 1 % at either end of that range.
# Of the allocator's two peaks, 0.04 to 0.14 % apart there by case, a run has the one or the other: 0.1 % at most.
DEVICE_SDS_ONE_SESSION = {"gpu_busy": 0.0014, "peak_memory": 0.001}
# So many degrees of freedom make t normal.
DEGREES_OF_A_BOUND = 1000
# Runs contradict what is known where noise of that size would scatter as much as rarely as this: then they alone count.
# Up to five a side see less than 1 % alone too seldom to be left to it at 5 %; six and more can do without.
CONTRADICTED_BY_FEW, CONTRADICTED, FEW_DEGREES = 0.001, 0.05, 8


class OneSession(NamedTuple):
    """How to judge two sides that were measured in one session, run i of the one beside run i of the other.

    ``wall_error`` and ``device_error`` are two-sided error rates of claiming a change, to be shared by all signals of
    the kind in ``cases`` cases. A pass shares none: the session passes only if every signal does, so it errs no more
    often than the one that changed (R. L. Berger, "Multiparameter hypothesis testing and acceptance sampling",
    Technometrics 24, 1982). ``noise`` knows how runs of unchanged code scatter, by case
    and signal. ``margin`` is the mAP that a head may lose.
    """

    wall_error: float = WALL_ERROR
    device_error: float = DEVICE_ERROR
    cases: int = 1
    margin: float = MARGIN
    noise: Mapping[tuple[str, str], Noise] = {}


def device_session_gate(
    base: BaselineSignal,
    now: Sequence[Signal],
    error: float = DEVICE_ERROR,
    noise: Noise = NO_NOISE,
    shares: int = 1,
) -> Outcome:
    """Judge a device signal whose base was measured in the same session, by its pooled interval.

    It claims a change with its share of ``error``, one of ``shares``, and passes with the whole.
    """
    runs = [signal.value for signal in now]
    if not all_positive(base, runs):
        return Outcome("inconclusive", "a run's value is not above 0, so there is no ratio")
    known = session_noise(base.name, base.runs, runs, noise)
    claim, passing = (pooled_interval(base.runs, runs, 1 - rate, known) for rate in (error / shares, error))
    if claim is None or passing is None:
        return Outcome("inconclusive", "one run a side, and no earlier one to tell how runs scatter: take two")
    floor = DEVICE_FLOORS_ONE_SESSION.get(base.name, DEVICE_FLOOR_ONE_SESSION)
    found = _by_interval(base, claim, passing, floor, DEVICE_FLOOR)
    return found._replace(message=f"{found.message}; more runs narrow it") if found.verdict == "inconclusive" else found


def session_noise(name: str, base: Sequence[float], now: Sequence[float], noise: Noise) -> Noise:
    """Return what to pool with these runs: ``noise``, or the bound of the signal where there is one and it is not less.

    Nothing, where the runs scatter so much more that both cannot be of one machine (an F test of the variances).
    """
    bound = Noise(DEVICE_SDS_ONE_SESSION.get(name, 0.0) ** 2, DEGREES_OF_A_BOUND)
    # The few runs of a baseline that scatter a little more than the bound are no reason to drop it.
    if noise.degrees and bound.variance and not exceeds(noise, bound, CONTRADICTED):
        noise = bound
    own = spread_of(base, now)
    return NO_NOISE if exceeds(own, noise, contradiction_level(own.degrees)) else noise


def contradiction_level(degrees: int) -> float:
    """Return the level of the F test by which runs of so many degrees of freedom contradict what is known."""
    return CONTRADICTED_BY_FEW if degrees <= FEW_DEGREES else CONTRADICTED


def wall_session_gate(
    base: BaselineSignal, now: Sequence[Signal], error: float = WALL_ERROR, shares: int = 1
) -> Outcome:
    """Judge a wall signal by the paired interval of its ratio and, where that claims a change, by sign flips too.

    It claims a change with its share of ``error``, one of ``shares``, and passes with the whole.
    """
    runs = [signal.value for signal in now]
    if min(len(base.runs), len(runs)) < 2 or not all_positive(base, runs):
        return Outcome("inconclusive", f"{no_interval(base, now)}{_too_few(runs, shares)}")
    claim, passing = (paired_interval(base.runs, runs, 1 - rate) for rate in (error / shares, error))
    changes = log_changes(base.runs, runs)
    tolerance = WALL_TOLERANCES.get(base.name, WALL_TOLERANCE)
    found = _by_interval(base, claim, passing, WALL_FLOOR_ONE_SESSION, tolerance)
    if found.verdict in ("regressed", "improved") and not _flips_prove(changes, claim.ratio > 1, error / shares):
        found = _by_interval(base, claim, passing, math.inf, tolerance)
    if found.verdict != "inconclusive":
        return found
    boundary = math.log1p(tolerance) * sign(base.direction)
    further = further_pairs(changes, boundary, 1 - error)
    if further is not None and not claim.low <= 1 <= claim.high:  # a change, which fewer pairs cannot prove
        further = max(further, least_pairs(error / 2, shares) - len(runs))
    return found._replace(message=f"{found.message}; {further_text(further, 'pair')}{_too_few(runs, shares)}")


def _too_few(runs: Sequence[float], shares: int) -> str:
    """Return that so few pairs can be no proof of a change; nothing where they can."""
    least = least_pairs(WALL_ERROR / 2, shares)
    return f"; fewer than {least} pairs prove no change of time, however large" if len(runs) < least else ""


def more_pairs_may_tell(row: SignalVerdict) -> bool:
    """Return whether a session should go on for this signal: a wall signal that is undecided, or may have improved.

    A pass that leaves open a gain as large as the tolerance is such: a session that stopped there, as early as it can,
    would never find one.
    """
    if row.kind != "wall" or row.verdict != "pass" or row.interval is None:
        return row.kind == "wall" and row.verdict == "inconclusive"
    low, high = row.interval
    best = low if row.direction == "lower" else 1 / high
    return best < 1 / (1 + WALL_TOLERANCES.get(row.signal, WALL_TOLERANCE))


def unconfirmed(row: SignalVerdict) -> bool:
    """Return whether this is a device signal that two pairs do not let pass: of three, one may have been disturbed."""
    return row.kind == "device" and row.verdict in ("regressed", "improved", "inconclusive")


def _flips_prove(changes: Sequence[float], above: bool, error: float) -> bool:
    """Return whether a change, up or down, is proven whatever the noise: a t interval trusts that it is normal."""
    boundary = math.log1p(WALL_FLOOR_ONE_SESSION) * (1 if above else -1)
    return sign_flip_p(changes, boundary, above=above) <= error / 2


def _by_interval(
    base: BaselineSignal, claim: RatioInterval, passing: RatioInterval, floor: float, tolerance: float
) -> Outcome:
    """Return what the intervals prove: a change beyond ``floor``, or that none for the worse reaches ``tolerance``."""
    # Turned so that above 1 is worse.
    worse, most = ((i if base.direction == "lower" else i.inverse()) for i in (claim, passing))
    verdict: Verdict = "inconclusive"
    if worse.low > 1 + floor:
        verdict = "regressed"
    elif worse.high < 1 / (1 + floor):
        verdict = "improved"
    elif most.high < 1 + tolerance:
        verdict = "pass"
    shown = passing if verdict == "pass" else claim
    told = f"{percent(shown.ratio - 1)}, interval {interval_text(shown)}, tolerance {100 * tolerance:g} %"
    return Outcome(verdict, told, interval=shown)
