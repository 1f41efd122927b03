"""Run orders: what a run is told, and where its files go."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from perf.case import Case

# Set by the nox session: the torch minor that it made its environment for.
MINOR_VARIABLE = "RFDETR_PERF_TORCH_MINOR"


# Left by an A/B session in its folder, beside those of its two sides (perf.experiment).
MANIFEST = "ab.json"


# What a run leaves in place of a record that it did not begin.
CRASH = ".crash.txt"


def rank_stem(stem: Path, rank: int) -> Path:
    """Return the common start of the files of one rank: rank 0 has the run's own."""
    return stem.with_name(f"{stem.name}-rank-{rank}") if rank else stem


@dataclass(frozen=True)
class Order:
    """What a run was told: which case, as which run of which session, and where its files go.

    ``folder`` is the session's: that of its name, inside the records folder.

    ``patch`` is a Python file executed before rfdetr builds anything, to measure a change without installing it.
    ``untimed``: count only, since other runs may share the GPU. ``cold``: the case has an Inductor cache of its own.
    ``data``: the folder of the data set to train on, where it is not the generated one.
    ``python``: the interpreter of another environment, to measure the rfdetr that is installed there.
    ``turn``: the lock file by which runs beside each other take turns (perf.turns).
    ``rank``: which of the case's processes this is; rank 0 leaves the record of the run, the others one of their own.
    """

    case: Case
    session: str
    run: int
    folder: Path
    patch: Path | None = None
    untimed: bool = False
    cold: bool = False
    python: Path | None = None
    rank: int = 0
    data: Path | None = None
    turn: Path | None = None

    @property
    def stem(self) -> Path:
        """The common start of the run's files; each rank has its own."""
        return rank_stem(self.folder / self.case.id / f"run-{self.run}", self.rank)

    @property
    def record_path(self) -> Path:
        """Where the record goes. That of a rank is no record of a run, and so has another suffix."""
        return self.stem.with_suffix(".rank.json" if self.rank else ".record.json")

    @property
    def own_path(self) -> Path:
        """Where what this rank measured by itself goes: rank 0's record becomes that of all."""
        return self.record_path if self.rank else self.stem.with_name(f"{self.stem.name}-rank-0.rank.json")

    @property
    def crash_path(self) -> Path:
        """Where its parent tells how it ended, where that was before it began a record."""
        return self.stem.with_suffix(CRASH)

    @property
    def progress_path(self) -> Path:
        """Where the run tells how far it is."""
        return self.stem.with_suffix(".progress.log")

    @property
    def log_path(self) -> Path:
        """Where all that the run prints goes."""
        return self.stem.with_suffix(".log")

    @property
    def cache(self) -> Path:
        """The Inductor cache of the case in its session, where the session is ``cold``."""
        return self.stem.parent / "inductor"

    @property
    def command(self) -> str:
        """The command that makes such a run again."""
        minor = os.environ.get(MINOR_VARIABLE)
        suite = f"nox -s perf-{minor} --" if minor else "pytest tests/suite"
        files = (("patch", self.patch), ("data", self.data))
        paths = "".join(f" --{name} {shlex.quote(_relative(path))}" for name, path in files if path)
        flags = "".join(f" --{name}" for name in ("untimed", "cold") if getattr(self, name))
        return f"{suite} --case {self.case.id}{paths}{flags}"


def _relative(path: Path) -> str:
    """Return ``path`` relative to the working directory where it lies below it: shorter, and the same elsewhere."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
