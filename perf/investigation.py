"""Investigations: what was asked for, as it lies in a folder, and the runs that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.case import Case, find_case
from perf.findings import Runs
from perf.record import Record, read_files, read_model

MANIFEST = "investigation.json"
Side = Literal["base", "head"]
BASE: Side = "base"
HEAD: Side = "head"
# The data set of an investigation that is given none, and so a part of its cases' ids.
PHOTOGRAPHS = "photographs"
# Left by ``rfdetr-perf traceml`` in the folder.
TRACEML = "traceml"


class Investigation(BaseModel):
    """What was asked for. ``head`` is a candidate: a Python file that its runs import before rfdetr is built.

    ``runs`` a case, or as many as fit into ``budget`` seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cases: list[str] = Field(min_length=1)
    runs: int = Field(ge=1)
    budget: float | None = Field(default=None, gt=0)
    head: str = ""
    head_sha256: str = ""
    data: str = ""
    command: str = ""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are measured."""
        return (BASE, HEAD) if self.head else (BASE,)


class Found(NamedTuple):
    """An investigation and what its folder holds: runs by side and case id, and what is wrong with other files."""

    folder: Path
    asked: Investigation
    sides: dict[Side, dict[str, Runs]]
    problems: list[str]

    def of(self, measure: str, *, compiled: bool = False, side: Side = BASE) -> Runs | None:
        """Return the runs of the first case that measures so; None where none was asked for."""
        cases = self.sides.get(side, {}).values()
        return next((one for one in cases if one.case.measure == measure and one.case.compile == compiled), None)

    @property
    def records(self) -> list[Record]:
        """All records, by side, case and run."""
        return [record for cases in self.sides.values() for runs in cases.values() for record in runs.records]


def read_manifest(folder: Path) -> Investigation:
    """Return what the investigation in ``folder`` was asked for.

    Raises:
        ValueError: no such file, or it cannot be read; names it.
    """
    return read_model(folder / MANIFEST, Investigation)


def read_found(folder: Path) -> Found:
    """Return the investigation in ``folder`` with all its runs. A file that cannot be read is told, not fatal.

    Raises:
        ValueError: as :func:`read_manifest`; or a case that no id of this suite names.
    """
    asked = read_manifest(folder)
    cases = [find_case(case_id) for case_id in asked.cases]
    sides: dict[Side, dict[str, Runs]] = {}
    problems: list[str] = []
    for side in asked.sides:
        records, wrong = _records(folder / side)
        problems += wrong
        sides[side] = {case.id: _runs(case, records) for case in cases}
    return Found(folder, asked, sides, problems)


def _records(folder: Path) -> tuple[Sequence[Record], list[str]]:
    if not any(folder.rglob("*.record.json")):
        return [], []
    files, problems = read_files(folder)
    return list(files.values()), problems


def _runs(case: Case, records: Sequence[Record]) -> Runs:
    return Runs(case, [record for record in records if record.case_id == case.id])
