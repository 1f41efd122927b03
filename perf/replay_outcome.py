"""What became of a replay: its runs' records -> whether the suite said what it must, and in which words. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from perf.compare import BASE, compare
from perf.compile_matrix import Row
from perf.gates import plain
from perf.judge import Options, judge
from perf.probes.source import without_folders
from perf.record import Kind, Part, Record, Signal
from perf.replay import Claim, Replay
from perf.session_gates import OneSession
from perf.verdicts import EXIT_NOTHING_JUDGED, CaseVerdict, PartChange, SignalVerdict

Outcome = Literal["caught", "not caught", "other", "not run here", "on record"]
CAUGHT: Final = "caught"
MISSED: Final = "not caught"
OTHER: Final = "other"
NOT_RUN: Final = "not run here"
ON_RECORD: Final = "on record"
# What is no failure of the suite.
AS_EXPECTED: frozenset[Outcome] = frozenset({CAUGHT, NOT_RUN, ON_RECORD})
_COUNTS: frozenset[Kind] = frozenset({"count-strict", "count-volume"})
# Of a change of time: less than this share of it is not what caused it.
_MOST = 0.8
# Of a part that a run did not see: less than any that it did, so that a ratio can be taken.
_NO_TIME = 1e-9
_SAID = 3


@dataclass(frozen=True)
class Result:
    """What became of one replay: ``said`` is what the suite said, ``wrong`` what of it was not as it must be."""

    name: str
    outcome: Outcome
    said: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def judged(replay: Replay, sides: Mapping[str, Sequence[Record]]) -> CaseVerdict:
    """Return the suite's own answer on the head of ``replay``; ``sides`` has the records by release.

    Time is judged on the claimed signals alone: they were named before anything was measured, and share the error
    rate of a session among them.

    Raises:
        ValueError: runs of one side that cannot be pooled.
    """
    gate: frozenset[Kind] = frozenset({"wall"}) if replay.pairs else _COUNTS
    head = _claimed(replay, sides.get(replay.head, []))
    if replay.base is None:
        judgement = judge(head, {}, expected=[replay.case], options=Options(gate=gate))
        return judgement.cases[0]
    session = OneSession() if replay.pairs else None
    base = _claimed(replay, sides.get(replay.base, []))
    options = Options(gate=gate, one_session=session)
    return compare(base, head, options, expected=[replay.case]).cases[0]


def _claimed(replay: Replay, records: Sequence[Record]) -> list[Record]:
    if not replay.pairs:
        return list(records)
    names = {claim.signal for claim in replay.claims}
    return [one.model_copy(update={"signals": [s for s in one.signals if s.name in names]}) for one in records]


def result(replay: Replay, sides: Mapping[str, Sequence[Record]]) -> Result:
    """Return whether the suite says of ``replay`` what it must.

    A claimed verdict that is missing is *not caught*, and so is whatever runs of another release say; the right verdict
    for another reason, or another verdict on the case as a whole, is *other*.
    """
    if strangers := _strangers(sides):
        return Result(replay.name, MISSED, wrong=strangers)
    found = judged(replay, sides)
    said, missed, other = list[str](), list[str](), list[str]()
    for claim in replay.claims:
        row = next((row for row in found.signals if row.signal == claim.signal), None)
        if row is None or row.verdict != claim.verdict:
            missed.append(f"{claim.signal}: {_verdict_of(row)}, must be {claim.verdict}")
            continue
        said += [_told(row), *_each_part(claim, replay, sides)]
        told, wrong = _attributed(claim, row, replay, sides)
        said += told
        other += wrong
    if unclaimed := _unclaimed_base(replay, found):
        other.append(unclaimed)
    if found.verdict != replay.verdict:
        other.append(f"the case: {found.verdict}, must be {replay.verdict}")
    outcome: Outcome = MISSED if missed else OTHER if other else CAUGHT
    return Result(replay.name, outcome, tuple(said), (*missed, *other))


def _strangers(sides: Mapping[str, Sequence[Record]]) -> tuple[str, ...]:
    """Return what is wrong with sides whose runs measured another release than that side's, or with several torches."""
    found = {side: {record.environment.rfdetr for record in records} - {side} for side, records in sides.items()}
    told = [f"{side}: its runs measured rfdetr {', '.join(sorted(others))}" for side, others in found.items() if others]
    # A base that failed is held against nothing, and so no judge would see it.
    torches = sorted({record.environment.torch for records in sides.values() for record in records})
    return (*told, *([f"its runs had torch {' and '.join(torches)}"] if len(torches) > 1 else []))


