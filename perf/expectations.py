"""Runs that failed or compiled nothing, against what is known to fail with a torch minor (:mod:`perf.matrix`)."""

from __future__ import annotations

from collections.abc import Sequence

from perf.errors import error_line
from perf.gates import compile_gate
from perf.matrix import KnownFailure, known_failure, matcher
from perf.pool import by_signal
from perf.record import Record
from perf.verdicts import SignalVerdict, Verdict


def known_failure_of(record: Record) -> KnownFailure | None:
    """Return what is known to fail of this run's torch minor, case and rfdetr; None where nothing is."""
    environment = record.environment
    return known_failure(environment.torch_minor, record.case.compile, environment.rfdetr, record.case_id)


def not_compiled(records: Sequence[Record]) -> str:
    """Return why these finished runs of one compiled case prove nothing of compiled code; empty where they do."""
    if not records[0].case.compile:
        return ""
    proof = compile_gate(by_signal(records), len(records), matcher(known_failure_of(records[0])))
    return proof[1].message.partition("\n")[0] if proof else ""


def failed_run(record: Record) -> SignalVerdict:
    """Return the row of a run that did not finish: a pass where it failed exactly as is known of its torch minor."""
    known = known_failure_of(record)
    why = last_line(record)
    expected = record.status == "failed" and matcher(known)(why)
    message = f"did not finish: {why}"
    if known and expected:
        message = f"failed as expected of torch {record.environment.torch_minor}: {known.reason}; {why}"
    elif known:
        message += f"; expected of torch {record.environment.torch_minor} was another failure: {known.reason}"
    return SignalVerdict(
        case_id=record.case_id,
        signal=f"run {record.run}",
        kind="info",
        verdict="pass" if expected else "failed",
        message=message + _pins_in_force(record),
        listed=expected,
        reproduce=record.command,
    )


def last_line(record: Record) -> str:
    """Return the line of a failed record's error that says what it was, or that there is none."""
    if not (record.error or "").strip():
        return f"no error was recorded; its status is {record.status!r}: was it killed?"
    return error_line(record.error)


def _pins_in_force(record: Record) -> str:
    """Return the versions that decide whether rfdetr can be imported, where that is what failed."""
    if "ImportError" not in last_line(record) and "ModuleNotFoundError" not in last_line(record):
        return ""
    names = ("torch", "torchvision", "transformers", "pytorch_lightning", "numpy", "python", "rfdetr")
    pins = [f"{name} {getattr(record.environment, name)}" for name in names]
    return f"; pins in force: {', '.join(pins)}"


def stale_expectation(records: Sequence[Record]) -> list[SignalVerdict]:
    """Return a row where a case ran, and compiled where it should, that is known to fail."""
    record = records[0]
    minor = record.environment.torch_minor
    known = known_failure_of(record)
    if known is None or (record.case.compile and compile_gate(by_signal(records), len(records))):
        return []
    message = f"ran, and perf/matrix.py says it fails with torch {minor}: {known.reason}; drop that expectation"
    return [expectation(record, "improved", message)]


def expectation(record: Record, verdict: Verdict, message: str, what: str = "expected failure") -> SignalVerdict:
    """Return the row ``what`` of a case for which a failure is known."""
    return SignalVerdict(
        case_id=record.case_id,
        signal=what,
        kind="info",
        verdict=verdict,
        message=message,
        listed=verdict == "pass",
        reproduce=record.command,
    )
