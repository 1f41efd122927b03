"""Records: what one run leaves behind, as one JSON document."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from perf.case import Case
from perf.environment import Environment
from perf.gpus import GpuState

SCHEMA_VERSION: Literal[1] = 1

Kind = Literal["count-strict", "count-volume", "device", "wall", "quality", "info"]
# Part of ``rfdetr_source`` where a patch file was imported.
PATCHED = ", patched by "
# What depends on the machine's speed and its other work; a run that only counts has none of it.
TIMED: frozenset[Kind] = frozenset({"device", "wall"})
Direction = Literal["lower", "higher"]
Status = Literal["running", "finished", "failed"]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        msg = f"must be a finite number, not {value}"
        raise ValueError(msg)
    return value


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() else value


# Whole numbers are written without a fraction: most values are counts.
Finite = Annotated[float, AfterValidator(_finite), PlainSerializer(_plain)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Part(_Strict):
    """A share of a signal: ``name`` says what, free of line numbers, so that it survives unrelated edits.

    ``where`` holds the source lines (``file:line``) that contributed, most frequent first.
    """

    name: str
    value: Finite
    where: list[str] = Field(default=[], exclude_if=lambda lines: not lines)


class Signal(_Strict):
    """One named number of a run.

    ``value`` is the run's own summary (a count, or the median of ``samples``) in ``unit``; ``parts`` sum to it
    for counts. ``kind="info"`` is shown and never gated.
    """

    name: str
    kind: Kind
    unit: str
    value: Finite
    direction: Direction = "lower"
    samples: list[Finite] = []
    parts: list[Part] = []


class Record(_Strict):
    """One run of one case.

    ``untimed``: it only counted. ``evidence`` names files beside the record. ``flags`` are rfdetr's settings that
    differ from its defaults, by name; ``precision`` is what Lightning made of the case's.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    case_id: str
    case: Case
    session: str
    run: int = Field(ge=0)
    status: Status = "running"
    untimed: bool = False
    evidence: list[str] = []
    error: str | None = None
    command: str
    started: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    finished: AwareDatetime | None = None
    environment: Environment
    gpu_before: list[GpuState] = []
    gpu_after: list[GpuState] = []
    warmup_steps: int = 0
    adaptations: list[str] = []
    flags: dict[str, str] = Field(default={}, exclude_if=lambda flags: not flags)
    precision: str | None = Field(default=None, exclude_if=lambda precision: precision is None)
    notes: list[str] = []
    signals: list[Signal] = []

    @model_validator(mode="after")
    def _consistent(self) -> Record:
        if self.case_id != self.case.id:
            msg = f"case_id {self.case_id!r} is not the id of its case, {self.case.id!r}"
            raise ValueError(msg)
        reject_duplicates((signal.name for signal in self.signals), "signal")
        return self

    @property
    def seconds(self) -> float | None:
        """How long the run took, in s; None for one that has not ended."""
        return (self.finished - self.started).total_seconds() if self.finished else None

    def signal(self, name: str) -> Signal | None:
        """Return the signal called ``name``, or None."""
        return next((signal for signal in self.signals if signal.name == name), None)


def reject_duplicates(names: Iterable[str], what: str) -> None:
    """Raise ValueError naming the first of ``names`` that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            msg = f"duplicate {what} {name!r}"
            raise ValueError(msg)
        seen.add(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader, or a crash, sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        # mkstemp makes files private; these are to be read by others as far as the umask allows.
        os.fchmod(handle, 0o666 & ~_umask())
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (tests interrupt it here)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def file_digest(path: Path) -> str:
    """Return what tells one text of a file from another: the SHA-256 of its bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# The file in the making, as tempfile names it.
