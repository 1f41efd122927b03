"""Refreshing: finished records -> a new baseline, keeping every value that was ever approved. Pure: no file."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from perf.baselines import STORED, Approval, Approved, Baseline, BaselineSignal, RetiredSignal
from perf.judge import Options, judge_case
from perf.pool import by_case, by_signal, host, made_with, pooled, reject_repeated_seeds, run_name
from perf.record import TIMED, Part, Record, Signal, is_patched
from perf.stats import RatioInterval, pooled_interval, ratio_interval

# Verdicts that leave the approved values as they are.
INSIDE_THE_GATE = ("pass", "inconclusive", None)


class Change(NamedTuple):
    """One line of what a refresh does. Values in ``unit``; None: not there. ``first`` was approved first of all.

    ``interval`` is that of the ratio new / old.
    """

    signal: str
    unit: str
    old: float | None
    new: float | None
    first: float | None
    interval: RatioInterval | None = None


class Refresh(NamedTuple):
    """The new baseline, which is the old one where nothing changes, and what changes."""

    baseline: Baseline
    changes: list[Change]


class Request(NamedTuple):
    """Who asks for a refresh, why, and what they insist on."""

    by: str
    reason: str
    date: datetime.date
    allow_dirty: bool = False
    allow_fewer_runs: bool = False


def refresh(records: Sequence[Record], old: Baseline | None, request: Request) -> Refresh:
    """Return the baseline that these runs of one case make of ``old``.

    Signals inside the gate keep their approved values; those outside it, new ones and those that cannot be compared
    get the runs' values, and those that no run has any more are retired. All earlier values stay in the history.

    Raises:
        ValueError: the runs may not become a baseline; names the run or the signal and what to do.
    """
    _check_runs(records, request)
    _check_number(records, old, request)
    signals = _storable(records)
    keep = _inside(records, old)
    index = len(old.approvals) if old else 0
    kept = [signal for signal in old.signals if signal.name in keep] if old else []
    new = [_approve(runs, old, index) for name, runs in signals.items() if name not in keep]
    gone = _retire(old, {*signals, *keep}, index)
    if old and not new and not gone:
        return Refresh(old, [])
    order = [*signals, *keep]
    named = sorted([*kept, *new], key=lambda signal: order.index(signal.name))
    return Refresh(_assemble(records, old, named, gone, request), _changes(old, new, gone))


def unapproved(records: Sequence[Record]) -> Baseline:
    """Return finished runs of one case in the form of a baseline, to hold other runs against them. Nobody approves it.

    Raises:
        ValueError: the runs cannot be pooled.
    """
    request = Request(by="nobody", reason="the base of a comparison", date=records[0].started.date())
    everywhere = [runs for runs in by_signal(records).values() if len(runs) == len(records)]
    return _assemble(records, None, [_approve(runs, None, 0) for runs in everywhere], [], request)


def _check_runs(records: Sequence[Record], request: Request) -> None:
    if not request.reason.strip():
        msg = "a refresh needs a reason: say why the values may change (--reason)"
        raise ValueError(msg)
    cases = list(by_case(records))
    if len(cases) != 1:
        msg = f"a refresh takes the runs of one case, not of {', '.join(cases) or 'none'}"
        raise ValueError(msg)
    reject_repeated_seeds(records)
    refused = [why for record in records if (why := refusal(record, request))]
    if refused:
        raise ValueError("\n".join(refused))


def refusal(record: Record, request: Request) -> str:
    """Return why this run may not become a baseline, whatever the others are; empty where it may."""
    if record.status != "finished":
        return f"{run_name(record)} is {record.status}, not finished: measure it again, or remove its record"
    return "" if request.allow_dirty else _unnamed_source(record)


def _unnamed_source(record: Record) -> str:
    environment = record.environment
    if is_patched(record):
        return (
            f"{run_name(record)}: {environment.rfdetr_source}: what a patch does is in no release and no commit; "
            "install it and measure again, or pass --allow-dirty"
        )
    if environment.rfdetr_dirty or environment.suite_dirty:
        what = "rfdetr" if environment.rfdetr_dirty else "rfdetr-perf"
        return f"{run_name(record)}: {what} had uncommitted changes; commit and measure again, or pass --allow-dirty"
    if environment.rfdetr_commit is None and not environment.rfdetr_source.startswith("release"):
        return (
            f"{run_name(record)}: rfdetr came from {environment.rfdetr_source}, which names neither a commit nor a "
            "release; install one and measure again, or pass --allow-dirty"
        )
    return ""


def _check_number(records: Sequence[Record], old: Baseline | None, request: Request) -> None:
    approved = max((len(signal.runs) for signal in old.signals), default=0) if old else 0
    if len(records) < approved and not request.allow_fewer_runs:
        msg = (
            f"{records[0].case_id}: {len(records)} runs, and the baseline has {approved}; "
            f"measure {approved}, or pass --allow-fewer-runs"
        )
        raise ValueError(msg)


def _storable(records: Sequence[Record]) -> dict[str, list[Signal]]:
    kinds = STORED[records[0].case.lane]
    found = {name: runs for name, runs in by_signal(records).items() if runs[0].kind in kinds}
    if not found:
        msg = f"{records[0].case_id}: no signal that a baseline could hold"
        raise ValueError(msg)
    for name, runs in found.items():
        if len(runs) < len(records):
            msg = f"{records[0].case_id}: signal {name!r} is in {len(runs)} of {len(records)} runs; measure again"
            raise ValueError(msg)
    return found


def _inside(records: Sequence[Record], old: Baseline | None) -> set[str]:
    """Return the names of the approved signals that stay as they are; where there are more seeds, none of quality."""
    # A wall value is taken anew once its interval lies beyond the tolerance: a person approves it, with a reason.
    rows = judge_case(records, old, Options(trust_wall=True)).signals
    unproven = next((row for row in rows if row.verdict == "not-compiled"), None)
    if unproven:
        msg = f"{unproven.case_id}: not compiled, so no baseline of a compiled case: {unproven.message}"
        raise ValueError(msg)
    inside = {row.signal for row in rows if row.verdict in INSIDE_THE_GATE}
    kept = [signal for signal in old.signals if signal.name in inside] if old else []
    return {signal.name for signal in kept if signal.kind != "quality" or len(records) <= len(signal.runs)}


def _approve(runs: Sequence[Signal], old: Baseline | None, approval: int) -> BaselineSignal:
    value = pooled(runs)
    return BaselineSignal(
        name=value.name,
        kind=value.kind,
        unit=value.unit,
        direction=value.direction,
        runs=[signal.value for signal in runs],
        parts=_kept_parts(value),
        approval=approval,
        history=_history(old, value.name),
    )


def _kept_parts(value: Signal) -> list[Part]:
    """Return the parts to store; those of a volume count are many, and their names already say the function."""
    if value.kind != "count-volume":
        return value.parts
    return [part.model_copy(update={"where": []}) for part in value.parts]


def _history(old: Baseline | None, name: str) -> list[Approved]:
    if old is None:
        return []
    present = old.signal(name)
    if present:
        return present.as_earlier()
    return next((list(signal.history) for signal in old.retired if signal.name == name), [])


def _retire(old: Baseline | None, names: set[str], approval: int) -> list[RetiredSignal]:
    gone = [signal for signal in old.signals if signal.name not in names] if old else []
    return [_retired(signal, approval) for signal in gone]


def _retired(signal: BaselineSignal, approval: int) -> RetiredSignal:
    return RetiredSignal(
        name=signal.name,
        kind=signal.kind,
        direction=signal.direction,
        approval=approval,
        history=signal.as_earlier(),
    )


def _assemble(
    records: Sequence[Record],
    old: Baseline | None,
    signals: list[BaselineSignal],
    gone: list[RetiredSignal],
    request: Request,
) -> Baseline:
    environment = records[0].environment
    names = {signal.name for signal in signals}
    return Baseline(
        case_id=records[0].case_id,
        case=records[0].case,
        device=environment.device,
        torch_minor=environment.torch_minor,
        power_limit_w=environment.power_limit_w,
        made_with=made_with(environment),
        approvals=[*(old.approvals if old else []), _approval(records, request)],
        signals=signals,
        retired=[*(signal for signal in (old.retired if old else []) if signal.name not in names), *gone],
    )


def _approval(records: Sequence[Record], request: Request) -> Approval:
    environment = records[0].environment
    return Approval(
        date=request.date,
        by=request.by,
        reason=request.reason.strip(),
        runs=len(records),
        rfdetr=environment.rfdetr,
        rfdetr_source=environment.rfdetr_source,
        rfdetr_commit=environment.rfdetr_commit,
        suite=environment.suite,
        suite_commit=environment.suite_commit,
        dirty=bool(environment.rfdetr_dirty or environment.suite_dirty),
        host=host(environment),
    )


def _changes(old: Baseline | None, new: list[BaselineSignal], gone: list[RetiredSignal]) -> list[Change]:
    before = {signal.name: signal for signal in old.signals} if old else {}
    changes = []
    for signal in new:
        present = before.get(signal.name)
        value = present.value if present and present.unit == signal.unit else None
        first = signal.first_value if signal.history else None
        interval = _interval(present, signal) if present and value is not None else None
        changes.append(Change(signal.name, signal.unit, value, signal.value, first, interval))
    for retired in gone:
        present = before[retired.name]
        changes.append(Change(retired.name, present.unit, present.value, None, present.first_value))
    return changes


def _interval(old: BaselineSignal, new: BaselineSignal) -> RatioInterval | None:
    """Return the interval of new / old, or None: a count has none, and it takes two runs a side, all above 0."""
    sides = (old.runs, new.runs)
    if new.kind not in TIMED or old.kind != new.kind or min(map(len, sides)) < 2 or min(map(min, sides)) <= 0:
        return None
    return ratio_interval(*sides) if new.kind == "wall" else pooled_interval(*sides)
