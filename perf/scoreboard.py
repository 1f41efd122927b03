"""The scoreboard: which injected fault was caught, by which signal, and what other tools said of the same runs. Pure.

Verdicts and records -> rows of the committed store, one line of JSON each, and from those what must hold.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from perf.faults import BROKEN, EAGER, FAULTS, FOLDER, Fault, Size, line_of
from perf.matrix import DEFAULT_RFDETR
from perf.others import Opinion, Said
from perf.record import Finite, Record, file_digest
from perf.stores import read_rows, rows_text
from perf.verdicts import FAILING, CaseVerdict, SignalVerdict, Verdict

STORE = Path("docs/scoreboard.jsonl")
DOCUMENT = Path("docs/scoreboard.md")
# Verdicts by which a fault is caught: a fault that reads as better, or that takes the signal itself away, is not.
CATCHING: frozenset[Verdict] = frozenset({"not-compiled", "regressed"})
SESSIONS = 20


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Told(_Model):
    """What another tool said, and by how many percent it saw the time change."""

    said: Said
    percent: Finite


class Seen(_Model):
    """A signal that told of the fault: its verdict, ``listed`` for a pass that shows a change, and source lines."""

    signal: str
    verdict: Verdict | Literal["listed"]
    change: str
    where: list[str] = []


class Row(_Model):
    """One fault, measured. ``pairs`` of runs were held against each other; ``patch`` is of the file's text."""

    what: Literal["fault"] = "fault"
    kind: str
    size: Size
    case_id: str
    device: str
    torch_minor: str
    rfdetr: str
    patch: str
    pairs: int = Field(ge=1)
    verdict: Verdict
    seen: list[Seen] = []
    benchmark: Told | None = None
    traceml: Told | None = None
    suite_commit: str | None
    measured: datetime.date

    @property
    def key(self) -> tuple[str, ...]:
        """What a newer row of replaces this one."""
        return (self.what, self.fault_id, self.device)

    @property
    def fault_id(self) -> str:
        """The id of the fault that it is of."""
        return f"{self.kind}_{self.size}.{self.case_id}"


class Unfaulted(_Model):
    """Sessions of rfdetr as it is, a run each: how many there were, and how many of them did not pass.

    ``against``: what they were held against.
    """

    what: Literal["unfaulted"] = "unfaulted"
    case_id: str
    against: Literal["baseline", "first run"]
    device: str
    torch_minor: str
    rfdetr: str
    sessions: int = Field(ge=1)
    alarms: int
    listed: int
    benchmark_sessions: int
    benchmark_alarms: int
    suite_commit: str | None
    measured: datetime.date

    @property
    def key(self) -> tuple[str, ...]:
        """What a newer row of replaces this one."""
        return (self.what, self.case_id, self.against, self.device)


Line = Annotated[Row | Unfaulted, Field(discriminator="what")]
_LINE: TypeAdapter[Row | Unfaulted] = TypeAdapter(Line)


def told(opinion: Opinion | None) -> Told | None:
    """Return an opinion as the store has it."""
    return Told(said=opinion.said, percent=round(opinion.percent, 1)) if opinion else None


def digest(path: Path) -> str:
    """Return what tells one text of a patch file from another."""
    return file_digest(path)[:8]


def row_of(
    fault: Fault,
    case: CaseVerdict,
    head: Record,
    pairs: int,
    benchmark: Opinion | None,
    traceml: Opinion | None = None,
    root: Path = Path(),
) -> Row:
    """Return what came of ``fault``: its verdict, and every signal that told of it."""
    found = head.environment
    return Row(
        kind=fault.kind,
        size=fault.size,
        case_id=fault.case_id,
        device=found.device,
        torch_minor=found.torch_minor,
        rfdetr=found.rfdetr,
        patch=digest(root / fault.patch),
        pairs=pairs,
        verdict=case.verdict,
        seen=[seen(row) for row in case.signals if row.verdict in FAILING or row.listed],
        benchmark=told(benchmark),
        traceml=told(traceml),
        suite_commit=found.suite_state,
        measured=head.started.date(),
    )


def seen(row: SignalVerdict) -> Seen:
    """Return a verdict as the store has it: of the lines those in a patch, if there are such."""
    lines = list(dict.fromkeys([*row.where, *(line for part in row.parts for line in part.lines)]))
    in_patch = [line for line in lines if line.startswith(f"{FOLDER}/")]
    verdict = row.verdict if row.verdict in FAILING else "listed"
    assert verdict is not None
    return Seen(signal=row.signal, verdict=verdict, change=_change(row), where=(in_patch or lines)[:3])


def _change(row: SignalVerdict) -> str:
    if row.change is None or row.baseline is None:
        return row.message.partition("\n")[0][:120]
    if not row.change and row.parts:  # the total is the same, and its parts were replaced
        moved = [f"{part.name} {part.old:g} -> {part.new:g}" for part in row.parts[:2]]
        return "; ".join(moved) + (f"; and {len(row.parts) - 2} more" if len(row.parts) > 2 else "")
    share = f" ({100 * row.change / row.baseline:+.3g} %)" if row.baseline else ""
    return f"{row.change:+.10g}{f' {row.unit}' if row.unit else ''}{share}"


