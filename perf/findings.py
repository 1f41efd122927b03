"""What the runs of one case found, over the runs: the median of each number, and how far the runs lie apart. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perf.case import Case
from perf.diagnosis import Budget
from perf.errors import error_line
from perf.probes.source import without_folders
from perf.record import Kind, Record

# Which words of a record's notes are about a signal that is missing, where the note does not name it.
_ABOUT: Mapping[str, tuple[str, ...]] = {
    "fit_step": ("phases",),
    "fit_gpu_busy": ("profile", "no device signals"),
    "fit_gpu_idle": ("profile", "no device signals"),
    "fit_kernels": ("profile", "no device signals"),
    "small_kernels": ("profile", "no device signals"),
    "kernel_time": ("profile", "no device signals"),
    "gpu_utilization": ("profile", "no device signals"),
    "gemm_time": ("gemm", "profile", "no device signals"),
    "gemm_rate": ("gemm", "profile", "no device signals"),
    "sync_wait": ("syncs", "waits", "profile", "no device signals"),
    "sync_counts": ("syncs", "shapes and lines", "no device signals"),
    "sync_cost": ("cost of logging", "no device signals"),
    "logging_cost": ("cost of logging",),
    "pos_embed": ("profile",),
    "phase_peak_memory": ("memory",),
}


class Spread(NamedTuple):
    """One number over runs: a value a run, in the order of the runs."""

    values: Sequence[float]
    kind: Kind
    unit: str

    @property
    def median(self) -> float:
        """The middle of the runs."""
        return statistics.median(self.values)

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(self.values)

    def over(self, divided: Callable[[float], float], unit: str) -> Spread:
        """Return what ``divided`` makes of each value, in ``unit``."""
        return Spread([divided(value) for value in self.values], self.kind, unit)


@dataclass(frozen=True)
class Runs:
    """All runs of one case on one side, also those that failed; empty where none was started."""

    case: Case
    records: Sequence[Record] = field(default=())

    @property
    def finished(self) -> list[Record]:
        """Those that measured to their end."""
        return [record for record in self.records if record.status == "finished"]

    @property
    def failures(self) -> list[str]:
        """What each run that failed, or was interrupted, ended with, without the folders of this machine."""
        ended = [record for record in self.records if record.status != "finished"]
        return [placeless(f"run {record.run}: {error_line(record.error)}") for record in ended]

    @property
    def notes(self) -> list[str]:
        """What the runs say of themselves, each once, without the folders of this machine."""
        return list(dict.fromkeys(placeless(note) for record in self.records for note in record.notes))

    def spread(self, name: str) -> Spread | None:
        """Return a signal over the runs that have it; None where none has."""
        found = [signal for record in self.finished if (signal := record.signal(name)) is not None]
        return Spread([one.value for one in found], found[0].kind, found[0].unit) if found else None

    def parts(self, name: str) -> dict[str, Spread]:
        """Return each part of a signal over the runs that have it, in the order of the first run."""
        found: dict[str, list[float]] = {}
        signals = [signal for record in self.finished if (signal := record.signal(name)) is not None]
        for part in (part for signal in signals for part in signal.parts):
            found.setdefault(part.name, []).append(part.value)
        return {part: Spread(values, signals[0].kind, signals[0].unit) for part, values in found.items()}

    def where(self, name: str) -> dict[str, list[str]]:
        """Return the source lines of each part of a signal, in any run."""
        found: dict[str, dict[str, None]] = {}
        for part in (p for record in self.finished if (s := record.signal(name)) for p in s.parts):
            found.setdefault(part.name, {}).update(dict.fromkeys(part.where))
        return {part: list(lines) for part, lines in found.items()}

    def missing(self, name: str) -> str:
        """Return why there is no signal called ``name``, in the words of the runs where they have any."""
        if not self.records:
            return f"{self.case.id} was not run"
        if not self.finished:
            return f"no run of {self.case.id} finished; {'; '.join(self.failures)}"
        about = [note for note in self.notes if _tells_of(note, (name, *_ABOUT.get(name, ())))]
        return "; ".join(about) or f"the records of {self.case.id} have no {name}"


# The folders of an absolute path: this machine's, and of a temporary file another in every run.
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.+-]+/)+")


def placeless(note: str) -> str:
    """Return ``note`` without the folders of this machine: it is there to be posted."""
    return _FOLDERS.sub("", without_folders(note))


def _tells_of(note: str, words: Iterable[str]) -> bool:
    return any(word.lower() in note.lower() for word in words)


def budgets(runs: Runs) -> list[Budget]:
    """Return what the diagnosis needs, one a run that has a step."""
    return [found for record in runs.finished if (found := _budget(record)) is not None]


def _budget(record: Record) -> Budget | None:
    step = record.signal("fit_step")
    if step is None:
        return None
    return Budget(
        step=step.value,
        input_wait=_part(record, "fit_step", "input_wait"),
        busy=_value(record, "fit_gpu_busy"),
        # Of an update under the profiler: that slows the host, not the loader.
        idle_waiting=_part(record, "fit_gpu_idle", "input_wait"),
        sync_wait=_value(record, "sync_wait"),
    )


def _value(record: Record, name: str) -> float | None:
    signal = record.signal(name)
    return None if signal is None else signal.value


def _part(record: Record, name: str, part: str) -> float | None:
    signal = record.signal(name)
    return next((one.value for one in signal.parts if one.name == part), None) if signal else None
