"""The suite: measure every case in fresh processes, then judge it against its baseline."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from perf.case import Case
from perf.expectations import failed_run
from perf.launch import RunFailed, has_finished, run_in_fresh_process
from perf.session import Session, reasons
from perf.verdicts import EXIT_CODES


def test_measure(
    case: Case,
    run: int,
    perf_session: Session,
    tell: Callable[[str], None],
    trainings: dict[Case, dict[int, RunFailed]],
) -> None:
    """One run: a fresh process compiles, times and counts the case, and leaves a record."""
    problem, order = "", perf_session.order(case, run)
    if case.trains:
        _train(case, run, trainings, perf_session, tell)
        return
    if has_finished(order):
        tell(f"{case.id} run {run}: measured already")
        return
    try:
        run_in_fresh_process(order, tell, perf_session.timeout)
    except RunFailed as failure:
        # pytest.fail in here would print the chained exception as well
        problem = "" if failure.record and failed_run(failure.record).verdict == "pass" else str(failure)
    if problem:
        pytest.fail(problem, pytrace=False)


def _train(
    case: Case, run: int, trainings: dict[Case, dict[int, RunFailed]], session: Session, tell: Callable[[str], None]
) -> None:
    """Train all seeds of the case together when the first is asked for: they do not disturb each other."""
    if case not in trainings:
        trainings[case] = session.train(case, tell)
    if run in trainings[case]:
        pytest.fail(str(trainings[case][run]), pytrace=False)


def test_verdict(case: Case, perf_session: Session) -> None:
    """The verdict on all runs of a case: fails where work changed, skips where nothing can be told."""
    if perf_session.cold:  # hundreds of MB that nobody reads again
        shutil.rmtree(perf_session.order(case, 0).cache, ignore_errors=True)
    problem = f"{case.id}: no run left a record"
    try:
        judged = perf_session.judge(perf_session.records(case)).cases
    except ValueError as error:
        judged, problem = [], str(error)
    if not judged:
        pytest.fail(problem, pytrace=False)
    [verdict] = judged
    if EXIT_CODES[verdict.verdict] == 3:
        pytest.skip(reasons(verdict))
    if verdict.verdict != "pass":
        pytest.fail(reasons(verdict), pytrace=False)
