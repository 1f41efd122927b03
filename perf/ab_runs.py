"""Measuring the pairs of an A/B session: which runs are left to do, in which order, and which beside each other.

A run that failed stays failed, and one that was interrupted is measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from perf.case import Case
from perf.compare import BASE, HEAD, warm_pairs
from perf.errors import error_line
from perf.experiment import PASSING_PAIRS, SIDES, Experiment
from perf.launch import RunFailed, at_once, left_crash, left_record, run_in_fresh_process, run_together
from perf.record import Record
from perf.run_order import Order
from perf.sequential import first_is_base

# The first runs of a compiled case fill the Inductor cache, and their pairs do not count.
MOST_COLD_PAIRS = 2


def measure_beside(experiment: Experiment) -> None:
    """Measure the pairs of the first look, all sides and cases of a pair beside each other, unless wall time decides.

    They prepare together, which is most of a run, and measure one at a time (:mod:`perf.turns`).
    """
    most = experiment.runs_at_once
    for pair in range(PASSING_PAIRS + MOST_COLD_PAIRS if most > 1 else 0):
        cases = [case for case in experiment.cases if case.takes_turns and _needs_pair(experiment, case, pair)]
        orders = [experiment.order(side, case, pair) for case in cases for side in _sides_of(pair)]
        if fresh := _in_turn(experiment, orders):
            experiment.tell(f"pair {pair + 1}: {len(fresh)} runs, up to {most} beside each other; each measures alone")
            _run_beside(experiment, fresh, most)


def _needs_pair(experiment: Experiment, case: Case, pair: int) -> bool:
    """Return whether the first look at a case needs this pair: too few before it count, and none of them failed."""
    before = [[record for record in experiment.records(side, case) if record.run < pair] for side in (BASE, HEAD)]
    failed = any(record.status != "finished" for side in before for record in side)
    failed = failed or any(experiment.crashed(side, case) for side in SIDES)
    return not failed and warm_pairs(*before) < experiment.looks(case)[0].pairs


def _run_beside(experiment: Experiment, orders: Sequence[Order], most: int) -> None:
    """Measure up to ``most`` of ``orders`` beside each other; of a run that failed its record tells later looks."""
    done = run_together(orders, most, experiment.tell, experiment.timeout, name=lambda order: f"{order.folder.name}: ")
    for order, found in done.items():
        if isinstance(found, RunFailed):
            experiment.tell(f"{order.folder.name}: {order.case.id} run {order.run} failed: {found}")


def measure_pairs(experiment: Experiment, case: Case, wanted: int) -> None:
    """Measure pair after pair until ``wanted`` count, or a run fails; of a training all pairs, several runs at once."""
    if case.trains:
        _train_pairs(experiment, case, wanted)
        return
    for pair in range(wanted + MOST_COLD_PAIRS):
        counted = warm_pairs(*(experiment.records(side, case) for side in (BASE, HEAD)))
        if counted >= wanted:
            return
        orders = [experiment.order(side, case, pair) for side in _sides_of(pair)]
        if any(is_fresh(order) for order in orders):
            experiment.tell(f"{case.id}: pair {pair + 1}, {counted} of {wanted} that the next look needs")
        if not _measure_pair(experiment, case, orders):
            return


def _measure_pair(experiment: Experiment, case: Case, orders: Sequence[Order]) -> bool:
    """Measure what is not measured yet of a pair, and return whether both runs finished."""
    if experiment.runs_at_once == 1 or not case.takes_turns:
        # Both, though the first may fail: what the other then does is half of the answer.
        finished = [_measure_run(order, experiment.tell, experiment.timeout) for order in orders]
        return all(finished)
    if fresh := _in_turn(experiment, orders):
        _run_beside(experiment, fresh, experiment.runs_at_once)
    return not any(_failed_before(order) for order in orders)


def _in_turn(experiment: Experiment, orders: Sequence[Order]) -> list[Order]:
    """Return those of ``orders`` that are not measured yet, told to take turns."""
    return [replace(order, turn=experiment.turn) for order in orders if is_fresh(order)]


def _train_pairs(experiment: Experiment, case: Case, wanted: int) -> None:
    """Train both sides with the same ``wanted`` seeds, unless they were; one that failed stays failed."""
    orders = [experiment.order(side, case, seed) for seed in range(wanted) for side in SIDES]
    fresh = [order for order in orders if is_fresh(order)]
    experiment.tell(f"{case.id}: {wanted} seeds a side, {len(fresh)} of {len(orders)} trainings to go")
    _run_beside(experiment, fresh, experiment.at_once or at_once(case.lane))


def _sides_of(pair: int) -> tuple[Literal["base", "head"], ...]:
    return ("base", "head") if first_is_base(pair) else ("head", "base")


def _measure_run(order: Order, tell: Callable[[str], None], timeout: float) -> bool:
    """Measure one run unless it was, and return whether it finished.

    A run that failed stays failed: to repeat it until it does not would hide what fails now and then.
    """
    side = order.folder.name
    what = f"{side}: {order.case.id} run {order.run}"
    if failure := _failed_before(order):
        tell(f"{what} failed before: {failure}; a new session measures it again")
    if not is_fresh(order):
        return not failure
    try:
        run_in_fresh_process(order, lambda line: tell(f"{side}: {line}"), timeout)
    except RunFailed as failure:
        tell(f"{what} failed: {failure}")
        return False
    return True


def is_fresh(order: Order) -> bool:
    """Return whether a run is still to be measured: it left no record, and no crash in place of one."""
    return ended(order) is None and not left_crash(order)


def _failed_before(order: Order) -> str:
    """Return how a run failed that has ended by itself; empty for one that finished, or is still to be measured."""
    record = ended(order)
    if record is None or record.status == "finished":
        return left_crash(order)
    return error_line(record.error or "")


def ended(order: Order) -> Record | None:
    """Return the record of a run that has ended by itself; None for none, and for one that was interrupted."""
    record = left_record(order)
    if record is None:
        return None
    interrupted = record.status == "running" or "KeyboardInterrupt" in error_line(record.error or "")
    return None if interrupted else record
