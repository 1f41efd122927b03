"""Baselines: approved values of one case on one device and torch minor. Read, check, write.

One file a case, ``<folder>/<device>/torch-<minor>/<case id>.json``. Only :func:`write_baseline` writes one, for whoever
holds :func:`writing`; what goes into it is decided in :mod:`perf.refresh`.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from perf.case import Case, Lane
from perf.locks import alone
from perf.pool import pooled_value
from perf.record import (
    Direction,
    Finite,
    Kind,
    Part,
    Record,
    explain,
    parse_json,
    reject_duplicates,
    remove_unfinished,
    write_model,
)

FOLDER = Path("baselines")
# In the folder of baselines. Another refresh writes for well under a second.
LOCK, LOCK_SECONDS = ".refresh.lock", 10.0

# What a baseline holds. Time and memory of the cpu lane depend on the machine, and its device is plain "cpu".
# Of quality it holds the seeds, which teach how far the next one may fall.
STORED: dict[Lane, frozenset[Kind]] = {
    "cpu": frozenset({"count-strict", "count-volume", "quality"}),
    "gpu": frozenset({"count-strict", "count-volume", "device", "wall", "quality"}),
}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Approval(_Model):
    """Who approved which values when, from which source, and why; ``host`` is the CPU model and count."""

    date: datetime.date
    by: str = Field(min_length=1)
    reason: str = Field(min_length=1)
    runs: int = Field(ge=1)
    rfdetr: str
    rfdetr_source: str
    rfdetr_commit: str | None = None
    suite: str
    suite_commit: str | None = None
    dirty: bool = False
    host: str


class Approved(_Model):
    """Values that were approved once: one a run, in ``unit``; ``approval`` is an index into the approvals."""

    runs: list[Finite] = Field(min_length=1)
    unit: str
    approval: int = Field(ge=0)


class BaselineSignal(Approved):
    """The approved values of one signal. ``parts`` are those of its pooled runs; ``history`` is oldest first."""

    name: str
    kind: Kind
    direction: Direction = "lower"
    parts: list[Part] = []
    history: list[Approved] = []

    @property
    def value(self) -> float:
        """The value that stands for the runs, in ``unit``."""
        return pooled_value(self.runs, self.kind, self.direction)

    @property
    def first_value(self) -> float | None:
        """The value that was approved first of all, in ``unit``; None where that was in another unit."""
        first = self.as_earlier()[0]
        return pooled_value(first.runs, self.kind, self.direction) if first.unit == self.unit else None

    def as_earlier(self) -> list[Approved]:
        """Return the history with the present values at its end."""
        return [*self.history, Approved(runs=self.runs, unit=self.unit, approval=self.approval)]


class RetiredSignal(_Model):
    """A signal that a refresh found gone; ``approval`` is the one that accepted this."""

    name: str
    kind: Kind
    direction: Direction = "lower"
    approval: int = Field(ge=0)
    history: list[Approved] = Field(min_length=1)


class Baseline(_Model):
    """Approved values of one case on one device and torch minor. ``power_limit_w`` is that of the GPU."""

    schema_version: Literal[1] = 1
    case_id: str
    case: Case
    device: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    torch_minor: str = Field(pattern=r"^\d+\.\d+$")
    power_limit_w: Finite | None = None
    made_with: dict[str, str | None]
    approvals: list[Approval] = Field(min_length=1)
    signals: list[BaselineSignal]
    retired: list[RetiredSignal] = []

    @model_validator(mode="after")
    def _consistent(self) -> Baseline:
        if self.case_id != self.case.id:
            msg = f"case_id {self.case_id!r} is not the id of its case, {self.case.id!r}"
            raise ValueError(msg)
        reject_duplicates((signal.name for signal in self._all()), "signal")
        self._check_approvals()
        return self

    def _all(self) -> list[BaselineSignal | RetiredSignal]:
        return [*self.signals, *self.retired]

    def _check_approvals(self) -> None:
        for signal in self._all():
            for index in (signal.approval, *(earlier.approval for earlier in signal.history)):
                if index >= len(self.approvals):
                    msg = f"signal {signal.name!r}: there is no approval {index}, only {len(self.approvals)}"
                    raise ValueError(msg)

    def signal(self, name: str) -> BaselineSignal | None:
        """Return the approved signal called ``name``, or None."""
        return next((signal for signal in self.signals if signal.name == name), None)


def baseline_path(folder: Path, device: str, torch_minor: str, case_id: str) -> Path:
    """Return where the baseline of this case lies."""
    return folder / device / f"torch-{torch_minor}" / f"{case_id}.json"


def read_baseline(path: Path) -> Baseline:
    """Read the baseline at ``path``.

    Raises:
        ValueError: unreadable, truncated, not finite, of another schema version, inconsistent, or not the baseline
            that its folder and file name say; names the path.
    """
    try:
        baseline = Baseline.model_validate(parse_json(path.read_text(encoding="utf-8")))
        _check_kinds(baseline)
    except (OSError, ValueError) as error:
        raise ValueError(explain(path, error)) from error
    place = baseline_path(Path(), baseline.device, baseline.torch_minor, baseline.case_id)
    if path.absolute().parts[-3:] != place.parts:
        msg = f"{path}: this is the baseline that belongs at {place}; move it there, or refresh it"
        raise ValueError(msg)
    return baseline


def _check_kinds(baseline: Baseline) -> None:
    lane = baseline.case.lane
    for signal in baseline.signals:
        if signal.kind not in STORED[lane]:
            msg = f"signal {signal.name!r}: the {lane} lane has no baseline for kind {signal.kind!r}"
            raise ValueError(msg)


def find_baseline(folder: Path, record: Record) -> Baseline | None:
    """Return the baseline for ``record``, or None where there is none.

    Raises:
        ValueError: there is one and it cannot be used (:func:`read_baseline`).
    """
    environment = record.environment
    path = baseline_path(folder, environment.device, environment.torch_minor, record.case_id)
    return read_baseline(path) if path.exists() else None


def approved_cases(folder: Path, device: str, torch_minor: str) -> list[str]:
    """Return the ids of the cases that have a baseline for this device and torch minor, sorted."""
    return sorted(path.stem for path in baseline_path(folder, device, torch_minor, "x").parent.glob("*.json"))


def approved_elsewhere(folder: Path, record: Record) -> list[Path]:
    """Return the baselines of this record's case on other devices, where its own has none for any torch minor."""
    found = sorted(path for path in folder.glob(f"*/torch-*/{record.case_id}.json"))
    devices = {path.parent.parent.name for path in found}
    return [] if record.environment.device in devices else found


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the only one that writes baselines in ``folder``; what a process that was killed left there goes first.

    Raises:
        ValueError: another process is writing and does not end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is writing baselines there and does not end; wait for it, and refresh again"
    with alone(folder / LOCK, busy, LOCK_SECONDS):
        for place in folder.glob("*/torch-*"):
            remove_unfinished(place)
        yield


def write_baseline(folder: Path, baseline: Baseline) -> Path:
    """Write ``baseline`` to its place under ``folder`` atomically, and return that place."""
    path = baseline_path(folder, baseline.device, baseline.torch_minor, baseline.case_id)
    write_model(path, baseline)
    return path
