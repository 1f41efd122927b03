"""Expected cases: what must be among a session's records, so that a missing or renamed case is never silence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from perf.baselines import approved_cases
from perf.case import parse_id
from perf.configs import config_names, installed_source
from perf.record import Record, read_model, write_model

FILE_NAME = "session.json"


class Asked(BaseModel):
    """What a session was asked to measure: the ids, and whether that was all of its lane, nothing deselected.

    ``not_run`` says of the cases that this machine could not take why not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cases: list[str]
    full: bool
    not_run: dict[str, str] = Field(default={}, exclude_if=lambda found: not found)


def write_asked(folder: Path, asked: Asked, *, add: bool = False) -> Path:
    """Write what the session in ``folder`` was asked for, next to its records, and return that path.

    With ``add`` what it was asked for before stays.
    """
    path = folder / FILE_NAME
    if add and path.is_file():
        before = _read(path)
        cases = list(dict.fromkeys([*before.cases, *asked.cases]))
        asked = Asked(cases=cases, full=before.full or asked.full, not_run=before.not_run | asked.not_run)
    write_model(path, asked)
    return path


def read_asked(folder: Path) -> list[tuple[Path, Asked]]:
    """Return the folder of each session in ``folder`` and what it was asked for; none where it holds no such file.

    Raises:
        ValueError: such a file cannot be read; names it.
    """
    paths = sorted(folder.rglob(FILE_NAME)) if folder.is_dir() else []
    return [(path.parent, _read(path)) for path in paths]


def cases_not_run(records_folder: Path, records: Sequence[Record], cases: Collection[str] = ()) -> dict[str, str]:
    """Return the cases, of ``cases`` or of all, that the machine could not take and why; not those of ``records``.

    Raises:
        ValueError: what a session was asked for cannot be read; names the file.
    """
    measured = {record.case_id for record in records}
    found = {case_id: why for _, asked in read_asked(records_folder) for case_id, why in asked.not_run.items()}
    return {case_id: why for case_id, why in found.items() if case_id not in measured and case_id in (cases or found)}


def expected_cases(
    records_folder: Path, records: Sequence[Record], baselines: Path, taken: Collection[Path] | None = None
) -> list[str]:
    """Return the ids that must be among ``records``: those asked for and, in a full session, those that are gone.

    Gone is a case that is approved for the records' device and torch minor and that is none any more: renamed, or its
    config dropped by rfdetr. Records alone do not say what was asked for, and then nothing is expected.
    ``taken`` are the files of the records: nothing is expected of a session that has others, and none of these.

    Raises:
        ValueError: what a session was asked for cannot be read; names the file.
    """
    asked = [session for folder, session in read_asked(records_folder) if _counts(folder, taken)]
    expected = [case_id for session in asked for case_id in session.cases]
    if any(session.full for session in asked):
        expected += _gone(records, baselines)
    return list(dict.fromkeys(expected))


def _counts(session: Path, taken: Collection[Path] | None) -> bool:
    left = list(session.rglob("*.record.json"))
    return taken is None or not left or any(path in taken for path in left)


def _gone(records: Sequence[Record], baselines: Path) -> list[str]:
    places = {(record.environment.device, record.environment.torch_minor) for record in records}
    approved = [case_id for place in sorted(places) for case_id in approved_cases(baselines, *place)]
    return [case_id for case_id in approved if not _known(case_id)]


def _known(case_id: str) -> bool:
    case = parse_id(case_id)
    # Where there is no rfdetr, nobody can say that it dropped a config.
    return case is not None and (installed_source() is None or case.config in config_names())


def _read(path: Path) -> Asked:
    return read_model(path, Asked)
