"""Fetching: the artifacts of a workflow run, and how its jobs ended, into a folder; what is wrong is kept as text."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from perf.ci.artifacts import LIMITS, PREFIX, Limits, unpack
from perf.ci.github import GitHub
from perf.ci.machines import Cell


class Fetched(NamedTuple):
    """What a run left, by the id of a cell: the folder of its files, what came between, and how its job ended."""

    folders: Mapping[str, Path]
    problems: Mapping[str, str]
    conclusions: Mapping[str, str | None]


def fetch(github: GitHub, run: int, cells: Sequence[str], into: Path, limits: Limits = LIMITS) -> Fetched:
    """Fetch what the jobs of ``cells`` left. Artifacts of any other name are not looked at.

    Raises:
        OSError: GitHub does not say what the run left.
    """
    found = _newest(github.pages(f"actions/runs/{run}/artifacts", "artifacts"))
    folders, problems = {}, {}
    for name in cells:
        folders[name] = into / name
        # What an earlier try left is not this one's.
        shutil.rmtree(folders[name], ignore_errors=True)
        artifact = found.get(f"{PREFIX}{name}")
        if artifact is not None and (problem := _one(github, artifact, folders[name], limits)):
            problems[name] = problem
    return Fetched(folders, problems, _conclusions(github, run, cells))


def _newest(artifacts: Any) -> dict[str, dict[str, Any]]:
    """Return the artifacts by name; of those of several attempts the last."""
    ordered = sorted(artifacts, key=lambda artifact: int(artifact["id"]))
    return {str(artifact["name"]): artifact for artifact in ordered}


def _one(github: GitHub, artifact: Mapping[str, Any], folder: Path, limits: Limits) -> str:
    """Fetch and unpack one artifact; return what is wrong with it, and then leave nothing of it."""
    size = int(artifact.get("size_in_bytes", 0))
    if artifact.get("expired"):
        return "its artifact has expired"
    if size > limits.archive:
        return f"its artifact is {size} bytes large, and {limits.archive} are read at most"
    with tempfile.TemporaryDirectory() as temporary:
        archive = Path(temporary) / "artifact.zip"
        try:
            github.download(f"actions/artifacts/{int(artifact['id'])}/zip", archive, limits.archive)
            unpack(archive, folder, limits)
        except (ValueError, OSError, HTTPException) as error:
            shutil.rmtree(folder, ignore_errors=True)
            return f"its artifact cannot be used: {error}"
    return ""


def _conclusions(github: GitHub, run: int, cells: Sequence[str]) -> dict[str, str | None]:
    """Return how the job of each cell ended; its name ends with the cell's id, in a workflow that is called too.

    GitHub does not name the jobs of a matrix that was never begun: of those nothing is said.
    """
    ended = {_last(job): job.get("conclusion") for job in _jobs(github, run)}
    return {name: ended.get(name) for name in cells}


def job_names(github: GitHub, run: int) -> set[str]:
    """Return the names of the jobs of a run; of a called workflow's, what follows the caller's name."""
    return {_last(job) for job in _jobs(github, run)}


def _jobs(github: GitHub, run: int) -> Iterator[Any]:
    return github.pages(f"actions/runs/{run}/jobs", "jobs", filter="latest")


def _last(job: Mapping[str, Any]) -> str:
    return str(job.get("name", "")).split(" / ")[-1]


def planned(cells: Sequence[Cell]) -> list[str]:
    """Return the ids of cells."""
    return [cell.id for cell in cells]
