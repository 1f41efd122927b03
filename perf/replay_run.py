"""Running replays: each release's cases in fresh processes, each (release, case) once for all replays that need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from perf.ab_runs import is_fresh
from perf.case import find_case
from perf.compile_matrix import STORE, read_store
from perf.launch import RunFailed, left_crash, run_beside, run_in_fresh_process
from perf.record import Record, read_any
from perf.replay import Replay, releases
from perf.replay_outcome import CAUGHT, NOT_RUN, OTHER, Result, on_record, result
from perf.run_order import Order
from perf.session import lacking

ROOT = Path(__file__).resolve().parent.parent


class Work(NamedTuple):
    """What a release measures: a case, with a patch file or without."""

    case: str
    patch: str

    def folder(self, release: str) -> str:
        """Return the name of the folder of its records in the session."""
        return f"{release}+{Path(self.patch).stem}" if self.patch else release


@dataclass(frozen=True)
class Session:
    """One session of replays: ``pythons`` are interpreters by the release that each has installed."""

    name: str
    folder: Path
    pythons: Mapping[str, Path]
    tell: Callable[[str], None]
    timeout: float = 1800.0

    def order(self, work: Work, release: str, run: int) -> Order:
        """Return the order of one run."""
        side = work.folder(release)
        return Order(
            case=find_case(work.case),
            session=f"{self.name}/{side}",
            run=run,
            folder=self.folder / side,
            patch=ROOT / work.patch if work.patch else None,
            python=self.pythons.get(release),  # check_pythons has seen that there is one where it will run
        )

    def orders(self, replay: Replay, release: str) -> list[Order]:
        """Return the orders of all runs of one side of ``replay``."""
        return [self.order(work_of(replay), release, run) for run in range(replay.runs)]

    def records(self, replay: Replay) -> dict[str, list[Record]]:
        """Return what there is of both sides of ``replay``, by release."""
        work, found = work_of(replay), {}
        for side in replay.sides:
            runs = read_any(self.folder / work.folder(side) / work.case)
            found[side] = [one for one in runs if one.run < replay.runs]
        return found


def work_of(replay: Replay) -> Work:
    """Return what the sides of ``replay`` measure."""
    return Work(replay.case, replay.patch)


def check_pythons(replays: Sequence[Replay], pythons: Mapping[str, Path]) -> None:
    """Check that every release that is needed has an interpreter.

    Raises:
        ValueError: one has none, or there is no such file; says which.
    """
    here = [one for one in replays if not lacks(one)]
    if absent := [release for release in releases(here) if release not in pythons]:
        msg = f"no interpreter for rfdetr {', '.join(absent)}: nox -s replay makes them, or give --python RELEASE=FILE"
        raise ValueError(msg)
    if gone := [f"{release}={path}" for release, path in pythons.items() if not path.is_file()]:
        msg = f"--python {gone[0]}: no such file"
        raise ValueError(msg)


def lacks(replay: Replay) -> str:
    """Return what ``replay`` needs and this machine lacks; empty if nothing."""
    return "" if replay.recorded else lacking(find_case(replay.case))


def missing(session: Session, replay: Replay) -> str:
    """Return which runs of ``replay`` the session lacks, since it ended before or never asked; empty if none.

    Empty too where it asked for none of them, since this machine lacks what they need.
    """
    return "" if replay.recorded or _out_of_reach(session, replay) else _absent(session, replay)


def _out_of_reach(session: Session, replay: Replay) -> str:
    """Return what this machine lacks to measure ``replay``; empty where it was begun, on whatever machine."""
    work = work_of(replay)
    begun = any((session.folder / work.folder(side) / work.case).is_dir() for side in replay.sides)
    return "" if begun else lacks(replay)


def _absent(session: Session, replay: Replay) -> str:
    ran = {side: sum(not is_fresh(order) for order in session.orders(replay, side)) for side in replay.sides}
    return ", ".join(f"{count} of {replay.runs} runs of {side}" for side, count in ran.items() if count < replay.runs)


def replay_all(session: Session, replays: Sequence[Replay]) -> list[Result]:
    """Measure what ``replays`` need, unless it was measured before, and return what became of each, in their order.

    Raises:
        ValueError: records of the session cannot be used; names the file.
    """
    here = [one for one in replays if not lacks(one) and not one.recorded]
    wanted = list(orders(session, here))
    for case_id in dict.fromkeys(order.case.id for order in wanted if order.case.lane == "gpu"):
        _measure_beside(session, [order for order in wanted if order.case.id == case_id and order.case.takes_turns])
    for order in wanted:
        _measure(session, order)
    return outcomes(session, replays)


def orders(session: Session, replays: Sequence[Replay]) -> Iterator[Order]:
    """Yield the orders of all runs: case by case, releases in turn, back and forth, so that drift cancels out."""
    needed: dict[Work, dict[str, int]] = {}
    for replay in replays:
        runs = needed.setdefault(work_of(replay), {})
        for side in replay.sides:
            runs[side] = max(replay.runs, runs.get(side, 0))
    for work, runs in needed.items():
        for run in range(max(runs.values())):
            sides = [side for side in runs if run < runs[side]]
            yield from (session.order(work, side, run) for side in (sides if run % 2 == 0 else reversed(sides)))


def _measure_beside(session: Session, wanted: Sequence[Order]) -> None:
    """Measure runs of one case beside each other: they compile for minutes, and take turns to measure."""
    fresh = [order for order in wanted if is_fresh(order)]
    lock = session.folder / "turn.lock"
    run_beside(fresh, lock, session.tell, session.timeout, lambda order: f"{order.folder.name}: ")


def _measure(session: Session, order: Order) -> None:
    """Measure one run unless it was; that it fails may be what the replay is about."""
    what = f"{order.folder.name}: {order.case.id} run {order.run}"
    if crash := left_crash(order):
        session.tell(f"{what} crashed before: {crash}; a new session measures it again")
        return
    if not is_fresh(order):
        session.tell(f"{what}: measured already")
        return
    started = time.monotonic()
    try:
        run_in_fresh_process(order, lambda line: session.tell(f"{order.folder.name}: {line}"), session.timeout)
    except RunFailed as failure:
        session.tell(f"{what} failed: {str(failure).partition(chr(10))[0]}")
    session.tell(f"{what}: {time.monotonic() - started:.0f} s")


def outcomes(session: Session, replays: Sequence[Replay]) -> list[Result]:
    """Return what became of each of ``replays``, by the session's records and the store; measures nothing.

    Raises:
        ValueError: as :func:`replay_all`.
    """
    rows = read_store(ROOT / STORE) if any(one.recorded for one in replays) else []
    found = []
    for replay in replays:
        if replay.recorded:
            found.append(on_record(replay, rows))
        elif (why := lacks(replay)) and (absent := _absent(session, replay)):
            told = why if _out_of_reach(session, replay) else f"{absent} are there, and the rest {why}"
            found.append(Result(replay.name, NOT_RUN, (told,)))
        else:
            found.append(_with_crashes(session, replay, result(replay, session.records(replay))))
    return found


def _with_crashes(session: Session, replay: Replay, found: Result) -> Result:
    """Return the result with the runs that left no record: no judge sees those, and whatever it says is not of all."""
    runs = (order for side in replay.sides for order in session.orders(replay, side))
    told = [f"{order.folder.name}, run {order.run}: {crash}" for order in runs if (crash := left_crash(order))]
    outcome = OTHER if told and found.outcome == CAUGHT else found.outcome
    return replace(found, outcome=outcome, wrong=(*told, *found.wrong))
