"""A sweep: cells in fresh processes, one after another, each with a record of its own.

The plan is told first. A cell that runs out of memory or raises is a result, and the next one comes.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf import environment
from perf.case import Case
from perf.cells import Cell, cells_of, is_result, timed_out
from perf.launch import RunFailed, left_record, run_in_fresh_process
from perf.levers import Machine, lever_of
from perf.locks import alone
from perf.pool import host
from perf.record import Record, read_model, read_record, write_model
from perf.run_order import Order
from perf.sweep_plan import Cells, Grid, next_case, refused
from perf.sweep_time import estimate_of

MANIFEST = "sweep.json"
# A cell may take so many seconds, or its estimate once more, beyond the budget; then it is stopped.
_GRACE = 60.0


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
    if not path.exists() or not any(_left(sweep.folder)):
        write_model(path, sweep.asked.model_copy(update={"unsupported": not_tried(sweep)}))
        return
    before = read_asked(sweep.folder)
    if others := _differing(before, sweep.asked):
        msg = f"{sweep.folder}: this sweep was asked for {', '.join(others)}; start a new one"
        raise ValueError(msg)
    if changed := changed_here(known(sweep)):
        msg = f"{sweep.folder}: it was measured with {changed}; start a new one"
        raise ValueError(msg)


def _differing(before: Asked, now: Asked) -> list[str]:
    """Return what ``before`` has otherwise, as ``name value``."""
    then, here = ({**asked.grid.model_dump(), "runs": asked.runs} for asked in (before, now))
    return [f"{name.replace('_', ' ')} {_words(then[name])}" for name in then if then[name] != here[name]]


def _words(value: object) -> str:
    return (", ".join(map(str, value)) or "as they fit") if isinstance(value, tuple) else str(value)


def changed_here(records: Sequence[Record]) -> str:
    """Return what is another here than where ``records`` were measured, machine or software; empty for nothing."""
    for record in records:
        there, here = (record.environment.device, host(record.environment)), environment.machine(record.case.lane)
        if there != here:
            return f"{', '.join(there)}, now {', '.join(here)}"
    return environment.changed_since(record.environment for record in records)


def not_tried(sweep: Sweep) -> dict[str, str]:
    """Return why settings cannot be tried here, by the id of their case at batch 1."""
    return {series.case(1).id: why for series, why in refused(sweep.asked.grid, sweep.machine).items()}


def read_asked(folder: Path) -> Asked:
    """Return what the sweep in ``folder`` was asked for.

    Raises:
        ValueError: no such file, or it cannot be read; names it.
    """
    return read_model(folder / MANIFEST, Asked)


def measure(sweep: Sweep) -> list[Cell]:
    """Measure what the plan has, the most telling cells first where there is a budget, and return all cells.

    Raises:
        ValueError: as :func:`begin`; the budget is too short for a single cell; another process is at it.
    """
    sweep.folder.mkdir(parents=True, exist_ok=True)
    busy = f"{sweep.folder}: another process measures this sweep; wait for it, or start a new one"
    with alone(sweep.folder / "sweep.lock", busy):
        begin(sweep)
        going = _Going(sweep)
        while case := going.next():
            going.take(case)
        return going.cells()


class _Going:
    """A sweep in progress: what was measured, and what was left out and why."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep, self._records = sweep, known(sweep)
        self._spent, self._shortest, self._left_out = 0.0, math.inf, dict[str, Cell]()

    def next(self) -> Case | None:
        """Return the case of the next cell; None where nothing is left."""
        sweep, cells = self._sweep, by_id(self._records)
        return next_case(sweep.asked.grid, sweep.machine, cells, telling=sweep.telling, skipped=self._left_out)

    def take(self, case: Case) -> None:
        """Measure a cell, or leave it out where the budget does not reach."""
        asked = self._sweep.asked
        estimate = estimate_of(self._sweep.machine.lane, self._records, warm=self._sweep.warm)
        expected = asked.runs * estimate.seconds(case, lever_of(case))
        left = math.inf if asked.budget is None else asked.budget - self._spent
        if expected > left:
            self._shortest = min(self._shortest, expected)
            self._leave_out(case, f"takes about {expected:.0f} s, {max(0.0, left):.0f} s of the budget left")
        else:
            self._measure(case, min(self._sweep.timeout, left + max(expected, _GRACE)))

    def _measure(self, case: Case, limit: float) -> None:
        started = time.monotonic()
        measured = _measure_cell(self._sweep._replace(timeout=limit), case, len(by_id(self._records)) + 1)
        self._spent += time.monotonic() - started
        late = [record for record in measured if timed_out(record)]
        if late and limit < self._sweep.timeout:  # it says nothing of the setting, and is measured when this goes on
            for record in late:
                self._sweep.order(case, record.run).record_path.unlink()
            self._leave_out(case, f"no end after {limit:.0f} s, longer than the budget had")
            return
        self._records += measured
        if case.id not in by_id(self._records):  # not again and again
            self._leave_out(case, "it was interrupted from outside")

    def _leave_out(self, case: Case, why: str) -> None:
        self._left_out[case.id] = Cell(case, "not run", why)

    def cells(self) -> list[Cell]:
        """Return all cells.

        Raises:
            ValueError: the budget was too short for any.
        """
        if not self._records and not self._spent and self._shortest < math.inf:
            _reject_too_short(self._sweep, self._shortest)
        return [*by_id(self._records).values(), *self._left_out.values()]


def _reject_too_short(sweep: Sweep, shortest: float) -> None:
    msg = (
        f"--budget {sweep.asked.budget:.0f}s is too short for one cell: the shortest takes about {shortest:.0f} s "
        f"here; give --budget {shortest / 60 + 1:.0f}m or more"
    )
    raise ValueError(msg)


def known(sweep: Sweep) -> list[Record]:
    """Return the records of the cells that need no measuring: those that a sweep that goes on has already."""
    found = [record for record in _left(sweep.folder) if not (sweep.again and _raised(record))]
    whole = {case_id: [r for r in found if r.case_id == case_id] for case_id in dict.fromkeys(r.case_id for r in found)}
    return [r for runs in whole.values() for r in runs if _complete(runs, sweep.asked.runs)]


def _left(folder: Path) -> Iterator[Record]:
    """Yield the results of cells that are in ``folder``; half a record is none."""
    for path in sorted(folder.glob("*/run-*.record.json")):
        with contextlib.suppress(OSError, ValueError):
            record = read_record(path)
            if record.case.measure == "throughput" and is_result(record):
                yield record


def _raised(record: Record) -> bool:
    return cells_of([record])[0].outcome == "raised"


def _complete(runs: Sequence[Record], wanted: int) -> bool:
    return len(runs) >= wanted or any(run.status == "failed" for run in runs)


def by_id(records: Sequence[Record]) -> Cells:
    """Return the cells of these records by the id of their case."""
    return {cell.case.id: cell for cell in cells_of(records)}


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
