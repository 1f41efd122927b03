"""Pooling: the runs of one case become one value a signal, by the same rule for records and for baselines."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from perf.environment import Environment, processor
from perf.record import Direction, Kind, Part, Record, Signal


def pooled_value(values: Sequence[float], kind: Kind, direction: Direction) -> float:
    """Return the value that stands for these run values, in their unit.

    The worst run for a strict count, a real run's value (the upper median) for a volume count, the geometric mean
    for wall, since its intervals are those of a ratio, else the median.
    """
    if kind == "count-strict":
        return max(values) if direction == "lower" else min(values)
    if kind == "count-volume":
        return statistics.median_high(values)
    if kind == "wall" and len(values) > 1 and min(values) > 0:
        return statistics.geometric_mean(values)
    return statistics.median(values)


def pooled(signals: Sequence[Signal]) -> Signal:
    """Return one signal for the same signal of several runs.

    Parts come from the run nearest to the pooled value; of a strict count each part is the worst over the runs,
    so that a graph break seen in one run of five is seen.
    """
    first = signals[0]
    value = pooled_value([signal.value for signal in signals], first.kind, first.direction)
    nearest = min(signals, key=lambda signal: abs(signal.value - value))
    parts = _worst_parts(signals) if first.kind == "count-strict" else nearest.parts
    return first.model_copy(update={"value": value, "samples": [], "parts": parts})


def parts_by_name(parts: Iterable[Part]) -> dict[str, Part]:
    """Return the parts keyed by name; those that share a name are added up."""
    named: dict[str, Part] = {}
    for part in parts:
        seen = named.get(part.name)
        if seen is None:
            named[part.name] = part
        else:
            where = list(dict.fromkeys([*seen.where, *part.where]))
            named[part.name] = Part(name=part.name, value=seen.value + part.value, where=where)
    return named


def by_signal(records: Sequence[Record]) -> dict[str, list[Signal]]:
    """Return the signals of all ``records``, the runs of one case, by name in the order in which they first come.

    Raises:
        ValueError: the runs differ in a signal's kind, unit or direction, so that their values are not one thing's.
    """
    found: dict[str, list[Signal]] = {}
    for record in records:
        for signal in record.signals:
            same = found.setdefault(signal.name, [])
            if same and not _alike(same[0], signal):
                msg = (
                    f"the runs of {record.case_id} cannot be pooled: signal {signal.name!r} is {_shape(same[0])}, "
                    f"and in run {record.run} {_shape(signal)}"
                )
                raise ValueError(msg)
            same.append(signal)
    return found


def _alike(first: Signal, second: Signal) -> bool:
    return first.kind == second.kind and first.unit == second.unit and first.direction == second.direction


def _shape(signal: Signal) -> str:
    return f"{signal.kind}, {signal.unit or 'without a unit'}, {signal.direction} is better"


def by_case(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records by case id.

    Raises:
        ValueError: a run is there twice, or the runs of one case cannot be pooled (:func:`common_environment`).
    """
    cases: dict[str, list[Record]] = {}
    for record in records:
        cases.setdefault(record.case_id, []).append(record)
    for group in cases.values():
        _reject_repeated_runs(group)
        common_environment(group)
    return cases


def reject_repeated_seeds(records: Sequence[Record]) -> None:
    """Raise ValueError where one seed of a training comes twice: from itself it scatters less than from another."""
    seen: dict[int, Record] = {}
    for record in (one for one in records if one.case.trains):
        first = seen.setdefault(record.run, record)
        if first is not record:
            msg = (
                f"{run_name(record)}: the same seed was trained in session {first.session}; "
                "take the seeds of one session: a larger --runs has others"
            )
            raise ValueError(msg)


def common_environment(records: Sequence[Record]) -> Environment:
    """Return the environment of these runs of one case.

    Raises:
        ValueError: the runs differ in something that their values depend on; names it and both runs.
    """
    first, *others = records
    expected = pooling_key(first.environment)
    for other in others:
        for name, value in pooling_key(other.environment).items():
            if value != expected[name]:
                msg = (
                    f"{run_name(first)} and {run_name(other)} cannot be pooled: {name} {expected[name]} and {value}; "
                    "judge them separately"
                )
                raise ValueError(msg)
    return first.environment


def made_with(environment: Environment) -> dict[str, str | None]:
    """Return the versions that counts depend on: Python's minor, transformers, Lightning and rfdetr itself.

    Of a training also what it learned from, and how.
    """
    trained = {"workload": environment.workload} if environment.workload else {}
    return trained | {
        "python": ".".join(environment.python.split(".")[:2]),
        "transformers": environment.transformers,
        "pytorch_lightning": environment.pytorch_lightning,
        "rfdetr": environment.rfdetr,
    }


def host(environment: Environment) -> str:
    """Return the processor in one text, as :func:`perf.environment.processor`."""
    return processor(environment.cpu_model, environment.cpu_count)


def run_name(record: Record) -> str:
    """Return how messages name one run."""
    return f"{record.case_id} run {record.run} (session {record.session})"


def pooling_key(environment: Environment) -> dict[str, object]:
    """Return what the values of a run depend on, by name: runs of one case are alike in all of it."""
    names = ("device", "torch_minor", "torch", "rfdetr_source", "rfdetr_commit", "rfdetr_dirty", "power_limit_w")
    return {name: getattr(environment, name) for name in names} | made_with(environment)


def _reject_repeated_runs(records: Sequence[Record]) -> None:
    seen: set[tuple[str, int]] = set()
    for record in records:
        if (record.session, record.run) in seen:
            msg = f"{run_name(record)} is there twice; one run must not count as two: remove the copy"
            raise ValueError(msg)
        seen.add((record.session, record.run))


def _worst_parts(signals: Sequence[Signal]) -> list[Part]:
    """Return each part as it is in the run in which it is worst; a run that lacks one has 0 of it."""
    sign = 1 if signals[0].direction == "lower" else -1
    worst: dict[str, Part] = {}
    runs: Counter[str] = Counter()
    for signal in signals:
        for name, part in parts_by_name(signal.parts).items():
            seen = worst.setdefault(name, part)
            if sign * (part.value - seen.value) > 0:
                worst[name] = part
            runs[name] += 1
    lacking = (name for name, count in runs.items() if count < len(signals))
    worst |= {name: Part(name=name, value=0) for name in lacking if sign * worst[name].value < 0}
    return list(worst.values())
