"""Replays as text: the table that a session ends with, and docs/replay.md, made from the store of results alone."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from perf.record import Finite, Record, explain, parse_json, write_atomically
from perf.replay import TABLE, Replay, chosen
from perf.replay_outcome import NOT_RUN, Outcome, Result
from perf.replay_run import Session, work_of
from perf.report.humanize import printable
from perf.report.markdown import code, table


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
            "suite_commit": machine.suite_commit and machine.suite_commit[:9],
            "spent": {_work(replay, side): round(sum(map(_seconds, sides[side]))) for side in sides},
            "date": max(run.started for run in runs).date(),
        }
    )


def _work(replay: Replay, side: str) -> str:
    return f"{work_of(replay).folder(side)} {replay.case}"


def _seconds(run: Record) -> float:
    return (run.finished - run.started).total_seconds() if run.finished else 0.0


def read_kept(path: Path) -> list[Kept]:
    """Return the results of the store; none where there is no such file.

    Raises:
        ValueError: a line is malformed; names the file and the line.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], start=1):
        try:
            found.append(Kept.model_validate(parse_json(line)))
        except ValueError as error:
            raise ValueError(explain(Path(f"{path}:{number}"), error)) from error
    return found


def regenerate(store: Path, document: Path, new: Sequence[Kept] = (), check: bool = False) -> tuple[int, str]:
    """Take ``new`` results into the store, drop those of no replay, and make the document; return code and words.

    With ``check`` nothing is written, and the code is 1 where a file would change.

    Raises:
        ValueError: as :func:`read_kept`.
    """
    by_name = {one.name: one for one in (*read_kept(store), *new)}
    rows = [by_name[replay.name] for replay in TABLE if replay.name in by_name]
    lines = [json.dumps(one.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False) for one in rows]
    files = {store: "".join(f"{line}\n" for line in lines), document: _document(rows)}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check:
        told = [f"{path}: not what the store gives; make it anew: rfdetr-perf replay --again ...\n" for path in stale]
        return int(bool(stale)), "".join(told)
    for path in stale:
        write_atomically(path, files[path])
    return 0, "".join(f"{path}: {'written' if path in stale else 'nothing changes'}\n" for path in files)


def listing(replays: Sequence[Replay]) -> str:
    """Return a line for each replay: its name, releases, case and runs."""
    return "".join(f"{one.name:28} {one.pair:18} {one.case}{_runs(one)}\n" for one in replays)


def _runs(one: Replay) -> str:
    return f", {one.pairs} pairs" if one.pairs else ""


def text(replays: Sequence[Replay], results: Sequence[Result]) -> str:
    """Return what a session ends with: each replay's outcome, what the suite said, and what was not as it must be."""
    lines = []
    for replay, result in zip(replays, results, strict=True):
        lines.append(f"{result.outcome:13} {replay.name}  {replay.pair}, {replay.case}")
        lines += [f"                {printable(line)}" for line in result.said]
        lines += [f"              ! {printable(line)}" for line in result.wrong]
    ordered = sorted(result.outcome for result in results)
    counts = ", ".join(f"{len(list(group))} {outcome}" for outcome, group in groupby(ordered))
    noun = "replay" if len(results) == 1 else "replays"
    return "".join(f"{line}\n" for line in [*lines, f"{len(results)} {noun}: {counts}"])


_INTRO = """\
# The replay

Regressions and repairs that RF-DETR's releases really had, measured again by this suite: releases are installed side by
side over one torch, their cases run in fresh processes, and the suite's own judge has to say of each what stands here.

    nox -s replay                          # all that this machine can run
    nox -s replay -- --select ci           # ten minutes of it
    nox -s replay -- -k bmp --resume SESSION
    nox -s replay -- --document            # this page and its store, docs/replay.jsonl, from the results
    rfdetr-perf replay --again SESSION     # judge the records again; runs nothing

*caught*: every claimed signal has its verdict and its attribution (part, source line, message), and so has the case.
*not caught*: a verdict is missing. *other*: the right verdict for another reason. Either makes exit code 1. *not run
here*: it needs a GPU; its claims were read in the sources, and no run has shown them. *on record*: nothing was run; the
compile matrix ([compile-matrix.md](compile-matrix.md)) has it.

Counts are judged from one run a release, time from pairs of runs, releases in turn, on the named signal alone. Each
release and case is run once for all replays that need it. The table is `perf/replay_table.py`; do not edit this page.
"""


def _document(rows: Sequence[Kept]) -> str:
    by_name = {one.name: one for one in rows}
    lines = [_line(replay, by_name.get(replay.name)) for replay in TABLE]
    head = ["replay", "releases", "case", "must be", "outcome", "selection"]
    parts = [_INTRO, _cost(rows), table(head, lines), *(_section(one, by_name.get(one.name)) for one in TABLE)]
    return "\n".join(parts)


def _cost(rows: Sequence[Kept]) -> str:
    """Return on what the results were measured, and what the runs of the selections took."""
    machines = sorted({f"{one.cpu}, torch {one.torch}, Python {one.python}" for one in rows if one.cpu})
    told = [f"Measured on {machine}." for machine in machines] or ["Nothing has been measured yet."]
    by_name = {one.name: one for one in rows}
    for select in ("ci", "cpu"):
        spent: dict[str, float] = {}
        for one in (by_name[replay.name] for replay in chosen(select) if replay.name in by_name):
            # A run that several replays share is run once; one that is timed takes more of the same runs.
            spent.update({work: max(seconds, spent.get(work, 0)) for work, seconds in one.spent.items()})
        if spent:
            told.append(f"The runs of `--select {select}` took {sum(spent.values()) / 60:.1f} minutes there.")
    return " ".join(told) + "\n"


def _line(replay: Replay, found: Kept | None) -> list[str]:
    outcome = found.outcome if found else NOT_RUN if replay.lane == "gpu" else "not measured yet"
    must = "; ".join(f"{claim.signal} {claim.verdict}" for claim in replay.claims)
    return [replay.name, replay.pair, code(replay.case), must, outcome, "ci" if replay.ci else replay.lane]


def _section(replay: Replay, found: Kept | None) -> str:
    patched = f" Both sides import {code(replay.patch)}." if replay.patch else ""
    lines = [f"## {replay.name}\n", f"{replay.pair}: {replay.what}.\n", f"Read in: {replay.source}.{patched}\n"]
    if found is None:
        lines.append(f"Not measured. Command: {code(replay.command)}\n")
        return "\n".join(lines)
    when = f" on {found.date}, {sum(found.spent.values()):.0f} s of runs" if found.date else ""
    lines.append(f"**{found.outcome}**{when}. Command: {code(replay.command)}\n")
    lines += [f"- {code(line)}" for line in found.said]
    lines += [f"- not as it must be: {code(line)}" for line in found.wrong]
    return "\n".join(lines) + "\n"
