"""Sweeps that are stored: a folder of records, or one small file with their cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from perf.cells import Cell, cells_of
from perf.environment import Environment
from perf.input_rate import loader_rates
from perf.pool import host, made_with, pooling_key
from perf.recommend import best_loader_rates
from perf.record import Record, read_model, read_records, write_model
from perf.record_files import Narrowing, take
from perf.sweep import MANIFEST, read_asked


class Stored(BaseModel):
    """The cells of one device and the environment that they are of.

    ``unsupported`` says what could not be tried there, ``loader`` the images per second by config and workers. A cell's
    fields are those of :class:`perf.cells.Cell`.
    """

    model_config = ConfigDict(extra="forbid")

    environment: Environment
    cells: list[dict[str, object]]
    unsupported: dict[str, str] = {}
    loader: dict[str, dict[int, float]] = {}

    @model_validator(mode="after")
    def _whole(self) -> Stored:
        _ = self.found
        return self

    @property
    def found(self) -> list[Cell]:
        """The cells."""
        return TypeAdapter(list[Cell]).validate_python(self.cells)


def read_sweep(path: Path, narrowing: Narrowing = Narrowing()) -> Stored:  # noqa: B008  (immutable)
    """Return the sweep at ``path``: a folder of records, of one or more sweeps, or a file that was stored.

    Raises:
        ValueError: no cell there, files that cannot be read, or records of several devices, torch minors or releases of
            rfdetr; says which and what to do.
    """
    if path.is_file() and not path.name.endswith(".record.json"):
        return read_model(path, Stored)
    if path.is_dir() and not any(path.rglob("*.record.json")):
        msg = f"{path}: no record below it; measure first: rfdetr-perf sweep"
        raise ValueError(msg)
    records = list(take(path, narrowing).values())
    cells = cells_of(records)
    if not cells:
        msg = f"{path}: no cell of a sweep among its records; measure first: rfdetr-perf sweep"
        raise ValueError(msg)
    ours = [record for record in records if record.case.measure == "throughput"]
    _check_alike(path, ours)
    return Stored(
        environment=ours[0].environment,
        cells=[_plain(cell) for cell in cells],
        unsupported=_unsupported(path),
        loader=best_loader_rates(record for record in records if record.case.lane == ours[0].case.lane),
    )


def _plain(cell: Cell) -> dict[str, object]:
    found = cell._asdict()
    return {**found, "case": cell.case.model_dump(exclude_defaults=True)}


def _check_alike(path: Path, records: Sequence[Record]) -> None:
    """Raise ValueError where cells differ in what would be taken for a setting's effect."""
    for record in records:
        if told := differing(records[0].environment, record.environment):
            msg = f"{path}: {records[0].case_id} and {record.case_id} were measured with {told}: give one sweep"
            raise ValueError(msg)


def loader_for(sweep: Stored, path: Path) -> dict[str, dict[int, float]]:
    """Return what the records at ``path`` say of the loader, by config and workers.

    Raises:
        ValueError: none of them measured it, or one did on another processor or lane than the sweep's; says which.
    """
    records = [record for record in read_records(path) if loader_rates(record.signals)]
    if not any(record.status == "finished" for record in records):
        msg = f"{path}: no record there measured the loader; measure it first: pytest tests/suite --suite input"
        raise ValueError(msg)
    here = host(sweep.environment), sweep.found[0].case.lane
    for record in records:
        if (there := (host(record.environment), record.case.lane)) != here:
            told = " and ".join(f"{processor}, {lane} lane" for processor, lane in (there, here))
            msg = f"{path}: {record.case_id} and the sweep were measured with {told}: the one says nothing of the other"
            raise ValueError(msg)
    return best_loader_rates(records)


def differing(first: Environment, second: Environment) -> str:
    """Return in what two environments differ, of what rates depend on; empty for nothing."""
    one, two = _key(first), _key(second)
    return ", ".join(f"{name} {one[name]} and {two[name]}" for name in one if one[name] != two[name])


def _key(environment: Environment) -> dict[str, object]:
    return {**pooling_key(environment), **made_with(environment), "cpu_model": environment.cpu_model}


def _unsupported(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for manifest in sorted(path.rglob(MANIFEST)) if path.is_dir() else []:
        found |= read_asked(manifest.parent).unsupported
    return found


def store(path: Path, sweep: Stored) -> None:
    """Write a sweep's cells to ``path``, whole or not at all."""
    write_model(path, sweep)
