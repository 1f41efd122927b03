"""A/B sessions: base and head on one machine, their runs interleaved ABBA, until every answer is clear.

Each run is a fresh process of its side's own Python. A session that was interrupted goes on where it stopped: runs that
finished are not repeated.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from perf.ab_runs import measure_beside, measure_pairs
from perf.case import Case
from perf.compare import BASE, HEAD, compare, judgement_of, known_noise, usable_pairs
from perf.experiment import SIDES, Experiment, Manifest, begin
from perf.judge import GATED, Options
from perf.launch import left_crash
from perf.locks import alone
from perf.quality_gates import MARGIN
from perf.run_order import MINOR_VARIABLE, Order
from perf.sequential import Look
from perf.session_gates import OneSession, more_pairs_may_tell, unconfirmed
from perf.turns import can_lock
from perf.verdicts import CaseVerdict, Judgement, SignalVerdict, summarize, worst


def measure(experiment: Experiment) -> Judgement:
    """Measure every case until its answer is clear or its pairs are spent, and return the judgement.

    Raises:
        ValueError: as :func:`begin`; a baseline that cannot be used; or runs of one side that cannot be pooled, as when
            its rfdetr was changed; or another process measures this session.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    with _alone(experiment.folder):
        experiment = _begin(experiment)
        measure_beside(experiment)
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