def _unclaimed_base(replay: Replay, found: CaseVerdict) -> str:
    """Return what is wrong with the base, unless that is claimed: else the head alone would make the verdict."""
    row = next((row for row in found.signals if row.signal == BASE), None)
    claimed = any(claim.signal == BASE for claim in replay.claims)
    return "" if row is None or claimed else f"{BASE}: {row.message}"


def _verdict_of(row: SignalVerdict | None) -> str:
    return "no such signal" if row is None else f"{row.verdict or 'not judged'}"


def _told(row: SignalVerdict) -> str:
    head = without_folders(row.message.partition("\n")[0])
    return f"{row.signal}: {row.verdict}" + (f"; {head}" if head else "")


def _attributed(
    claim: Claim, row: SignalVerdict, replay: Replay, sides: Mapping[str, Sequence[Record]]
) -> tuple[list[str], list[str]]:
    """Return what attributes the claim's change in the words of the suite, and what of it is not as it must be."""
    wrong = []
    if claim.told and not re.search(claim.told, row.message):
        wrong.append(f"{claim.signal}: its message has no {claim.told!r}")
    if not claim.part:
        return [], wrong
    told = {_part_told(part): part.lines for part in _moves(claim, row, replay, sides)}
    named = [f"{part}{_at(claim, lines)}" for part, lines in told.items() if _is_named(claim, part, lines)]
    if not named:
        place = f" at {claim.where!r}" if claim.where else ""
        wrong.append(f"{claim.signal}: no part {claim.part!r}{place} moved that way")
    return named[:_SAID], wrong


def _is_named(claim: Claim, part: str, lines: Sequence[str]) -> bool:
    return bool(re.search(claim.part, part)) and (not claim.where or any(re.search(claim.where, at) for at in lines))


def _at(claim: Claim, lines: Sequence[str]) -> str:
    line = next((line for line in lines if re.search(claim.where, line)), "")
    return f" at {line}" if line else ""


def _part_told(part: PartChange) -> str:
    """Return what a claim's ``part`` is searched in."""
    name = without_folders(" ".join(part.name.split()))
    return f"{name} {plain(float(f'{part.old:.4g}'))} -> {plain(float(f'{part.new:.4g}'))}"


def _moves(
    claim: Claim, row: SignalVerdict, replay: Replay, sides: Mapping[str, Sequence[Record]]
) -> Iterator[PartChange]:
    """Yield the parts that moved as claimed, for a pass either way; of a time the one with most of the change."""
    by = claim.by or claim.signal
    if replay.pairs:
        yield from _of_time(_pairs(by, _sides_of(replay, sides)))
        return
    up, either = claim.verdict != "improved", claim.verdict == "pass"
    # A run that failed, or a signal of another name, has no change: what is there is what attributes it.
    parts = row.parts if by == claim.signal else [_as_change(part) for part in _parts(sides.get(replay.head, []), by)]
    yield from (part for part in parts if either or (part.new > part.old) == up)


def _as_change(part: Part) -> PartChange:
    return PartChange(name=part.name, old=0, new=part.value, where=part.where)


def _parts(records: Sequence[Record], name: str) -> list[Part]:
    return [part for record in records[:1] if (signal := record.signal(name)) for part in signal.parts]


