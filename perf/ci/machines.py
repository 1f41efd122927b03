"""Machines and tiers: where a pull request is measured and how much of it, from one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from perf.matrix import pins_for

FILE = Path(__file__).resolve().parents[2] / ".github" / "perf-machines.yml"
COUNTS_AND_DEVICE = ("count-strict", "count-volume", "device", "quality")
ALL_KINDS = (*COUNTS_AND_DEVICE, "wall")


class Tier(NamedTuple):
    """How much is measured.

    ``suite`` is held base against head, interleaved, in at most ``pairs`` pairs a case and by the kinds of ``gate``;
    ``also`` is measured on the head alone and held against stored baselines. ``minutes``: then the job is ended.
    """

    name: str
    suite: str
    gate: Sequence[str]
    pairs: int
    also: str
    minutes: int


# Counts need one pair, GPU busy two; of three, one that was disturbed makes no false alarm (docs/comparing.md).
QUICK = Tier("quick", "quick", COUNTS_AND_DEVICE, 3, "collapse", 60)
# Ten pairs: eight are the least that prove a change of wall time.
FULL = Tier("full", "quick", ALL_KINDS, 10, "configs", 360)
NIGHTLY = Tier("nightly", "", ALL_KINDS, 1, "main", 120)
TIERS = {tier.name: tier for tier in (QUICK, FULL, NIGHTLY)}
# A label of a pull request asks for a tier.
LABELS = {f"perf:{tier.name}": tier for tier in (QUICK, FULL)}


# Names a job, an artifact and a folder.
CELL_ID = r"[a-z0-9][a-z0-9.-]{0,99}"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Machine(_Strict):
    """A kind of machine: labels of its runner, patterns of what its GPU is called, torch minors to measure with."""

    runs_on: list[str] = Field(alias="runs-on", min_length=1)
    devices: list[str] = Field(min_length=1)
    torch: list[str] = Field(min_length=1)
    enabled: bool = False


class Cell(_Strict):
    """One job: a tier on a machine with a torch minor. ``base`` and ``head`` are what to install; no base: no A/B.

    ``id`` names its job and its artifact.
    """

    id: str = Field(pattern=f"^{CELL_ID}$")
    machine: str
    runs_on: list[str]
    devices: list[str]
    torch: str = Field(pattern=r"^\d+\.\d+$")
    tier: str
    suite: str
    gate: str
    pairs: int
    also: str
    minutes: int
    base: str
    head: str

    def takes(self, device: str) -> bool:
        """Return whether this is a device that the machine's label promises."""
        return any(fnmatchcase(device, pattern) for pattern in self.devices)


CELLS = TypeAdapter(list[Cell])


def read_machines(path: Path = FILE) -> dict[str, Machine]:
    """Return the machines in ``path`` by name.

    Raises:
        ValueError: it cannot be read, or names a torch minor that is none; names the file.
    """
    try:
        found = TypeAdapter(dict[str, Machine]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
        for machine in found.values():
            for minor in machine.torch:
                pins_for(minor)
    except (OSError, ValidationError, ValueError, yaml.YAMLError) as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from error
    return found


def chosen(machines: Mapping[str, Machine], names: str) -> dict[str, Machine]:
    """Return the machines whose ``names``, with spaces between them, are asked for; all that are enabled for none.

    Raises:
        ValueError: an unknown one; lists the known ones.
    """
    asked = names.split() or [name for name, machine in machines.items() if machine.enabled]
    unknown = [name for name in asked if name not in machines]
    if unknown:
        msg = f"unknown machine {', '.join(unknown)}; known: {', '.join(machines)}"
        raise ValueError(msg)
    return {name: machines[name] for name in asked}


def cells_of(
    machines: Mapping[str, Machine], tier: Tier, base: str, head: str, minors: Sequence[str] | None = None
) -> list[Cell]:
    """Return a cell for each machine and torch minor: those of the machine, or ``minors``."""
    return [
        Cell(
            id=f"{name}-torch-{minor}-{tier.name}",
            machine=name,
            runs_on=machine.runs_on,
            devices=machine.devices,
            torch=minor,
            tier=tier.name,
            suite=tier.suite,
            gate=",".join(tier.gate),
            pairs=tier.pairs,
            also=tier.also,
            minutes=tier.minutes,
            base=base,
            head=head,
        )
        for name, machine in machines.items()
        for minor in (machine.torch if minors is None else minors)
    ]
