"""Measuring the scoreboard: each fault and its unfaulted twin in fresh processes, judged by the suite's own judging.

What was measured already with the same patch and software is not measured again: an interrupted session goes on.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from perf.ab import answer, measure
from perf.baselines import FOLDER as BASELINES
from perf.case import Case, find_case
from perf.compare import BASE, HEAD, compare, usable_pairs
from perf.environment import changed_since
from perf.experiment import SIDES, Experiment, Manifest, side_of
from perf.faults import FRESH_SEED, Fault
from perf.judge import GATED, Options, judge
from perf.launch import RunFailed, has_finished, left_record, run_beside, run_in_fresh_process
from perf.others import Opinion, benchmark_opinion, traceml_opinion
from perf.record import Record, read_records
from perf.run_order import Order
from perf.scoreboard import Row, Unfaulted, digest, row_of
from perf.traceml import SUMMARY
from perf.traceml_run import run_traceml
from perf.verdicts import CaseVerdict, Judgement

UNFAULTED = "unfaulted"


class Bench(NamedTuple):
    """Where the records go, whom to tell, and how long a run may take.

    ``traceml``: the Python of an environment with TraceML and the same rfdetr, to ask it too; None leaves it out.
    """

    folder: Path
    tell: Callable[[str], None]
    timeout: float = 3600.0
    traceml: Path | None = None

    def order(self, name: str, case: Case, run: int, patch: Path | None = None) -> Order:
        """Return the order of one run of the session ``name``."""
        session = f"{self.folder.name}/{name}"
        return Order(case=case, session=session, run=run, folder=self.folder / name, patch=patch)

    def record(self, name: str, case: Case, run: int, patch: Path | None = None) -> Record:
        """Return the record of one run of the session ``name``, measured now unless it was, with the same software.

        A run that fails leaves a record too: that is what some faults do.

        Raises:
            RunFailed: it left none.
        """
        order = self.order(name, case, run, patch)
        if (left := _measured(order)) is not None:
            return left
        try:
            return run_in_fresh_process(order, self.tell, self.timeout)
        except RunFailed as failure:
            if failure.record is None:
                raise
            return failure.record


def _measured(order: Order) -> Record | None:
    """Return the record of a run that was measured with the software that is here; None where there is none."""
    left = left_record(order) if has_finished(order) else None
    return None if left is None or changed_since([left.environment]) else left


def measure_beside(bench: Bench, faults: Sequence[Fault]) -> None:
    """Measure what ``faults`` need on a GPU beside each other, case by case, so that :func:`measure_fault` finds it.

    They prepare for half a minute or more, and take turns to measure.
    """
    turning = [fault for fault in faults if fault.lane == "gpu" and fault.case.takes_turns]
    for case_id in dict.fromkeys(fault.case_id for fault in turning):
        orders = dict.fromkeys(o for fault in turning if fault.case_id == case_id for o in orders_of(bench, fault))
        fresh = [order for order in orders if _measured(order) is None]
        run_beside(fresh, bench.folder / "turn.lock", bench.tell, bench.timeout, lambda order: f"{order.session}: ")


def orders_of(bench: Bench, fault: Fault) -> list[Order]:
    """Return the orders of all runs that a fault and its twin may need; none for a training."""
    if fault.judging == "interleaved":
        experiment = _experiment(bench, fault)
        return [experiment.order(side, fault.case, pair) for pair in range(fault.runs) for side in SIDES]
    sides = [(UNFAULTED, None), (_name(fault), fault.patch.absolute())] if fault.judging == "counts" else []
    return [bench.order(name, fault.case, run, patch) for run in range(fault.runs) for name, patch in sides]


def measure_fault(bench: Bench, fault: Fault) -> Row:
    """Measure a fault and its twin, and return what came of it.

    Raises:
        ValueError: the twin cannot be measured or judged.
        RunFailed: a run left no record.
    """
    bench.tell(f"{fault.id}: {fault.judging}")
    how = {"counts": _by_counts, "interleaved": _interleaved, "seeds": _by_seeds}[fault.judging]
    base, head, judged = how(bench, fault)
    [case] = [one for one in judged.cases if one.case_id == fault.case_id]
    benchmark = benchmark_opinion(_nearest(bench, fault, base, head[0]), head[0]) if base else None
    traceml = _ask_traceml(bench, fault) if bench.traceml else None
    return row_of(fault, case, head[0], max(1, len(head)), benchmark, traceml)


def _nearest(bench: Bench, fault: Fault, base: Sequence[Record], head: Record) -> Record:
    """Return the unfaulted run that was measured closest in time: time is what pytest-benchmark compares.

    Of interleaved runs that is the pair's own.
    """
    if fault.judging != "counts":
        return base[0]
    folder = bench.folder / UNFAULTED / fault.case_id
    there = [record for record in read_records(folder) if record.status == "finished"]
    return min(there or base, key=lambda record: abs(record.started - head.started))


Sides = tuple[Sequence[Record], Sequence[Record], Judgement]


def _name(fault: Fault) -> str:
    """Return the session of a fault: of one text of its patch."""
    return f"{fault.kind}_{fault.size}-{digest(fault.patch)}"


def _by_counts(bench: Bench, fault: Fault) -> Sides:
    base = [bench.record(UNFAULTED, fault.case, run) for run in range(fault.runs)]
    head = [bench.record(_name(fault), fault.case, run, fault.patch.absolute()) for run in range(fault.runs)]
    return base, head, compare(base, head, Options(records_path=bench.folder / _name(fault)))


def _by_seeds(bench: Bench, fault: Fault) -> Sides:
    head = [
        bench.record(_name(fault), fault.case, FRESH_SEED + run, fault.patch.absolute()) for run in range(fault.runs)
    ]
    return [], head, judge(head, BASELINES, options=Options(records_path=bench.folder / _name(fault)))


def _interleaved(bench: Bench, fault: Fault) -> Sides:
    experiment = _experiment(bench, fault)
    judged = measure(experiment)
    look, _ = answer(experiment, fault.case, lambda *_: None)
    base, head = usable_pairs(*(experiment.records(side, fault.case) for side in (BASE, HEAD)))
    if not head:
        why = "; ".join(row.message.partition("\n")[0] for case in judged.cases for row in case.signals if row.verdict)
        msg = f"{fault.id}: no pair of runs finished in {experiment.folder}: {why}"
        raise ValueError(msg)
    return base[: look.pairs], head[: look.pairs], judged


def _experiment(bench: Bench, fault: Fault) -> Experiment:
    """Return the session of a fault and its twin; on a GPU without wall time, of which so few pairs prove nothing."""
    python, name = Path(sys.executable).absolute(), _name(fault)
    manifest = Manifest(
        base=side_of("this rfdetr", python),
        head=side_of("the same, patched", python, fault.patch.absolute()),
        cases=[fault.case_id],
        pairs=fault.runs,
        gate=sorted(GATED if fault.lane == "cpu" else GATED - {"wall"}),
    )
    folder = bench.folder.resolve() / name
    within = Path(bench.folder.name)
    return Experiment(manifest, [fault.case], folder, bench.tell, BASELINES, bench.timeout, within=within)


def _ask_traceml(bench: Bench, fault: Fault) -> Opinion | None:
    """Return what TraceML's compare says of the same fault in a fit; None where it has none to measure.

    It measures eager training loops: not a compiled case, and not the input by itself.
    """
    assert bench.traceml
    if fault.case.compile or fault.case.measure not in ("step", "fit"):
        return None
    case = Case.model_validate({**fault.case.model_dump(), "measure": "fit"})
    sides = {UNFAULTED: None, _name(fault): fault.patch.absolute()}
    summaries = []
    for name, patch in sides.items():
        folder = bench.folder / "traceml" / name / case.id
        summary = folder / SUMMARY
        if not summary.is_file():
            run_traceml(case, folder, None, fault.command, bench.timeout, bench.tell, bench.traceml, patch)
        summaries.append(summary.absolute())
    out = (bench.folder / "traceml" / f"{_name(fault)}.compare").absolute()
    return traceml_opinion(bench.traceml, summaries[0], summaries[1], out)


def measure_unfaulted(bench: Bench, case_id: str, sessions: int) -> list[Unfaulted]:
    """Measure so many sessions of rfdetr as it is, and return how many of them something failed.

    Each is held against the committed baseline, where there is one, and against one run more: that has all signals.
    """
    case = find_case(case_id)
    records = [bench.record(UNFAULTED, case, run) for run in range(sessions + 1)]
    first, others = records[0], records[1:]
    judged = [judge([record], BASELINES).cases[0] for record in records[:sessions]]
    twins = [compare([first], [record], Options()).cases[0] for record in others]
    # Against the run before, which is what pytest-benchmark takes by itself.
    pairs = itertools.pairwise(records)
    benchmark = [found for before, record in pairs if (found := benchmark_opinion(before, record))]
    rows = [_unfaulted(records, "first run", twins, benchmark)]
    if not any(verdict.verdict == "no-baseline" for verdict in judged):
        rows.append(_unfaulted(records, "baseline", judged, []))
    return rows


def _unfaulted(
    records: Sequence[Record], against: str, judged: Sequence[CaseVerdict], benchmark: Sequence[Opinion]
) -> Unfaulted:
    last = records[-1]
    return Unfaulted.model_validate(
        {
            "case_id": last.case_id,
            "against": against,
            "device": last.environment.device,
            "torch_minor": last.environment.torch_minor,
            "rfdetr": last.environment.rfdetr,
            "sessions": len(judged),
            # What is inconclusive or incompatible stops a change too, and proves nothing.
            "alarms": sum(verdict.verdict != "pass" for verdict in judged),
            "listed": sum(any(row.listed for row in verdict.signals) for verdict in judged),
            "benchmark_sessions": len(benchmark),
            "benchmark_alarms": sum(opinion.said == "fails" for opinion in benchmark),
            "suite_commit": last.environment.suite_state,
            "measured": last.started.date(),
        }
    )
