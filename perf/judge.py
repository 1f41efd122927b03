"""The judge: records against baselines -> verdicts, one sentence and an exit code."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from perf import ranked
from perf.baselines import FOLDER, STORED, Baseline, BaselineSignal, find_baseline
from perf.environment import Environment
from perf.expectations import expectation, failed_run, known_failure_of, stale_expectation
from perf.gates import (
    DEVICE_ERROR,
    DEVICE_FLOOR,
    FRAMES_FAILED,
    GATES,
    INDUCTOR_FLOOR,
    INPUT_CALLS,
    YOUNG,
    Gate,
    Outcome,
    compile_gate,
    device_gate,
    plain,
)
from perf.matrix import MATRIX, KnownFailure, matcher, pins_for
from perf.pool import by_case, by_signal, common_environment, host, made_with, pooled
from perf.quality_gates import collapse_gate, margin_gate
from perf.record import TIMED, Kind, Record, Signal, is_patched
from perf.session_gates import OneSession, device_session_gate, wall_session_gate
from perf.stats import NO_NOISE
from perf.verdicts import (
    WHOLE_CASE,
    CaseVerdict,
    Judgement,
    Leading,
    PartChange,
    SignalVerdict,
    Verdict,
    exit_code,
    leading_part,
    summarize,
    worst,
)

# Keys of the loss in which compiled and eager differ, and ties do not explain it.
MISMATCHES = "parity_mismatches"
# Against a stored baseline, by kind.
_GATES: dict[Kind, Gate] = {**GATES, "quality": collapse_gate}
GATED: frozenset[Kind] = frozenset(_GATES)
# The only counts that move with Python's own minor.
PYTHON_SIGNALS = frozenset({"python_calls", "c_calls", *INPUT_CALLS})


class Options(NamedTuple):
    """How to judge: the kinds to gate, and where the records lie.

    ``one_session``: both sides were measured in one session, so that intervals may be taken at their word.
    ``family``: how many signals of a kind share its error rate; :func:`judge` counts those of all cases.
    ``trust_wall``: a wall interval against a stored baseline is taken at its word too, since a person approves.
    """

    gate: Collection[Kind] = GATED
    records_path: Path = Path("RECORDS")
    one_session: OneSession | None = None
    family: Mapping[Kind, int] = {}
    trust_wall: bool = False


def judge(
    records: Sequence[Record],
    baselines: Mapping[str, Baseline] | Path = FOLDER,
    *,
    expected: Collection[str] = (),
    not_run: Mapping[str, str] = MappingProxyType({}),
    options: Options = Options(),  # noqa: B008  (immutable)
) -> Judgement:
    """Judge every case of ``records``; ``expected`` names case ids that must be among them.

    ``not_run`` are those that the machine could not take, with why: nothing to compare, and so no success.

    Raises:
        ValueError: runs of one case that cannot be pooled, or a baseline that cannot be used; names which.
    """
    cases, groups = [], by_case(records)
    options = options._replace(family=_family(groups.values(), options))
    for case_id, group in groups.items():
        found = find_baseline(baselines, group[0]) if isinstance(baselines, Path) else baselines.get(case_id)
        cases.append(judge_case(group, found, options))
    seen = {case.case_id for case in cases} | set(not_run)
    cases += [_absent_case(case_id, records, "incompatible", f"not run: {why}") for case_id, why in not_run.items()]
    missing = "missing: this case was expected and left no record"
    cases += [_absent_case(case_id, records, "failed", missing) for case_id in expected if case_id not in seen]
    return Judgement(cases=cases, exit_code=exit_code(worst(case.verdict for case in cases)), summary=summarize(cases))


def _family(groups: Iterable[Sequence[Record]], options: Options) -> Mapping[Kind, int]:
    """Return how many signals of each timed kind a session has, so that they share one error rate."""
    kinds = [kind for group in groups for kind in {s.name: s.kind for r in group for s in r.signals}.values()]
    cases = options.one_session.cases if options.one_session else 1
    return {kind: cases * kinds.count(kind) for kind in TIMED}


def judge_case(records: Sequence[Record], baseline: Baseline | None, options: Options = Options()) -> CaseVerdict:  # noqa: B008
    """Judge the runs of one case against its baseline.

    Raises:
        ValueError: no records, or runs that cannot be pooled.
    """
    environment = common_environment(records)
    finished = [record for record in records if record.status == "finished"]
    rows = [failed_run(record) for record in records if record.status != "finished"]
    if finished:
        rows += stale_expectation(finished)
        rows += _Bench(finished, baseline, options).rows()
    verdict = worst(row.verdict for row in rows)
    if verdict is None:
        verdict = "no-baseline"
        rows.append(_nothing_gated(records[0], options))
    return CaseVerdict(
        case_id=records[0].case_id,
        verdict=verdict,
        runs=len(finished),
        device=environment.device,
        torch_minor=environment.torch_minor,
        signals=rows,
    )


class _Bench(NamedTuple):
    """The finished runs of one case, what they are held against, and how."""

    records: list[Record]
    baseline: Baseline | None
    options: Options

    def rows(self) -> list[SignalVerdict]:
        found = by_signal(self.records)
        rows = [self._row(name, signals) for name, signals in found.items()]
        approved = self.baseline.signals if self.baseline else []
        rows += [self._missing(base) for base in approved if base.name not in found]
        unproven = self._unproven(found)
        unproven += [*self._mismatched(found), *self._apart(found), *self._slow(found)]
        replaced = {row.signal for row in unproven}
        return unproven + [row for row in rows if row.signal not in replaced]

    def _gated(self, kind: Kind) -> bool:
        first = self.records[0]
        measured = kind not in TIMED or not first.untimed
        # Time of a CPU says nothing about another's, and much about its own of a minute ago.
        held = bool(self.options.one_session) or kind in STORED[first.case.lane]
        return measured and kind in _GATES and kind in self.options.gate and held

    def _row(self, name: str, signals: list[Signal]) -> SignalVerdict:
        now = pooled(signals)
        base = self._approved(name)
        return self._answer(name, now, base, self._outcome(now, base, signals))

    def _missing(self, base: BaselineSignal) -> SignalVerdict:
        verdict: Verdict | None = "failed" if self._gated(base.kind) else None
        return self._answer(base.name, None, base, Outcome(verdict, "missing: the baseline has it and no run does"))

    def _unproven(self, found: Mapping[str, list[Signal]]) -> list[SignalVerdict]:
        """Return the row not-compiled, unless every run proves that it compiled, but for what is known to fall back."""
        first = self.records[0]
        if not first.case.compile:
            return []
        known = known_failure_of(first)
        proof = compile_gate(found, len(self.records), matcher(known))
        if proof is None:
            return self._known_fall_back(found, known)
        name, outcome = proof
        signals = found.get(name)
        return [self._answer(name, pooled(signals) if signals else None, self._approved(name), outcome)]

    def _known_fall_back(self, found: Mapping[str, list[Signal]], known: KnownFailure | None) -> list[SignalVerdict]:
        """Return the row of a fall back that is known of this torch minor: its counts are gated as any others."""
        if known is None or compile_gate(found, len(self.records)) is None:
            return []
        parts = [f"{part.name} {plain(part.value)}" for part in pooled(found[FRAMES_FAILED]).parts]
        head = f"fell back as expected of torch {self.records[0].environment.torch_minor}: {known.reason}"
        return [expectation(self.records[0], "pass", "\n".join([head, *parts]))]

    def _mismatched(self, found: Mapping[str, list[Signal]]) -> list[SignalVerdict]:
        """Return the row of a compiled step that computes something else, unless that is approved or expected."""
        signals = found.get(MISMATCHES, [])
        most = max((signal.value for signal in signals), default=0)
        minor = self.records[0].environment.torch_minor
        known = pins_for(minor).known_mismatch if minor in MATRIX and signals else ""
        if known:
            verdict: Verdict = "pass" if most > 0 else "improved"
            told = f"computes something else, as expected of torch {minor}" if most > 0 else f"torch {minor} agrees now"
            return [expectation(self.records[0], verdict, f"{told}: {known}", "expected mismatch")]
        return self._never(MISMATCHES, signals, "the compiled step computes something else than the eager one")

    def _never(self, name: str, signals: list[Signal], message: str) -> list[SignalVerdict]:
        """Return the row of a count that fails above 0 although there is no baseline, unless one approves it."""
        if self._approved(name) or max((signal.value for signal in signals), default=0) <= 0:
            return []
        now = pooled(signals)
        parts = [f"{part.name} {plain(part.value)}" for part in now.parts]
        return [self._answer(name, now, None, Outcome("failed", "\n".join([message, *parts])))]

    def _apart(self, found: Mapping[str, list[Signal]]) -> list[SignalVerdict]:
        """Return the row of ranks that did not all do the same work, unless that is approved."""
        signals = found.get(ranked.MISMATCHES, [])
        names = sorted({part.name.partition(":")[0] for signal in signals for part in signal.parts})
        return self._never(ranked.MISMATCHES, signals, f"{', '.join(names)} did other work than the other ranks")

    def _slow(self, found: Mapping[str, list[Signal]]) -> list[SignalVerdict]:
        """Return the row of a run with a slow rank: its times say nothing of the code."""
        signals = found.get(ranked.SLOW, [])
        if max((signal.value for signal in signals), default=0) <= 0:
            return []
        now, balance = pooled(signals), found[ranked.IMBALANCE]
        slow = {part.name for signal in signals for part in signal.parts}
        most = {name: max(p.value for s in balance for p in s.parts if p.name == name) for name in sorted(slow)}
        told = [f"{name} takes {percent:+.0f} % by itself against the others" for name, percent in most.items()]
        message = f"{', '.join(told)}, in every step: the others wait for it, so the times are not the code's"
        return [self._answer(ranked.SLOW, now, None, Outcome("inconclusive", message))]

    def _approved(self, name: str) -> BaselineSignal | None:
        return self.baseline.signal(name) if self.baseline else None

    def _outcome(self, now: Signal, base: BaselineSignal | None, signals: list[Signal]) -> Outcome:
        # What is approved says how a signal is gated; a record cannot take it out of the gate.
        kind = base.kind if base else now.kind
        if base and now.kind != base.kind:
            return Outcome("incompatible", f"kind {now.kind}, the baseline {base.kind}")
        if not self._gated(kind):
            return Outcome(None)
        if len(signals) < len(self.records):
            absent = [str(record.run) for record in self.records if record.signal(now.name) is None]
            return Outcome("failed", f"absent from {len(absent)} of {len(self.records)} runs: run {', '.join(absent)}")
        environment = self.records[0].environment
        if base is None and now.name in YOUNG and self._predates_young():
            return Outcome(None, "not gated: the baseline is older than this signal, and its next refresh takes it in")
        if self.baseline is None or base is None:
            what = "signal" if self.baseline else "case"
            place = f"{environment.device}, torch {environment.torch_minor}"
            return Outcome("no-baseline", f"this {what} has no baseline on {place} yet")
        reason = incompatibility(self.baseline, base, environment, now)
        if reason:
            return Outcome("incompatible", reason)
        outcome = self._gate(kind, now.name)(base, signals)
        if kind != "wall" or self.options.one_session:
            return outcome
        outcome = outcome if self.options.trust_wall else _across_sessions(outcome)
        return outcome._replace(message=outcome.message + _wall_note(self.baseline, base, environment))

    def _predates_young(self) -> bool:
        """Return whether the baseline has none of the young signals: one that has some lacks others for a reason."""
        return self.baseline is not None and not any(signal.name in YOUNG for signal in self.baseline.signals)

    def _gate(self, kind: Kind, name: str) -> Gate:
        """Return the gate of a signal, told its share of the session's error rate."""
        session, sharing = self.options.one_session, max(1, self.options.family.get(kind, 1))
        if kind == "device" and session:
            noise = session.noise.get((self.records[0].case_id, name), NO_NOISE)
            return partial(device_session_gate, error=session.device_error, noise=noise, shares=sharing)
        if kind == "wall" and session:
            return partial(wall_session_gate, error=session.wall_error, shares=sharing)
        if kind == "quality" and session:
            return partial(margin_gate, margin=session.margin, shares=session.cases)
        if kind == "device":
            return partial(device_gate, error=DEVICE_ERROR / sharing, floor=self._floor(name))
        return _GATES[kind]

    def _floor(self, name: str) -> float:
        """Return the least change of a device signal that a stored baseline can tell from another compile of it."""
        case = self.records[0].case
        by_inductor = case.compile and case.backend == "inductor"
        return INDUCTOR_FLOOR if by_inductor and name in ("gpu_busy", "fit_gpu_busy") else DEVICE_FLOOR

    def _answer(self, name: str, now: Signal | None, base: BaselineSignal | None, outcome: Outcome) -> SignalVerdict:
        shape = now or base or Signal(name=name, kind="info", unit="", value=0)
        before = base.value if base and base.unit == shape.unit else None
        change = now.value - before if now and before is not None else None
        leading = leading_part(outcome.parts, change, rising=shape.direction == "lower")
        return SignalVerdict(
            case_id=self.records[0].case_id,
            signal=name,
            kind=shape.kind,
            unit=shape.unit,
            direction=shape.direction,
            baseline=before,
            now=now.value if now else None,
            change=change,
            verdict=outcome.verdict,
            interval=(outcome.interval.low, outcome.interval.high) if outcome.interval else None,
            parts=list(outcome.parts),
            where=_strict_lines(outcome.parts, change) if shape.kind == "count-strict" else _leading_lines(leading),
            message=outcome.message,
            listed=outcome.listed,
            reproduce=self.records[0].command,
            # A case that did not compile makes no baseline, so there is no command to offer.
            refresh="" if outcome.verdict == "not-compiled" else self._refresh_command(),
        )

    def _refresh_command(self) -> str:
        if is_patched(self.records[0]):
            return ""  # refused, and rightly
        records = shlex.quote(str(self.options.records_path))
        device = self.records[0].environment.device
        # The first baseline on a device is asked for by name, lest it be one by mistake.
        named = "" if self.baseline or device == "cpu" else f" --device {device}"
        return f'rfdetr-perf refresh {records} --case {self.records[0].case_id}{named} --reason "..."'


