"""The store of the replay, docs/replay.jsonl: what became of each replay when it was last run, and whether that holds.

docs/replay.md is made from it alone (:mod:`perf.report.replay`), and so it can be checked where no record is.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from perf.compile_matrix import Row
from perf.record import Finite
from perf.replay import TABLE, Claim, Replay
from perf.replay_outcome import CAUGHT, NOT_RUN, ON_RECORD, Outcome, Result, on_record
from perf.replay_run import Session, work_of
from perf.stores import read_rows


class Kept(BaseModel):
    """A line of the store: what became of a replay when it was last run, and with what.

    ``spent`` has the seconds that its runs took, by release and case: other replays may share them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome
    said: list[str] = []
    wrong: list[str] = []
    torch: str | None = None
    python: str | None = None
    cpu: str | None = None
    device: str | None = None
    suite_commit: str | None = None
    spent: dict[str, Finite] = {}
    date: datetime.date | None = None


def kept(session: Session, replays: Sequence[Replay], results: Sequence[Result]) -> list[Kept]:
    """Return what to keep of results: none of replays that could not be run here."""
    pairs = zip(replays, results, strict=True)
    return [_kept(session, replay, result) for replay, result in pairs if result.outcome != NOT_RUN]


def _kept(session: Session, replay: Replay, result: Result) -> Kept:
    found = {"name": result.name, "outcome": result.outcome, "said": list(result.said), "wrong": list(result.wrong)}
    sides = {} if replay.recorded else session.records(replay)
    runs = [run for side in sides.values() for run in side]
    if not runs:
        return Kept.model_validate(found)
    machine = runs[-1].environment
    return Kept.model_validate(
        {
            **found,
            "torch": machine.torch,
            "python": machine.python,
            "cpu": f"{machine.cpu_model} x{machine.cpu_count}",
            "device": machine.device,
            "suite_commit": machine.suite_state,
            "spent": {_work(replay, side): round(sum(run.seconds or 0 for run in sides[side])) for side in sides},
            "date": max(run.started for run in runs).date(),
        }
    )


def _work(replay: Replay, side: str) -> str:
    return f"{work_of(replay).folder(side)} {replay.case}"


def read_kept(path: Path) -> list[Kept]:
    """Return the results of the store, as :func:`perf.stores.read_rows` does."""
    return read_rows(path, Kept.model_validate)


def merged(old: Iterable[Kept], new: Iterable[Kept]) -> list[Kept]:
    """Return the last of each replay's results, in the order of the table; none of what is no replay any more."""
    by_name = {one.name: one for one in (*old, *new)}
    return [by_name[replay.name] for replay in TABLE if replay.name in by_name]


def problems(rows: Sequence[Kept], matrix: Sequence[Row]) -> list[str]:
    """Return a line for each replay whose result is missing, is not as it must be, or does not show what is claimed.

    So a result that was taken before a row changed counts no more, and neither does one that was written by hand.
    Without one are only replays that need a GPU. ``matrix`` is the compile matrix's store.
    """
    by_name = {one.name: one for one in rows}
    return [
        f"{one.name}: {problem}; measure it: {one.command} --document"
        for one in TABLE
        if (problem := _problem(one, by_name.get(one.name), matrix))
    ]


def _problem(replay: Replay, found: Kept | None, matrix: Sequence[Row]) -> str:
    if found is None:
        return "" if replay.lane == "gpu" else "the store has no result"
    if replay.recorded:
        now = on_record(replay, matrix)
        same = (now.outcome, list(now.said)) == (found.outcome, found.said)
        return "" if same and now.outcome == ON_RECORD else f"the compile matrix has: {'; '.join(now.said + now.wrong)}"
    if found.outcome != CAUGHT or found.wrong:
        return f"{found.outcome}: {'; '.join(found.wrong)}"
    unshown = [claim for claim in replay.claims if not _is_shown(claim, found.said)]
    return f"the result does not show {_claimed(unshown[0])}" if unshown else ""


def _claimed(claim: Claim) -> str:
    words = [f"{claim.signal}: {claim.verdict}", *filter(None, (claim.told, claim.part, claim.where))]
    return ", ".join(words)


def _is_shown(claim: Claim, said: Sequence[str]) -> bool:
    """Return whether the lines of a result have the claimed verdict with its message, and the part with its place."""
    heads = [line.partition("; ")[2] for line in said if re.match(rf"{claim.signal}: {claim.verdict}(;|$)", line)]
    parts = [match.groups("") for line in said if (match := re.fullmatch(r"(.* -> \S+?)(?: at (\S+))?", line))]
    named = any(re.search(claim.part, name) and re.search(claim.where, line) for name, line in parts)
    return any(re.search(claim.told, head) for head in heads) and (named or not claim.part)
