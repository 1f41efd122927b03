"""A/B sessions: base and head on one machine, their runs interleaved ABBA, until every answer is clear.

Each run is a fresh process of its side's own Python. A session that was interrupted goes on where it stopped: runs that
finished are not repeated.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from perf.case import Case
from perf.compare import BASE, HEAD, compare, judgement_of, known_noise, usable_pairs, warm_pairs
from perf.errors import error_line
from perf.experiment import PASSING_PAIRS, SIDES, Experiment, Manifest, begin
from perf.judge import GATED, Options
from perf.launch import RunFailed, at_once, left_crash, left_record, run_in_fresh_process, run_together
from perf.locks import alone
from perf.quality_gates import MARGIN
from perf.record import Record
from perf.run_order import MINOR_VARIABLE, Order
from perf.sequential import Look, first_is_base
from perf.session_gates import OneSession, more_pairs_may_tell, unconfirmed
from perf.turns import can_lock
from perf.verdicts import CaseVerdict, Judgement, SignalVerdict, summarize, worst

# The first runs of a compiled case fill the Inductor cache, and their pairs do not count.
MOST_COLD_PAIRS = 2


def measure(experiment: Experiment) -> Judgement:
    """Measure every case until its answer is clear or its pairs are spent, and return the judgement.

    Raises:
        ValueError: as :func:`begin`; a baseline that cannot be used; or runs of one side that cannot be pooled, as when
            its rfdetr was changed; or another process measures this session.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    with _alone(experiment.folder):
        experiment = _begin(experiment)
        _measure_beside(experiment)
        return _answers(experiment, measure_pairs)


def measure_all(experiment: Experiment) -> None:
    """Measure all pairs of every case, whatever the looks at them would say.

    Raises:
        ValueError: as :func:`measure`.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    with _alone(experiment.folder):
        experiment = _begin(experiment)
        for case in experiment.cases:
            measure_pairs(experiment, case, experiment.manifest.pairs)


def _begin(experiment: Experiment) -> Experiment:
    """Begin the session and return it, with one run at a time where they have nothing to take turns by."""
    begin(experiment)
    if experiment.runs_at_once == 1 or can_lock(experiment.turn):
        return experiment
    experiment.tell(f"{experiment.folder}: its file system locks no files, so that runs follow one another")
    return experiment._replace(at_once=1)


def judge_again(experiment: Experiment) -> Judgement:
    """Return the judgement of the records there are, look by look as they were looked at; measures nothing.

    Raises:
        ValueError: as :func:`measure`.
    """
    return _answers(experiment, lambda *_: None)


Measuring = Callable[[Experiment, Case, int], None]


def _answers(experiment: Experiment, measuring: Measuring) -> Judgement:
    found = [verdict for case in experiment.cases for verdict in answer(experiment, case, measuring)[1]]
    return judgement_of([_reproducible(case, experiment.manifest) for case in found])


def answer(experiment: Experiment, case: Case, measuring: Measuring) -> tuple[Look, list[CaseVerdict]]:
    """Return the look that answers a case, or the last, and the verdict then; before each look is ``measuring``."""
    looks = _looks(experiment, case)
    for number, look in enumerate(looks, 1):
        measuring(experiment, case, look.pairs)
        found = judge_look(experiment, case, look)
        experiment.tell(f"{case.id}, look {number} of {len(looks)}: {_answer(found)}")
        if not _open(found, timed=experiment.manifest.timed):
            break
    return look, found


def _looks(experiment: Experiment, case: Case) -> Sequence[Look]:
    """Return the looks to take. Without wall time a pair that is there counts, whatever those before it say."""
    looks = experiment.looks(case)
    if experiment.manifest.timed:
        return looks
    there = len(usable_pairs(*(experiment.records(side, case) for side in (BASE, HEAD)))[0])
    return [look for look in looks[:-1] if look.pairs >= there] + looks[-1:]


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Hold the session's lock: two processes would write the records of the same runs."""
    busy = f"{folder}: another process measures this session; wait for it, or start a new one"
    return alone(folder / "ab.lock", busy)