def _leading_lines(leading: Leading | None) -> list[str]:
    return leading.part.lines if leading and leading.most else []


def _strict_lines(parts: Sequence[PartChange], change: float | None) -> list[str]:
    """Return the lines of all parts that moved with ``change``, those that are wholly new or gone first.

    A strict count is small and each of its parts a thing of its own, a graph break say: every line is a cause.
    """
    sign = -1 if change and change < 0 else 1
    moved = [part for part in parts if sign * (part.new - part.old) > 0]
    ordered = sorted(moved, key=lambda part: (0 not in (part.old, part.new), -abs(part.new - part.old)))
    return list(dict.fromkeys(line for part in ordered for line in part.lines))


def incompatibility(baseline: Baseline, base: BaselineSignal, environment: Environment, now: Signal) -> str:
    """Return why this signal cannot be held against this baseline, naming both sides; empty where it can."""
    new, old = made_with(environment), baseline.made_with
    versions = ["transformers", "pytorch_lightning", *(["python"] if now.name in PYTHON_SIGNALS else [])]
    if now.kind == "quality":  # what is learned must not depend on a library's version
        versions = ["workload"]
    pairs: list[tuple[str, object, object]] = [(name, new.get(name), old.get(name)) for name in versions]
    pairs += [(name, getattr(environment, name), getattr(baseline, name)) for name in ("device", "torch_minor")]
    pairs += [(name, getattr(now, name), getattr(base, name)) for name in ("unit", "direction")]
    if now.kind in TIMED:
        pairs.append(("power limit (W)", environment.power_limit_w, baseline.power_limit_w))
    return "; ".join(f"{name} {now_has}, the baseline {had}" for name, now_has, had in pairs if now_has != had)


