"""Replays as text: the table that a session ends with, and docs/replay.md, made from the store of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from perf.compile_matrix import read_store
from perf.replay import TABLE, Replay, chosen
from perf.replay_outcome import NOT_RUN, Result
from perf.replay_store import Kept, merged, problems, read_kept
from perf.report.humanize import printable
from perf.report.markdown import code, table
from perf.stores import renew, rows_text


def regenerate(store: Path, document: Path, new: Sequence[Kept] = (), check: bool = False) -> tuple[int, str]:
    """Take ``new`` results into the store, drop those of no replay, and make the document; return code and words.

    With ``check`` nothing is written, and the code is 1 where a file would change.

    Raises:
        ValueError: as :func:`read_kept`.
    """
    rows = merged(read_kept(store), new)
    files = {store: rows_text(rows), document: _document(rows)}
    return renew(files, "rfdetr-perf replay --regenerate", check=check)


def check(store: Path, document: Path, matrix: Path) -> tuple[int, str]:
    """Return 1 and why, where a result of the store is not as it must be or the document is not what it gives.

    Raises:
        ValueError: as :func:`read_kept`, of the store or of the compile matrix's, ``matrix``.
    """
    rows = read_kept(store)
    found = problems(rows, read_store(matrix))
    _, stale = regenerate(store, document, check=True)
    told = "".join(f"{line}\n" for line in found) + stale
    return (1, told) if told else (0, f"{len(rows)} replays as they must be\n")


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
    rfdetr-perf replay --check             # exit 1 unless the store shows each caught; --regenerate makes this page

*caught*: every claimed signal has its verdict and its attribution (part, source line, message), and so has the case.
*not caught*: a verdict is missing. *other*: the right verdict for another reason. Either makes exit code 1. *not run
here*: it needs a GPU; its claims were read in the sources, and no run has shown them; exit code 3 if that is so of all
that was asked for. *on record*: nothing was run; the compile matrix ([compile-matrix.md](compile-matrix.md)) has it.

Counts are judged from one run a release, time from pairs of runs, releases in turn, on the named signal alone. Each
release and case is run once for all replays that need it. The rows are in `perf/replay_table.py` and
`perf/replay_compiling.py`; do not edit this page.
"""


def _document(rows: Sequence[Kept]) -> str:
    by_name = {one.name: one for one in rows}
    lines = [_line(replay, by_name.get(replay.name)) for replay in TABLE]
    head = ["replay", "releases", "case", "must be", "outcome", "selection"]
    parts = [_INTRO, _cost(rows), table(head, lines), *(_section(one, by_name.get(one.name)) for one in TABLE)]
    return "\n".join(parts)


def _cost(rows: Sequence[Kept]) -> str:
    """Return on what the results were measured, and what the runs of a selection took where all of it was."""
    by_machine: dict[str, list[Kept]] = {}
    for one in rows:
        if one.cpu:
            place = one.cpu if one.device == "cpu" else f"{one.device} beside {one.cpu}"
            by_machine.setdefault(f"{place}, torch {one.torch}, Python {one.python}", []).append(one)
    told = [f"Measured on {machine}. {_spent(by_machine[machine])}".rstrip() for machine in sorted(by_machine)]
    return " ".join(told or ["Nothing has been measured yet."]) + "\n"


def _spent(rows: Sequence[Kept]) -> str:
    by_name, told = {one.name: one for one in rows}, []
    for select in ("ci", "cpu", "gpu"):
        names = [replay.name for replay in chosen(select) if not replay.recorded]
        if not set(names) <= set(by_name):
            continue
        spent: dict[str, float] = {}
        for one in (by_name[name] for name in names):
            # A run that several replays share is run once; one that is timed takes more of the same runs.
            spent.update({work: max(seconds, spent.get(work, 0)) for work, seconds in one.spent.items()})
        told.append(f"The runs of `--select {select}` took {sum(spent.values()) / 60:.1f} minutes there.")
    return " ".join(told)


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
