"""A sweep: cells in fresh processes, one after another, each with a record of its own.

The plan is told first. A cell that runs out of memory or raises is a result, and the next one comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.case import Case
from perf.cells import Cell, cells_of, is_result
from perf.launch import RunFailed, left_record, run_in_fresh_process
from perf.levers import Machine, lever_of
from perf.record import Record, explain, parse_json, write_model
from perf.run_order import Order
from perf.sweep_plan import Cells, Estimate, Grid, foreseen, next_case, refused

MANIFEST = "sweep.json"


class Asked(BaseModel):
    """What a sweep was asked for, kept beside its records: it goes on with the same, and says what was not tried.

    ``budget`` in seconds. ``unsupported`` says why settings cannot be tried, by the id of their case at batch 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: Grid
    runs: int = Field(default=1, ge=1)
    budget: float | None = None
    unsupported: dict[str, str] = {}


class Sweep(NamedTuple):
    """One sweep: what it was asked for, where, and who is told. ``again``: cells that raised are measured anew."""

    asked: Asked
    machine: Machine
    folder: Path
    tell: Callable[[str], None]
    timeout: float = 1800.0
    again: bool = False
    warm: bool = True

    @property
    def telling(self) -> bool:
        """Whether only the most telling cells are measured."""
        return self.asked.budget is not None

    def order(self, case: Case, run: int) -> Order:
        """Return the order of one run of a cell."""
        return Order(case=case, session=self.folder.name, run=run, folder=self.folder)


def begin(sweep: Sweep) -> None:
    """Write down what the sweep was asked for, or check that one that goes on is asked for the same.

    Raises:
        ValueError: the folder holds a sweep that was asked for something else; says what.
    """
    path = sweep.folder / MANIFEST
    if not path.exists():
        write_model(path, sweep.asked.model_copy(update={"unsupported": not_tried(sweep)}))
        return
    before = read_asked(sweep.folder)
    for name in ("grid", "runs"):
        if getattr(before, name) != getattr(sweep.asked, name):
            msg = f"{sweep.folder}: this sweep was asked for another {name}: {getattr(before, name)}; start a new one"
            raise ValueError(msg)


def not_tried(sweep: Sweep) -> dict[str, str]:
    """Return why settings cannot be tried here, by the id of their case at batch 1."""
    return {series.case(1).id: why for series, why in refused(sweep.asked.grid, sweep.machine).items()}


def read_asked(folder: Path) -> Asked:
    """Return what the sweep in ``folder`` was asked for.

    Raises:
        ValueError: no such file, or it cannot be read; names it.
    """
    path = folder / MANIFEST
    try:
        return Asked.model_validate(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ValueError(explain(path, error)) from error


def measure(sweep: Sweep) -> list[Cell]:
    """Measure what the plan has, the most telling cells first where there is a budget, and return all cells.

    Raises:
        ValueError: the budget is too short for a single cell; says what one takes.
    """
    begin(sweep)
    records, spent, skipped = known(sweep), 0.0, list[str]()
    times = times_of(records)
    while True:
        cells = by_id(records)
        case = next_case(sweep.asked.grid, sweep.machine, cells, telling=sweep.telling, skipped=skipped)
        if case is None:
            return [*cells.values(), *_not_run(sweep, skipped)]
        expected = sweep.asked.runs * Estimate(sweep.machine.lane, times, sweep.warm).seconds(case, lever_of(case))
        if sweep.asked.budget is not None and spent + expected > sweep.asked.budget:
            _reject_too_short(sweep, case, expected, records)
            skipped.append(case.id)
            continue
        started = time.monotonic()
        records += _measure_cell(sweep, case, len(cells) + 1)
        spent += time.monotonic() - started
        if case.id not in by_id(records):  # it was interrupted from outside: not again and again
            skipped.append(case.id)
        times = times_of(records)


def _reject_too_short(sweep: Sweep, case: Case, expected: float, records: Sequence[Record]) -> None:
    if not records:
        msg = (
            f"--budget {sweep.asked.budget:.0f}s is too short for one cell: {case.id} takes about {expected:.0f} s "
            f"here; give --budget {expected / 60 + 1:.0f}m or more"
        )
        raise ValueError(msg)


def _not_run(sweep: Sweep, skipped: Sequence[str]) -> list[Cell]:
    """Return the cells that the budget did not allow."""
    cases = foreseen(sweep.asked.grid, sweep.machine, {}, telling=sweep.telling)
    return [Cell(case, "not run", "the budget was spent") for case in cases if case.id in skipped]


def known(sweep: Sweep) -> list[Record]:
    """Return the records of the cells that need no measuring: those that a sweep that goes on has already."""
    found = []
    for path in sorted(sweep.folder.glob("*/run-*.record.json")):
        record = left_record(_order_of(sweep, path))
        if record and is_result(record) and not (sweep.again and record.status == "failed" and not _ran_out(record)):
            found.append(record)
    whole = {case_id: [r for r in found if r.case_id == case_id] for case_id in dict.fromkeys(r.case_id for r in found)}
    return [r for runs in whole.values() for r in runs if _complete(runs, sweep.asked.runs)]


def _order_of(sweep: Sweep, path: Path) -> Order:
    from perf.case import find_case

    return sweep.order(find_case(path.parent.name), int(path.name.split(".")[0].removeprefix("run-")))


def _ran_out(record: Record) -> bool:
    return cells_of([record])[0].outcome == "out of memory"


def _complete(runs: Sequence[Record], wanted: int) -> bool:
    return len(runs) >= wanted or any(run.status == "failed" for run in runs)


def by_id(records: Sequence[Record]) -> Cells:
    """Return the cells of these records by the id of their case."""
    return {cell.case.id: cell for cell in cells_of(records)}


def times_of(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return how long the cells so far took, in s, by lever; the first of a compiled lever may have been cold."""
    found: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda one: one.started):
        if record.finished:
            found.setdefault(lever_of(record.case), []).append((record.finished - record.started).total_seconds() + 5)
    return found


def _measure_cell(sweep: Sweep, case: Case, number: int) -> list[Record]:
    """Measure all runs of a cell; one that failed is the last."""
    records: list[Record] = []
    for run in range(sweep.asked.runs):
        order = sweep.order(case, run)
        record = left_record(order)
        if record is None or not is_result(record) or (sweep.again and record.status == "failed"):
            sweep.tell(f"cell {number}: {case.id}{f' run {run}' if sweep.asked.runs > 1 else ''}")
            record = _one(sweep, order)
        records.append(record)
        if record.status == "failed":
            break
    sweep.tell(f"  {headline(cells_of(records)[0])}" if cells_of(records) else f"  {case.id}: interrupted")
    return records


def _one(sweep: Sweep, order: Order) -> Record:
    """Measure one run, and return what it left, whatever became of it.

    Raises:
        RunFailed: it left no record at all: the environment is broken, and each cell would end so.
    """
    try:
        return run_in_fresh_process(order, lambda _: None, sweep.timeout)
    except RunFailed as failure:
        if failure.record is None:
            raise
        return failure.record


def headline(cell: Cell) -> str:
    """Return what became of a cell in a line."""
    if cell.outcome in ("measured", "fell back"):
        rate = f"{cell.rate:.4g} images/s ({cell.low:.4g} to {cell.high:.4g})"
        remark = f"; {cell.detail}" if cell.detail else ""
        return f"{cell.outcome}: {rate}{remark}"
    asked = f" (asked for {cell.asked / 2**20:.0f} MiB)" if cell.asked else ""
    return f"{cell.outcome}{asked}: {cell.detail}"
