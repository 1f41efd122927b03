"""Where a process stands among others: its rank, its node, and the scheduler that started it, from the environment.

Imports no torch. Ranks are numbered as torchrun or Slurm's srun numbers them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from perf.case import Case


class Place(NamedTuple):
    """The place of a process in a group of them: ``rank`` of ``world``, ``local_rank`` of those on its node."""

    rank: int = 0
    local_rank: int = 0
    world: int = 1


class Cluster(BaseModel):
    """What launched a run where more than one process or a scheduler did; names are the scheduler's own.

    ``job`` is the scheduler's id of the job, and ``details`` what else tells it from others: partition, hosts, task.
    """

    model_config = ConfigDict(extra="forbid")

    nodes: int = 1
    node_rank: int = 0
    ranks: int = 1
    launcher: str | None = None
    scheduler: str | None = None
    job: str | None = None
    details: dict[str, str] = {}


class _Scheduler(NamedTuple):
    job: str
    details: tuple[str, ...]


# The variable that holds the job's id, and those that say more, in the order in which they are looked for. A scheduler
# that is not among them is told by the user.
_SCHEDULERS = {
    "slurm": _Scheduler(
        "SLURM_JOB_ID",
        ("SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_ARRAY_TASK_ID", "SLURM_CLUSTER_NAME"),
    ),
    "github": _Scheduler("GITHUB_RUN_ID", ("GITHUB_JOB", "GITHUB_RUN_ATTEMPT", "RUNNER_NAME", "GITHUB_SHA")),
    "other": _Scheduler("RFDETR_PERF_JOB", ()),
}
# Of torchrun, and of srun: rank, rank on the node, number of ranks.
_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
# Set by torchrun alone: RANK may be anybody's.
ELASTIC_RUN = "TORCHELASTIC_RUN_ID"


def launcher(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return what started this process as one of several: ``torchrun`` or ``srun``; None where nothing did."""
    if ELASTIC_RUN in environ and all(name in environ for name in _TORCHRUN):
        return "torchrun"
    return "srun" if "SLURM_STEP_ID" in environ and all(name in environ for name in _SRUN) else None


def has_own_cores(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether srun started this process as one of several: it gives each of them cores."""
    return launcher(environ) == "srun" and int(environ[_SRUN[-1]]) > 1


def place(case: Case, environ: Mapping[str, str] = os.environ) -> Place:
    """Return the place of this process in a run of ``case``: the first of one, unless the case is distributed.

    Raises:
        ValueError: as many processes were started as the case does not want; says how many it wants.
    """
    names = {"torchrun": _TORCHRUN, "srun": _SRUN}.get(launcher(environ) or "")
    if not case.distributed:
        return Place()
    found = Place(*(int(environ[name]) for name in names)) if names else Place()
    if found.world != case.ranks:
        msg = f"{case.id} wants {case.ranks} processes ({case.devices} a node), and {found.world} were started"
        raise ValueError(msg)
    return found


def cluster(case: Case, environ: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return what launched a run of ``case``; None for a single process that no scheduler started."""
    scheduler = next((name for name, found in _SCHEDULERS.items() if found.job in environ), None)
    started = launcher(environ) if case.distributed else None
    if scheduler is None and started is None:
        return None
    known = _SCHEDULERS[scheduler] if scheduler else _Scheduler("", ())
    return Cluster(
        nodes=case.nodes,
        node_rank=place(case, environ).rank // case.devices if started else 0,
        ranks=case.ranks,
        launcher=started,
        scheduler=scheduler,
        job=environ.get(known.job),
        details={name: environ[name] for name in known.details if name in environ},
    )


def session_name(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return a session's name that all processes of one launch agree on; None where nothing launched them."""
    for prefix, name in (("slurm", "SLURM_JOB_ID"), ("torchrun", ELASTIC_RUN)):
        if name in environ:
            return f"{prefix}-{environ[name]}"
    return None