def _across_sessions(outcome: Outcome) -> Outcome:
    """Return the outcome of a wall signal, undecided where it claims a change since a stored baseline.

    The interval knows how runs of one session differ, not how sessions do: unchanged code was 33 % and 47 % slower
    than its baseline in two sessions on the same kind of machine (H200, nano-b4), with intervals far from 0.
    """
    if outcome.verdict not in ("regressed", "improved"):
        return outcome
    message = f"{outcome.message}; sessions of unchanged code differ as much: measure both sides in one session"
    return outcome._replace(verdict="inconclusive", message=message)


def _wall_note(baseline: Baseline, base: BaselineSignal, environment: Environment) -> str:
    pairs = [
        ("host", host(environment), baseline.approvals[base.approval].host),
        ("Python", made_with(environment)["python"], baseline.made_with.get("python")),
    ]
    return "".join(f"; note: {name} {now}, the baseline's {old}" for name, now, old in pairs if now != old)


def _nothing_gated(record: Record, options: Options) -> SignalVerdict:
    kinds = ", ".join(sorted(options.gate))
    return SignalVerdict(
        case_id=record.case_id,
        signal=WHOLE_CASE,
        kind="info",
        verdict="no-baseline",
        message=f"nothing was gated: there is no signal that the {record.case.lane} lane gates among kinds {kinds}",
        reproduce=record.command,
    )


def _absent_case(case_id: str, records: Sequence[Record], verdict: Verdict, message: str) -> CaseVerdict:
    device, minor = next(((r.environment.device, r.environment.torch_minor) for r in records), ("any device", "any"))
    row = SignalVerdict(
        case_id=case_id,
        signal=WHOLE_CASE,
        kind="info",
        verdict=verdict,
        message=message,
        reproduce=records[0].command.replace(records[0].case_id, case_id)
        if records
        else f"pytest tests/suite --case {case_id}",
    )
    return CaseVerdict(case_id=case_id, verdict=verdict, runs=0, device=device, torch_minor=minor, signals=[row])