def _sides_of(replay: Replay, sides: Mapping[str, Sequence[Record]]) -> list[Sequence[Record]]:
    return [sides.get(side, []) for side in replay.sides]


def _pairs(name: str, sides: Sequence[Sequence[Record]]) -> list[tuple[Signal, Signal]]:
    base, head = ({one.run: signal for one in side if (signal := one.signal(name))} for side in sides)
    return [(base[run], head[run]) for run in sorted(set(base) & set(head))]


def _ratios(pairs: Sequence[tuple[Signal, Signal]]) -> dict[str, float]:
    """Return how many times the base's each part is, the median over pairs.

    The host's speed changes from pair to pair, and with it every part: so pairs are compared, and not medians.
    """
    names = dict.fromkeys(part.name for pair in pairs for signal in pair for part in signal.parts)
    return {part: statistics.median(_of(part, after) / _of(part, before) for before, after in pairs) for part in names}


def _of_time(pairs: Sequence[tuple[Signal, Signal]]) -> Iterator[PartChange]:
    """Yield the part that carries most of a change of time: how many times the base's it is."""
    if not pairs:
        return
    ratios = _ratios(pairs)
    # What each part adds to the whole, or takes from it, as a share of the base.
    added = {part: _share(part, [before for before, _ in pairs]) * (ratios[part] - 1) for part in ratios}
    up = statistics.median(after.value / before.value for before, after in pairs) > 1
    moved = sum(abs(change) for change in added.values() if (change > 0) == up)
    for part, change in added.items():
        if (change > 0) == up and abs(change) >= _MOST * moved:
            yield PartChange(name=f"{part}, times the base's", old=1, new=ratios[part])


def _of(part: str, signal: Signal) -> float:
    return sum(one.value for one in signal.parts if one.name == part) or _NO_TIME


def _each_part(claim: Claim, replay: Replay, sides: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return what each part of a time is, so that it is seen which did not change."""
    ratios = _ratios(_pairs(claim.signal, _sides_of(replay, sides))) if replay.pairs else {}
    parts = ", ".join(f"{part} {plain(float(f'{ratio:.3g}'))}" for part, ratio in ratios.items())
    return [f"{claim.signal}, times the base's: {parts}"] if parts else []


def _share(part: str, signals: Sequence[Signal]) -> float:
    return statistics.median(_of(part, signal) / signal.value for signal in signals)


def on_record(replay: Replay, rows: Sequence[Row]) -> Result:
    """Return whether the store of the compile matrix has what ``replay`` claims: nothing is run.

    ``replay.minor`` is the torch minor; a claim's signal is ``outcome`` there, its verdict what became of the case.
    """
    found = [row for row in rows if (row.case_id, row.rfdetr, row.torch_minor) == _key(replay)]
    if not found:
        return Result(replay.name, MISSED, wrong=(f"docs/compile-matrix.jsonl has no row {', '.join(_key(replay))}",))
    [row], [claim] = found, replay.claims
    said = (f"torch {row.torch}: {row.outcome}; {row.why} (measured {row.measured:%Y-%m-%d})",)
    wrong = [f"outcome: {row.outcome}, must be {claim.verdict}"] if row.outcome != claim.verdict else []
    other = [] if re.search(claim.told, row.why) else [f"outcome: its reason has no {claim.told!r}"]
    outcome: Outcome = MISSED if wrong else OTHER if other else ON_RECORD
    return Result(replay.name, outcome, said, (*wrong, *other))


def _key(replay: Replay) -> tuple[str, str, str]:
    return replay.case, replay.head, replay.minor


def exit_code(results: Sequence[Result]) -> int:
    """Return 0 if all that could be run here is as expected, else 1; 3 if nothing could: that is no success."""
    if all(one.outcome == NOT_RUN for one in results):
        return EXIT_NOTHING_JUDGED
    return int(any(one.outcome not in AS_EXPECTED for one in results))