def _reproducible(case: CaseVerdict, manifest: Manifest) -> CaseVerdict:
    """Return the verdict with the command that measures both sides again."""
    minor = os.environ.get(MINOR_VARIABLE)
    words = [f"nox -s ab-{minor} --" if minor else "rfdetr-perf ab"]
    for name, side in ((BASE, manifest.base), (HEAD, manifest.head)):
        words.append(f"--{name} {shlex.quote(side.told)}")
        words += [] if minor else [f"--{name}-python {shlex.quote(str(side.python))}"]
        words += [f"--{name}-patch {shlex.quote(str(side.patch))}"] if side.patch else []
    words += [f"--base-case {manifest.against}"] if manifest.against else []
    words += [f"--case {case.case_id}", f"--pairs {manifest.pairs}"]
    words += [f"--margin {manifest.margin:g}"] if manifest.margin != MARGIN else []
    words += [f"--data {shlex.quote(str(manifest.data))}"] if manifest.data else []
    words += [f"--gate {','.join(manifest.gate)}"] if set(manifest.gate) != GATED and not manifest.against else []
    rows = [row.model_copy(update={"reproduce": " ".join(words)}) for row in case.signals]
    return case.model_copy(update={"signals": rows})


def _measure_beside(experiment: Experiment) -> None:
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
        if any(_is_fresh(order) for order in orders):
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
    return [replace(order, turn=experiment.turn) for order in orders if _is_fresh(order)]


def _train_pairs(experiment: Experiment, case: Case, wanted: int) -> None:
    """Train both sides with the same ``wanted`` seeds, unless they were; one that failed stays failed."""
    orders = [experiment.order(side, case, seed) for seed in range(wanted) for side in SIDES]
    fresh = [order for order in orders if _is_fresh(order)]
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
    if not _is_fresh(order):
        return not failure
    try:
        run_in_fresh_process(order, lambda line: tell(f"{side}: {line}"), timeout)
    except RunFailed as failure:
        tell(f"{what} failed: {failure}")
        return False
    return True


def _is_fresh(order: Order) -> bool:
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


def judge_look(experiment: Experiment, case: Case, look: Look) -> list[CaseVerdict]:
    """Judge one case at one look, with the error that this look may spend."""
    base, head = (experiment.records(side, case) for side in (BASE, HEAD))
    # No further than this look, though an interrupted session may have gone on.
    beyond = {record.run for record in usable_pairs(base, head)[0][look.pairs :]}
    base, head = ([record for record in side if record.run not in beyond] for side in (base, head))
    noise = known_noise(head, experiment.baselines) if "device" in experiment.manifest.gate else {}
    margin = experiment.manifest.margin
    session = OneSession(wall_error=2 * look.level, cases=len(experiment.cases), margin=margin, noise=noise)
    options = Options(
        gate=frozenset(experiment.manifest.gate), records_path=experiment.folder / HEAD, one_session=session
    )
    against = {case.id: experiment.case_of(BASE, case).id}
    found = compare(base, head, options, expected=[case.id], against=against).cases
    crashes = [_crash_row(case, order) for side in SIDES for order in experiment.crashed(side, case)]
    return [_with_rows(one, crashes) for one in found]


def _crash_row(case: Case, order: Order) -> SignalVerdict:
    """Return the row of a run that ended before it began a record: the pairs of records do not show it."""
    side = order.folder.name
    return SignalVerdict(
        case_id=case.id,
        signal=f"run {order.run}" if side == HEAD else BASE,
        kind="info",
        verdict="failed" if side == HEAD else "inconclusive",
        message=f"{side}, run {order.run}: {left_crash(order)}",
        reproduce=order.command,
    )


def _with_rows(case: CaseVerdict, more: Sequence[SignalVerdict]) -> CaseVerdict:
    rows = [*more, *case.signals]
    return case.model_copy(update={"signals": rows, "verdict": worst(row.verdict for row in rows) or case.verdict})


def _open(cases: Sequence[CaseVerdict], *, timed: bool) -> bool:
    """Return whether more pairs can change the answer: a wall signal is undecided, and nothing has failed.

    Where no wall signal decides, it is a device signal that does not pass: one more run tells whether it was disturbed.
    """
    rows = [row for case in cases for row in case.signals]
    if any(row.verdict in ("failed", "not-compiled") for row in rows):
        return False
    return any(more_pairs_may_tell(row) if timed else unconfirmed(row) for row in rows)


def _answer(cases: Sequence[CaseVerdict]) -> str:
    walls = [row for case in cases for row in case.signals if row.kind in ("wall", "quality") and row.verdict]
    return "; ".join(f"{row.signal} {row.verdict}: {row.message}" for row in walls) or summarize(cases)