def result(row: Row, fault: Fault) -> Literal["caught", "listed", "missed"]:
    """Return what came of a fault, by the signals that have to tell of it."""
    found = [one for one in row.seen if one.signal in fault.signals]
    if any(one.verdict in CATCHING or (one.signal, one.verdict) == (BROKEN, "failed") for one in found):
        return "caught"
    return "listed" if any(one.verdict == "listed" for one in found) else "missed"


def is_caught(row: Row, fault: Fault) -> bool:
    """Return whether a signal that has to tell of the fault did, as surely as it has to."""
    enough = {"fails": {"caught"}, "listed": {"caught", "listed"}, "unseen": {"caught", "listed", "missed"}}
    return result(row, fault) in enough[fault.expected]


def line_told(row: Row, fault: Fault, root: Path = Path()) -> bool | None:
    """Return whether the faulty line was told; None where no line is asked for."""
    line = line_of(fault, root)
    return any(line in one.where for one in row.seen) if line else None


def fault_of(row: Row) -> Fault | None:
    """Return the fault that a row is of; None where there is no such any more."""
    return next((fault for fault in FAULTS if fault.id == row.fault_id), None)


def problems(rows: Iterable[Row | Unfaulted], root: Path = Path()) -> list[str]:
    """Return what is wrong with the store, a line each: a fault not caught, a line not told, an old patch."""
    found = []
    for row in rows:
        if isinstance(row, Unfaulted):
            told = f"{row.case_id}: {row.alarms} false alarms in {row.sessions} unfaulted sessions"
            found += [told] if row.alarms else []
            continue
        fault = fault_of(row)
        found += _problems(row, fault, root) if fault else [f"{row.fault_id}: no such fault any more; drop its line"]
    return found


def gaps(rows: Collection[Row | Unfaulted]) -> list[str]:
    """Return what the store lacks, a line each: faults and sessions without one, those of this rfdetr.

    Those that need a machine of a kind, a GPU or cores that nobody shares, may be lacking: of one case and way
    of judging all or none, so that one is as much as a machine's loan takes.
    """
    faults = [row for row in rows if isinstance(row, Row)]
    there = {row.fault_id for row in faults}
    begun = {(fault.case_id, fault.judging) for fault in FAULTS if fault.id in there}
    found = [
        f"{f.id}: not measured; {f.command}"
        for f in FAULTS
        if f.id not in there and (not f.needs or (f.case_id, f.judging) in begun)
    ]
    found += [
        f"{row.fault_id}: measured with rfdetr {row.rfdetr}, and the suite is at {DEFAULT_RFDETR}"
        for row in faults
        if row.rfdetr != DEFAULT_RFDETR
    ]
    unfaulted = [row for row in rows if isinstance(row, Unfaulted) and row.case_id == EAGER]
    sessions = {row.against: row.sessions for row in unfaulted if row.rfdetr == DEFAULT_RFDETR}
    found += [
        f"{EAGER}: {sessions.get(against, 0)} unfaulted sessions against its {against}, of {SESSIONS}; {_UNFAULTED}"
        for against in ("baseline", "first run")
        if sessions.get(against, 0) < SESSIONS
    ]
    return found


_UNFAULTED = f"nox -s scoreboard -- --unfaulted --sessions {SESSIONS}"


def _problems(row: Row, fault: Fault, root: Path) -> list[str]:
    again = f"; {fault.command}"
    if row.patch != digest(root / fault.patch):
        return [f"{fault.id}: {fault.patch} has changed since it was measured{again}"]
    if not is_caught(row, fault):
        wanted = " or ".join(fault.signals)
        return [
            f"{fault.id}: not caught: {wanted} {'was silent' if fault.expected == 'listed' else 'did not fail'}{again}"
        ]
    if line_told(row, fault, root) is False:
        return [f"{fault.id}: {line_of(fault, root)} was not told{again}"]
    return []


def read_store(path: Path) -> list[Row | Unfaulted]:
    """Return the rows of the store, as :func:`perf.stores.read_rows` does."""
    return read_rows(path, _LINE.validate_python, attrgetter("key"))


def merged(old: Iterable[Row | Unfaulted], new: Iterable[Row | Unfaulted]) -> list[Row | Unfaulted]:
    """Return the rows by key, the newer of each; what TraceML said of a patch stays until it is asked again."""
    rows = {row.key: row for row in old}
    for row in new:
        before = rows.get(row.key)
        if isinstance(row, Row) and isinstance(before, Row) and before.patch == row.patch and row.traceml is None:
            row = row.model_copy(update={"traceml": before.traceml})  # noqa: PLW2901
        rows[row.key] = row
    return [rows[key] for key in sorted(rows)]


def store_text(rows: Sequence[Row | Unfaulted]) -> str:
    """Return the store with these rows, one line each."""
    return rows_text(rows, "what")