_UNFINISHED = re.compile(r"\..+\.json\.[a-z0-9_]{8}")


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed left of the JSON files that they wrote to ``folder``.

    Only for whoever knows that no process is writing there now.
    """
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_model(path: Path, model: BaseModel) -> None:
    """Write ``model`` to ``path`` atomically, as JSON that reads and diffs well: a line for each small object."""
    write_atomically(path, _lines(model.model_dump(mode="json"), "") + "\n")


def _lines(value: object, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False) if _is_small(value) else None
    if flat is not None or not value:
        return flat or json.dumps(value)
    deeper = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_lines(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}}}"
    assert isinstance(value, list)
    return "[\n" + ",\n".join(deeper + _lines(item, deeper) for item in value) + f"\n{indent}]"


def _is_small(value: object) -> bool:
    """Return whether ``value`` holds nothing but scalars and lists of scalars."""
    if isinstance(value, dict):
        return all(not isinstance(item, dict) and _is_small(item) for item in value.values())
    return not isinstance(value, list) or not any(isinstance(item, dict | list) for item in value)


def write_record(path: Path, record: Record) -> None:
    """Write ``record`` to ``path`` atomically."""
    write_model(path, record)


def explain(path: Path, error: Exception) -> str:
    """Return one line that names ``path`` and what pydantic, json or the reader found wrong in it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{path}: not whole JSON, was it cut short? ({error}); restore it, or make it again"
    if isinstance(error, ValidationError):
        first = min(error.errors(), key=lambda found: found["loc"] != _SCHEMA)
        if first["loc"] == _SCHEMA:
            return f"{path}: {_other_schema(first['input'])}"
        place = ".".join(str(step) for step in first["loc"])
        return f"{path}: {place + ': ' if place else ''}{first['msg']}"
    return f"{path}: {error}"


# A file of another schema may be wrong in much else; this says why.
_SCHEMA = ("schema_version",)


def _other_schema(version: object) -> str:
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return f"schema_version {version}, and this rfdetr-perf reads {SCHEMA_VERSION}: a newer one wrote it, so update"
    return f"schema_version {version!r}, and this rfdetr-perf reads {SCHEMA_VERSION} only: make the file again"


def parse_json(text: str) -> object:
    """Parse JSON strictly: NaN, infinities and a key given twice are errors.

    Raises:
        ValueError: the text is not such JSON; the message says what and where.
    """

    def no_constant(token: str) -> float:
        msg = f"{token} is not a number that can be judged"
        raise ValueError(msg)

    def no_repeat(pairs: list[tuple[str, object]]) -> dict[str, object]:
        reject_duplicates((key for key, _ in pairs), "key")
        return dict(pairs)

    try:
        return json.loads(text, parse_constant=no_constant, object_pairs_hook=no_repeat)
    except RecursionError:
        msg = "nested too deeply to be one of this suite's files"
        raise ValueError(msg) from None


def is_patched(record: Record) -> bool:
    """Return whether the run measured rfdetr with a patch file (``--patch``), which makes no baseline."""
    return PATCHED in record.environment.rfdetr_source


Told = TypeVar("Told", bound=BaseModel)


def read_model(path: Path, model: type[Told]) -> Told:
    """Read the JSON document at ``path``, which is one of ``model``.

    Raises:
        ValueError: unreadable, truncated, of another schema version, or inconsistent; names the path.
    """
    try:
        return model.model_validate(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ValueError(explain(path, error)) from error


def read_record(path: Path) -> Record:
    """Read the record at ``path``.

    Raises:
        ValueError: as :func:`read_model`.
    """
    return read_model(path, Record)


def read_records(folder: Path) -> list[Record]:
    """Read every ``*.record.json`` under ``folder``, sorted by case id and run.

    Raises:
        ValueError: no record there, or one cannot be read; names every such file.
    """
    files, problems = read_files(folder)
    if problems:
        raise ValueError("\n".join(problems))
    return list(files.values())


def read_any(folder: Path) -> list[Record]:
    """Return what :func:`read_records` does; nothing where there is no record, or no such folder."""
    return read_records(folder) if any(folder.rglob("*.record.json")) else []


def read_files(folder: Path) -> tuple[dict[Path, Record], list[str]]:
    """Return the records under ``folder`` by path, sorted by case id and run, and what is wrong with the other files.

    Raises:
        ValueError: no such file there.
    """
    paths = sorted(folder.rglob("*.record.json")) if folder.is_dir() else [folder]
    if not paths:
        msg = f"{folder}: no *.record.json below it; run the suite first (nox -s perf-2.14)"
        raise ValueError(msg)
    files, problems = {}, []
    for path in paths:
        try:
            files[path] = read_record(path)
        except ValueError as error:
            problems.append(str(error))
    return dict(sorted(files.items(), key=lambda item: (item[1].case_id, item[1].run))), problems
