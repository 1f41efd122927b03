"""The judge's answer: verdicts, their order and their exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

from perf.record import Direction, Kind

# Worst first: what is broken, then what changed, then what cannot be told.
Verdict = Literal[
    "failed", "not-compiled", "regressed", "improved", "incompatible", "inconclusive", "no-baseline", "pass"
]
SEVERITY: tuple[Verdict, ...] = get_args(Verdict)
# Those that stop a change, and that somebody has to do something about; that a count fell is one.
FAILING: tuple[Verdict, ...] = ("failed", "not-compiled", "regressed", "improved")

EXIT_CODES: dict[Verdict, int] = {
    "pass": 0,
    "failed": 1,
    "not-compiled": 1,
    "regressed": 1,
    "inconclusive": 3,
    "no-baseline": 3,
    "incompatible": 3,
    "improved": 4,
}
EXIT_BAD_INPUT = 2
# As a shell has it for a process that SIGINT ended.
EXIT_INTERRUPTED = 130
# What stands for the signal where the answer is about the case as a whole.
WHOLE_CASE = "(all)"
EXIT_NOTHING_JUDGED = 3


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartChange(_Answer):
    """One part of a signal that changed, in the signal's unit.

    ``where`` holds its source lines, first ``changed_lines``: those that only the side with more of it has.
    """

    name: str
    old: float
    new: float
    where: list[str] = []
    changed_lines: list[str] = []

    @property
    def lines(self) -> list[str]:
        """The lines to look at: those that changed, or all where that is not known."""
        return self.changed_lines or self.where


class SignalVerdict(_Answer):
    """The answer for one signal of one case.

    ``verdict=None`` means shown and not gated. ``baseline``, ``now`` and ``change`` (now minus baseline) are in
    ``unit``; ``interval`` is that of the ratio now / baseline. ``where`` holds the lines of the part that carries
    most of the change, if one does. ``listed`` marks a pass whose change must be seen.
    """

    case_id: str
    signal: str
    kind: Kind
    verdict: Verdict | None
    unit: str = ""
    direction: Direction = "lower"
    baseline: float | None = None
    now: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    parts: list[PartChange] = []
    where: list[str] = []
    message: str = ""
    listed: bool = False
    reproduce: str = ""
    refresh: str = ""


class CaseVerdict(_Answer):
    """The answer for one case: the worst of its gated signals. ``runs`` counts the finished ones."""

    case_id: str
    verdict: Verdict
    runs: int
    device: str
    torch_minor: str
    signals: list[SignalVerdict]


class Judgement(_Answer):
    """The answer for a session. ``exit_code`` follows from the worst case, ``summary`` is one sentence."""

    cases: list[CaseVerdict]
    exit_code: int
    summary: str


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """Return the worst of ``verdicts``; None where nothing was gated."""
    gated = [verdict for verdict in verdicts if verdict is not None]
    return min(gated, key=SEVERITY.index, default=None)


def exit_code(verdict: Verdict | None) -> int:
    """Return the exit code of a session whose worst verdict this is; nothing judged is never a success."""
    return EXIT_NOTHING_JUDGED if verdict is None else EXIT_CODES[verdict]


PREDICATES: dict[Verdict, str] = {
    "failed": "failed",
    "not-compiled": "not compiled",
    "regressed": "regressed",
    "improved": "improved",
    "incompatible": "incompatible with the baseline",
    "inconclusive": "inconclusive",
    "no-baseline": "without a baseline",
    "pass": "pass",
}


class Leading(NamedTuple):
    """The part that moved most, by how much, and whether that is most of the signal's change."""

    part: PartChange
    change: float
    most: bool


def leading_part(parts: Sequence[PartChange], change: float | None, *, rising: bool) -> Leading | None:
    """Return the part that moved most in the direction of the signal's ``change``; None where no part did.

    ``rising`` is the direction where ``change`` is 0 or None. "Most" is more than half of all movement that way:
    of a net change of +1 made of +5, +5 and -9 neither rise is the cause.
    """
    sign = (1 if change > 0 else -1) if change else (1 if rising else -1)
    moves = [sign * (part.new - part.old) for part in parts]
    if max(moves, default=0) <= 0:
        return None
    index = moves.index(max(moves))
    whole = max(abs(change or 0), sum(move for move in moves if move > 0))
    return Leading(parts[index], sign * moves[index], 2 * moves[index] > whole)


def summarize(cases: Sequence[CaseVerdict]) -> str:
    """Return one sentence: how many cases have the worst verdict, where, and its first reason."""
    verdict = worst(case.verdict for case in cases)
    if verdict is None:
        return "nothing was judged: there is no case"
    hits = [case for case in cases if case.verdict == verdict]
    places = " and ".join(sorted({f"{case.device}, torch {case.torch_minor}" for case in hits}))
    cases_word = "case" if len(cases) == 1 else "cases"
    sentence = f"{len(hits)} of {len(cases)} {cases_word} {PREDICATES[verdict]} on {places}"
    if verdict == "pass":
        listed = [row for case in cases for row in case.signals if row.listed]
        # No kind that is gated: not a change, but a failure that was expected.
        expected = [row for row in listed if row.kind == "info"]
        notes = [f"failures as expected: {len(expected)}, listed"] if expected else []
        changes = len(listed) - len(expected)
        notes += [f"changes inside the gate: {changes}, listed"] if changes else []
        return "; ".join([sentence, *notes])
    return f"{sentence}: {hits[0].case_id}, {reason(hits[0])}"


def reason(case: CaseVerdict) -> str:
    """Return the first reason of a case's verdict, in a few words, and how many more signals have it."""
    rows = [row for row in case.signals if row.verdict == case.verdict]
    # The literal's order is the order of trust: a strict count says most surely what happened.
    row = min(rows, key=lambda row: get_args(Kind).index(row.kind))
    others = len(rows) - 1
    more = f" (and {others} more signal{'' if others == 1 else 's'})" if others else ""
    if row.verdict not in ("regressed", "improved") or not row.change:
        subject = "" if row.signal == WHOLE_CASE else f"{row.signal}: "
        return f"{subject}{_first_line(row.message)}{more}"
    return f"{_change_in_words(row, row.change)}{_place(row)}{more}"


def _place(row: SignalVerdict) -> str:
    """Return the line of a change that is mostly one part's; else what the largest part is and its share."""
    if row.where:
        others = len(row.where) - 1
        return f" at {row.where[0]}" + (f" and {others} more line{'' if others == 1 else 's'}" if others else "")
    leading = leading_part(row.parts, row.change, rising=True)
    if leading is None:
        return ""
    share = "most" if leading.most else "the largest part"
    return f", {share} in {' '.join(leading.part.name.split())} ({leading.change:+.10g})"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _change_in_words(row: SignalVerdict, change: float) -> str:
    noun = row.signal.replace("_", " ")
    if row.kind.startswith("count") or not row.baseline:
        return f"{change:+.10g} {noun.removesuffix('s') if abs(change) == 1 else noun}"
    return f"{noun} {change / row.baseline:+.1%}"
