"""The fingerprint: where a run was made. Imports neither torch nor rfdetr."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field

from perf.case import Lane
from perf.cluster import Cluster
from perf.gpus import gpu_fields


class Environment(BaseModel):
    """Fingerprint of one run. ``device`` names the baseline folder: ``cpu`` or e.g. ``nvidia-h200``.

    ``cluster`` is there where a scheduler or several processes were at work.
    """

    model_config = ConfigDict(extra="forbid")

    # These two name folders, of baselines and of the trend: no path may come of them.
    device: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    gpu_name: str | None = None
    gpu_count: int = 0
    gpu_memory_bytes: int | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    torch: str
    torch_minor: str = Field(pattern=r"^\d+\.\d+$")
    torchvision: str | None = None
    triton: str | None = None
    python: str
    rfdetr: str
    rfdetr_source: str
    rfdetr_commit: str | None = None
    rfdetr_dirty: bool | None = None
    transformers: str | None = None
    pytorch_lightning: str | None = None
    numpy: str | None = None
    cpu_model: str
    cpu_count: int
    system: str
    suite: str
    suite_commit: str | None = None
    suite_dirty: bool | None = None
    threads: dict[str, str] = {}
    cluster: Cluster | None = Field(default=None, exclude_if=lambda found: found is None)
    # What a training learned from and how: data set and recipe. Others cannot be compared with it.
    workload: str | None = None

    @property
    def suite_state(self) -> str | None:
        """The suite's commit, shortened, and whether it had changes; None where no commit is known."""
        commit = self.suite_commit
        return f"{commit[:9]}{' with changes' if self.suite_dirty else ''}" if commit else None


def collect(lane: Lane) -> Environment:
    """Return the fingerprint of this process's environment for a run on ``lane``.

    Imports torch, to ask which CUDA and cuDNN it was built with and which GPUs it sees. On the cpu lane
    the GPU fields stay empty: they do not bear on its signals.

    Raises:
        RuntimeError: torch or rfdetr is not installed here.
    """
    rfdetr = _rfdetr_distribution()
    source = rfdetr_source(rfdetr)
    suite_commit, suite_dirty = _suite_state(Path(__file__).resolve().parent.parent)
    return Environment(
        **gpu_fields() if lane == "gpu" else {"device": "cpu"},
        **_torch_fields(),
        torchvision=_version("torchvision"),
        triton=_version("triton"),
        python=platform.python_version(),
        rfdetr=rfdetr.version,
        rfdetr_source=source.text,
        rfdetr_commit=source.commit,
        rfdetr_dirty=source.dirty,
        transformers=_version("transformers"),
        pytorch_lightning=_version("pytorch-lightning"),
        numpy=_version("numpy"),
        cpu_model=cpu_model(),
        cpu_count=usable_cpus(),
        system=platform.platform(),
        suite=_version("rfdetr-perf") or "not installed",
        suite_commit=suite_commit,
        suite_dirty=suite_dirty,
        threads=_threads(),
    )


def software() -> dict[str, str | None]:
    """Return what is installed here, of what an :class:`Environment` names and counts depend on; imports none of it."""
    rfdetr = _rfdetr_distribution()
    return {
        "torch": _version("torch"),
        "rfdetr": rfdetr.version,
        "rfdetr_commit": rfdetr_source(rfdetr).commit,
        "transformers": _version("transformers"),
        "pytorch_lightning": _version("pytorch-lightning"),
        "python": platform.python_version(),
    }


def changed_since(measured: Iterable[Environment]) -> str:
    """Return what of :func:`software` is another now than in the first of ``measured`` that differs; empty for none."""
    now = software()
    for found in measured:
        changed = [f"{name} {then}, now {now[name]}" for name in now if (then := getattr(found, name)) != now[name]]
        if changed:
            return ", ".join(changed)
    return ""


# Names the commit of a copy of this repository that travelled without its history, into a container say.
COMMIT_VARIABLE = "RFDETR_PERF_COMMIT"


def _suite_state(root: Path) -> tuple[str | None, bool | None]:
    """Return the suite's commit and whether it has changes: as git says, else as :data:`COMMIT_VARIABLE` claims."""
    commit, dirty = checkout_state(root)
    claimed = os.environ.get(COMMIT_VARIABLE)
    return (claimed, False) if commit is None and claimed else (commit, dirty)


# What a run's result can depend on besides versions and hardware.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def minor_of(version: str) -> str:
    """Return the minor of a torch version: ``2.14`` for ``2.14.1+cu130``."""
    major, minor = Version(version).release[:2]
    return f"{major}.{minor}"


def _torch_fields() -> dict[str, Any]:
    version = _version("torch")
    if version is None:
        msg = "torch is not installed in this environment; run the suite through nox (nox -s perf-2.14)"
        raise RuntimeError(msg)
    import torch

    cudnn = torch.backends.cudnn.version()
    return {
        "torch": version,
        "torch_minor": minor_of(version),
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
    }


def _threads() -> dict[str, str]:
    settings = {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
    torch = sys.modules.get("torch")
    if torch is not None:
        settings["torch"] = str(torch.get_num_threads())
    return settings


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the CPU's model name, or what little the platform says of it."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine() or "unknown"


def usable_cpus() -> int:
    """Return how many logical CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor(model: str, count: int) -> str:
    """Return a CPU's model and count in one text; wall time depends on it."""
    return f"{model} x{count}"


def machine(lane: Lane) -> tuple[str, str]:
    """Return what a run on ``lane`` would name here as its device, and the processor. Imports no torch.

    Raises:
        ValueError: the gpu lane, and there is no GPU.
    """
    try:
        device = "cpu" if lane == "cpu" else str(gpu_fields()["device"])
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return device, processor(cpu_model(), usable_cpus())


@dataclass(frozen=True)
class Source:
    """Where an installed distribution came from, free of credentials and of this machine's paths."""

    text: str
    commit: str | None = None
    dirty: bool | None = None


def _rfdetr_distribution() -> metadata.Distribution:
    try:
        return metadata.distribution("rfdetr")
    except metadata.PackageNotFoundError:
        msg = "rfdetr is not installed in this environment; run the suite through nox (nox -s perf-2.14)"
        raise RuntimeError(msg) from None


def rfdetr_source(distribution: metadata.Distribution) -> Source:
    """Return where ``distribution`` was installed from, as its PEP 610 ``direct_url.json`` tells."""
    text = distribution.read_text("direct_url.json")
    if text is None:
        return Source(f"release {distribution.version}")
    origin = json.loads(text)
    url = _public_url(origin["url"])
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return Source(f"{vcs['vcs']}+{url}", commit=vcs.get("commit_id"), dirty=False)
    if "dir_info" in origin:
        commit, dirty = checkout_state(Path(unquote(urlsplit(origin["url"]).path)))
        return Source(f"local {url}", commit=commit, dirty=dirty)
    return Source(f"archive {url}")


def _public_url(url: str) -> str:
    """Return ``url`` without credentials, or the last part of a path of this machine."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return PurePosixPath(unquote(parts.path)).name
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def checkout_state(root: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the git checkout at ``root`` and whether it has changes; None where git cannot say."""
    # Without this check git would answer for a repository that merely encloses root.
    if not (root / ".git").exists():
        return None, None
    changes = _git(root, "status", "--porcelain")
    return _git(root, "rev-parse", "HEAD"), None if changes is None else changes != ""


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
