"""Measuring an investigation: which cases, in which order, each run a fresh process; one that is interrupted goes on.

What fails is told and left behind: the other runs still answer their questions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from perf import environment
from perf.case import Case, Lane
from perf.investigate_data import generated_data
from perf.investigate_time import Room
from perf.investigation import BASE, HEAD, MANIFEST, PHOTOGRAPHS, Investigation, Side, read_manifest
from perf.launch import RunFailed, at_once, has_finished, left_record, run_in_fresh_process, run_together
from perf.locks import alone
from perf.record import file_digest, read_files, write_model
from perf.run_order import Order
from perf.sequential import first_is_base
from perf.session import on_data

# Questions of an investigation, in the order of their cases. The first is what the diagnosis is of.
QUESTIONS = ("fit", "step", "compile", "input", "map")
# What the command takes before and after it measures: its imports and the report, with some to spare.
AROUND_SECONDS = 10.0
# As many images as a training of the suite has in a batch (perf.suites).
MAP_BATCH: dict[Lane, int] = {"gpu": 16, "cpu": 4}


class Task(NamedTuple):
    """What to measure and where. ``patch`` is the candidate's file, ``data`` a user's data set; ``tell`` gets lines."""

    asked: Investigation
    cases: Sequence[Case]
    folder: Path
    tell: Callable[[str], None]
    patch: Path | None = None
    data: Path | None = None
    timeout: float = 3600.0

    def order(self, side: Side, case: Case, run: int) -> Order:
        """Return the order of one run."""
        return Order(
            case=case,
            session=f"{self.folder.name}/{side}",
            run=run,
            folder=self.folder / side,
            patch=self.patch if side == HEAD else None,
            data=self.data if reads(case, self.data) else None,
        )


def reads(case: Case, data: Path | None) -> bool:
    """Return whether a case reads the data set: of photographs that were generated nothing can be learned."""
    return data is not None and case.takes_data and not (case.trains and data.name == PHOTOGRAPHS)


def on(cases: Sequence[Case], data: Path | None) -> list[Case]:
    """Return the cases with those that read a data set on this one.

    Raises:
        ValueError: none does, and it is one that was given.
    """
    reading = [case for case in cases if reads(case, data)]
    if not reading and data is not None and data.name == PHOTOGRAPHS:
        return list(cases)
    moved = dict(zip(reading, on_data(reading, data), strict=True))
    return [moved.get(case, case) for case in cases]


def cases_of(config: str, lane: Lane, batch_size: int | None, questions: Sequence[str], workers: int) -> list[Case]:
    """Return the case of each question: the eager fit and its input, the step eager and compiled, and a training.

    On the cpu lane what is compiled is captured without Inductor: seconds instead of minutes.

    Raises:
        ValueError: an unknown question; lists the known ones.
    """
    unknown = sorted(set(questions) - set(QUESTIONS))
    if unknown:
        msg = f"unknown question {unknown[0]!r}; known: {', '.join(QUESTIONS)}"
        raise ValueError(msg)
    size = batch_size or (2 if lane == "cpu" else 4)
    step = {"config": config, "lane": lane, "batch_size": size}
    made: dict[str, dict[str, object]] = {
        "fit": {**step, "measure": "fit", "workers": workers},
        "step": step,
        "compile": {**step, "compile": True, "backend": "eager" if lane == "cpu" else "inductor"},
        "input": {**step, "measure": "input", "workers": workers},
        "map": {
            **step,
            "measure": "convergence",
            "batch_size": MAP_BATCH[lane],
            **({"workers": 0} if lane == "cpu" else {}),
        },
    }
    return [Case.model_validate(made[name]) for name in QUESTIONS if name in questions]


def asked_of(
    cases: Sequence[Case],
    runs: int,
    patch: Path | None,
    data: Path | None,
    command: str,
    budget: float | None = None,
) -> Investigation:
    """Return what to write down of an investigation."""
    return Investigation(
        cases=[case.id for case in cases],
        runs=runs,
        budget=budget,
        head=patch.name if patch else "",
        head_sha256=file_digest(patch) if patch else "",
        data=data.name if data else "",
        command=command,
    )


def measure(task: Task, *, resume: bool) -> int:
    """Measure all that is not measured yet; return how many runs did not finish.

    Raises:
        ValueError: the folder holds an investigation, and this is not to go on with it, or is another; or another
            process measures there.
    """
    try:
        task.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"--out {task.folder}: no folder can be made there ({error.strerror}); give another"
        raise ValueError(msg) from error
    with _alone(task.folder):
        room, started = Room(task.asked.budget), time.monotonic()
        _begin(task, resume=resume)
        _write_data(task)
        room.spend(time.monotonic() - started + AROUND_SECONDS)
        return _measure_rounds(task, room) + _train(task)


def _measure_rounds(task: Task, room: Room) -> int:
    """Measure round after round what is no training; return how many runs failed."""
    failed, orders = 0, list(orders_of(task))
    numbered = [(f"{number} of {len(orders)}, {what}", order) for number, (what, order) in enumerate(orders, 1)]
    for _, together in itertools.groupby(numbered, key=lambda one: (one[1].run, one[1].case.id)):
        turn = list(together)  # a candidate's run and the one without it: one alone would be no comparison
        case_id = turn[0][1].case.id
        done = [record for _, one in turn if has_finished(one) and (record := left_record(one))]
        if not room.has(case_id) and len(done) < len(turn):
            task.tell(f"{turn[0][0]}: left out, it would take longer than what is left of --budget")
            continue
        started = time.monotonic()
        failed += sum(not _measured(task, what, one) for what, one in turn)
        before = sum(record.seconds or 0 for record in done)
        room.take(case_id, before + time.monotonic() - started, (left_record(one) for _, one in turn))
    return failed


def orders_of(task: Task) -> Iterator[tuple[str, Order]]:
    """Yield what each run is, and its order: round after round, so that whatever drifts disturbs all cases alike.

    A candidate's runs alternate with those without it, first one and then the other first.
    """
    for run in range(task.asked.runs):
        for case in (case for case in task.cases if not case.trains):
            for side in _turn(task, run):
                yield (
                    f"{side} {case.id} run {run}" if task.patch else f"{case.id} run {run}",
                    task.order(side, case, run),
                )


def _turn(task: Task, run: int) -> Sequence[Side]:
    if not task.patch:
        return (BASE,)
    return (BASE, HEAD) if first_is_base(run) else (HEAD, BASE)


def _measured(task: Task, what: str, order: Order) -> bool:
    if has_finished(order):
        task.tell(f"{what}: measured already")
        return True
    task.tell(f"{what}: begins")
    try:
        run_in_fresh_process(order, task.tell, task.timeout)
    except RunFailed as failure:
        task.tell(f"{what} failed: {failure}")
        return False
    return True


def _train(task: Task) -> int:
    """Train what is to be trained, the same seeds on each side, several at once; return how many failed."""
    trained = [case for case in task.cases if case.trains]
    orders = [task.order(side, c, run) for c in trained for run in range(task.asked.runs) for side in task.asked.sides]
    fresh = [order for order in orders if not has_finished(order)]
    if not fresh:
        return 0
    task.tell(f"{len(fresh)} trainings for mAP")
    done = run_together(fresh, at_once(fresh[0].case.lane), task.tell, task.timeout)
    failures = {order: found for order, found in done.items() if isinstance(found, RunFailed)}
    for order, failure in failures.items():
        task.tell(f"{order.folder.name} {order.case.id} run {order.run} failed: {failure}")
    return len(failures)


def _write_data(task: Task) -> None:
    """Write the photographs that stand for a data set, where none is given."""
    fit = next((case for case in task.cases if reads(case, task.data)), None)
    if fit is None or task.data is None or task.data.exists():
        return
    task.tell(f"writing generated photographs: {task.data}")
    generated_data(task.data.parent, fit)


def _alone(folder: Path) -> AbstractContextManager[None]:
    busy = f"{folder}: another process investigates there; wait for it, or give another --out"
    return alone(folder / "investigate.lock", busy)


def _begin(task: Task, *, resume: bool) -> None:
    """Write what is asked for, or check that one that goes on is asked for the same, of the same rfdetr."""
    path = task.folder / MANIFEST
    if not path.exists():
        if resume:
            msg = f"--resume: {task.folder} holds no investigation"
            raise ValueError(msg)
        write_model(path, task.asked)
        return
    if not resume:
        msg = f"{task.folder}: there is an investigation already; go on with it by --resume, or give another --out"
        raise ValueError(msg)
    # With more time it goes on where it had none left.
    before, now = (one.model_dump(exclude={"command", "budget"}) for one in (read_manifest(task.folder), task.asked))
    changed = [f"{name} {before[name]}, now {now[name]}" for name in now if before[name] != now[name]]
    if changed:
        msg = f"{task.folder}: this investigation was asked for {'; '.join(changed)}; give another --out"
        raise ValueError(msg)
    _check_software(task.folder)
    write_model(path, task.asked)


def _check_software(folder: Path) -> None:
    if not any(folder.rglob("*.record.json")):
        return
    finished = (record.environment for record in read_files(folder)[0].values() if record.status == "finished")
    if changed := environment.changed_since(finished):
        msg = f"--resume {folder}: it was measured with {changed}; give another --out"
        raise ValueError(msg)
