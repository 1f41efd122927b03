"""The compile matrix: which config compiles on which rfdetr release and torch minor, and whether it pays.

Records -> rows of the committed store, one line of JSON each. :mod:`perf.report.compile_matrix` makes the document
from the store alone, so that it can be made, and checked, where no record is.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from perf.case import Backend, Case, Lane, parse_id
from perf.environment import Environment
from perf.errors import error_line
from perf.gates import fallen_back
from perf.probes.source import without_folders
from perf.record import Finite, Part, Record, is_patched
from perf.report.humanize import seconds
from perf.stores import read_rows, rows_text

STORE = Path("docs/compile-matrix.jsonl")
DOCUMENT = Path("docs/compile-matrix.md")

Outcome = Literal["eager", "compiled", "fell back", "not compiled", "raised", "cannot be imported"]
Cache = Literal["cold", "warm", "none"]
# Worst last: what stands for runs that differ.
CUT_OFF = "cut off before the validation loop was compiled"
OUTCOMES: tuple[Outcome, ...] = ("eager", "compiled", "fell back", "not compiled", "raised", "cannot be imported")

# On these the runs of a row must agree.
COUNTS = ("frames", "model_frames", "frames_failed", "graphs", "graph_breaks", "recompiles")
EVALUATION = ("eval_frames", "eval_frames_failed", "eval_graphs", "eval_graph_breaks", "eval_recompiles")
PARITY = ("parity_mismatches", "parity_ties", "parity_unresolved")
SHAPES = ("distinct_shapes", "recompile_limit", "recompile_limit_hits", "eager_steps", "pos_embed_interpolations")
_TOLD = (*COUNTS, *EVALUATION, *PARITY, *SHAPES)
# Not counts: in the signal's own unit, ms but for the difference, which is in tolerances.
FIGURES = ("gpu_busy", "pos_embed_time", "parity_difference")
_REASONS = (
    "frames_failed",
    "graph_breaks",
    "recompiles",
    "eval_graph_breaks",
    "eval_recompiles",
    "eval_frames_failed",
    "shapes",
    "pos_embed_interpolations",
    "parity_mismatches",
    "parity_ties",
)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class First(_Model):
    """The first step: seconds, median over ``runs`` runs, measured on ``date``."""

    seconds: Finite
    runs: int = Field(ge=1)
    date: datetime.date


class Row(_Model):
    """What is known of one case on one device with one torch minor and one rfdetr.

    ``rfdetr`` is the version, with where it came from unless that is the release. ``eager`` is the id of the same case
    without compile. ``first`` is keyed by what Inductor's cache held: ``cold``, ``warm``, or ``none`` where it was not
    asked. ``step_seconds`` is the median of the runs' own medians, and so are the ``figures`` (:data:`FIGURES`).
    ``differing`` says on what the runs disagree.
    """

    case_id: str
    device: str
    torch_minor: str = Field(pattern=r"^\d+\.\d+$")
    rfdetr: str
    config: str
    lane: Lane
    batch: int = Field(ge=1)
    backend: Backend
    eager: str
    torch: str
    transformers: str | None
    python: str
    outcome: Outcome
    why: str = ""
    runs: int = Field(ge=1)
    differing: list[str] = []
    counts: dict[str, Finite] = {}
    reasons: dict[str, list[Part]] = {}
    first: dict[Cache, First] = {}
    step_seconds: Finite | None = None
    figures: dict[str, Finite] = {}
    suite_commit: str | None
    measured: datetime.datetime

    @property
    def case(self) -> Case | None:
        """The case, if its id is one of this version of the suite."""
        return parse_id(self.case_id)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a newer row of replaces this one."""
        return (self.case_id, self.device, self.torch_minor, self.rfdetr)


def rows_of(records: Iterable[Record]) -> list[Row]:
    """Return the rows that the records make; of a key's records those of its newest session count.

    A patched rfdetr is nobody's release, and a run that was stopped before its training steps were counted tells
    nothing: they make none.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in {(*_key(record), record.session, record.run): record for record in records}.values():
        if not is_patched(record) and (_is_counted(record) or not _is_cut_off(record)):
            groups.setdefault(_key(record), []).append(record)
    return merged([], [_row(runs) for group in groups.values() for runs in _sessions(group)])


def _is_cut_off(record: Record) -> bool:
    stopped = re.match(r"KeyboardInterrupt\b|SystemExit\b", error_line(record.error))
    return record.status == "running" or (record.status == "failed" and stopped is not None)


def _is_counted(record: Record) -> bool:
    """Return whether the training steps of a run were counted, whatever became of it then."""
    return record.signal(COUNTS[-1]) is not None


def _key(record: Record) -> tuple[str, ...]:
    found = record.environment
    return (record.case_id, found.device, found.torch_minor, rfdetr_name(found))


def rfdetr_name(environment: Environment) -> str:
    """Return the version of rfdetr, and where it came from unless it is the release of that version."""
    version, source = environment.rfdetr, environment.rfdetr_source
    changed = " with uncommitted changes" if environment.rfdetr_dirty and "patched" not in source else ""
    commit = f" at {environment.rfdetr_commit[:9]}" if environment.rfdetr_commit else ""
    return version if source == f"release {version}" else f"{version} ({source}{commit}{changed})"


def _sessions(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records by session, the oldest session first."""
    sessions: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.started):
        sessions.setdefault(record.session, []).append(record)
    return list(sessions.values())


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return the rows by key, the last measured of each.

    A time that the later row has none of, of a first step with a cold cache say, is taken over, if torch is the same.
    """
    rows: dict[tuple[str, ...], Row] = {}
    for row in (*old, *new):
        before = rows.get(row.key)
        rows[row.key] = row if before is None else _replaced(before, row)
    return [rows[key] for key in sorted(rows, key=_order)]


def _replaced(before: Row, row: Row) -> Row:
    older, newer = (row, before) if row.measured < before.measured else (before, row)
    if newer.why.endswith(CUT_OFF) and not older.why.endswith(CUT_OFF):
        return older
    if _setting_of(older) != _setting_of(newer) or newer.outcome not in ("eager", "compiled"):
        return newer
    first = dict(sorted({**older.first, **newer.first}.items()))
    step = older.step_seconds if newer.step_seconds is None else newer.step_seconds
    return newer.model_copy(update={"first": first, "step_seconds": step})


def _setting_of(row: Row) -> tuple[object, ...]:
    """Return what has to be the same for a time to stand for another session's too."""
    return (row.outcome, row.torch, row.transformers, row.python, row.counts.get("graphs"))


def _order(key: tuple[str, ...]) -> tuple[object, ...]:
    case_id, device, minor, rfdetr = key
    return (device, version_key(rfdetr), version_key(minor), case_id)


def version_key(text: str) -> tuple[tuple[int, ...], str]:
    """Return what sorts versions as versions: 2.9 before 2.14."""
    found = re.match(r"[\d.]*\d", text)
    return (tuple(int(part) for part in found[0].split(".") if part) if found else (), text)


def _row(runs: Sequence[Record]) -> Row:
    last = runs[-1]
    found, case = last.environment, last.case
    outcomes = [outcome(record) for record in runs]
    worst = max(outcomes, key=lambda pair: OUTCOMES.index(pair[0]))
    compared = [record for record in runs if record.status == "finished"] or list(runs)
    told = next((record for record in reversed(compared) if record.signals), compared[-1])
    return Row(
        case_id=last.case_id,
        device=found.device,
        torch_minor=found.torch_minor,
        rfdetr=rfdetr_name(found),
        config=case.config,
        lane=case.lane,
        batch=case.batch_size * case.ranks,
        backend=case.backend,
        eager=case.eager.id,
        torch=found.torch,
        transformers=found.transformers,
        python=found.python,
        outcome=worst[0],
        why=worst[1],
        runs=len(runs),
        differing=_differing(compared, [name for name, _ in outcomes]),
        counts={name: signal.value for name in _TOLD if (signal := told.signal(name))},
        reasons={name: parts for name in _REASONS if (parts := _parts(told, name))},
        first=_first(compared),
        step_seconds=_median(filter(None, (_seconds(record, "step_time") for record in compared))),
        figures={name: value for name in FIGURES if (value := _figure(compared, name)) is not None},
        suite_commit=found.suite_state,
        measured=_last_start(runs),
    )


def outcome(record: Record) -> tuple[Outcome, str]:
    """Return what became of a case in one run, and why: which frames fell back, or the error's last line.

    Of a run that was cut off after its training steps that is what became of those.
    """
    cut_off = _is_cut_off(record) and _is_counted(record)
    if record.status != "finished" and not cut_off:
        last = error_line(record.error)
        imported = re.match(r"(ImportError|ModuleNotFoundError)\b", last)
        return ("cannot be imported" if imported else "raised", last)
    if not record.case.compile:
        return "eager", ""
    values = {name: signal.value for name in COUNTS if (signal := record.signal(name))}
    # A record of before there was model_frames has frames alone.
    if not values.get("model_frames", values.get("frames")):
        return "not compiled", f"{values.get('frames', 0):.0f} frames, none of them the model's own forward"
    for name in ("frames_failed", "eval_frames_failed"):
        failed = record.signal(name)
        if failed is not None and fallen_back(failed) > 0:
            return "fell back", "; ".join([*(part.name for part in _parts(record, name)), *[CUT_OFF] * cut_off])
    return "compiled", CUT_OFF if cut_off else ""


def _parts(record: Record, name: str) -> list[Part]:
    signal = record.signal(name)
    parts = signal.parts if signal else []
    return [part.model_copy(update={"name": without_folders(part.name)}) for part in parts]


def _differing(runs: Sequence[Record], outcomes: Sequence[str]) -> list[str]:
    """Return a line for each count, and for the outcome, in which the runs differ."""
    seen: dict[str, list[str]] = {"outcome": list(dict.fromkeys(outcomes))}
    for name in _TOLD:
        values = (record.signal(name) for record in runs)
        seen[name] = list(dict.fromkeys("none" if value is None else f"{value.value:g}" for value in values))
    return [f"{name}: {' or '.join(values)}" for name, values in seen.items() if len(values) > 1]


def _last_start(runs: Sequence[Record]) -> datetime.datetime:
    return max(record.started for record in runs).astimezone(datetime.UTC).replace(microsecond=0)


def _first(runs: Sequence[Record]) -> dict[Cache, First]:
    kinds: dict[Cache, list[float]] = {}
    for record in runs:
        value = _seconds(record, "first_step")
        if value is not None:
            kinds.setdefault(cache_state(record), []).append(value)
    date = _last_start(runs).date()
    return {kind: First(seconds=median(values), runs=len(values), date=date) for kind, values in sorted(kinds.items())}


def cache_state(record: Record) -> Cache:
    """Return whether Inductor's cache was cold, warm, or not asked: one graph that had to be compiled is cold."""
    hits, misses = record.signal("inductor_cache_hits"), record.signal("inductor_cache_misses")
    if misses is not None and misses.value:
        return "cold"
    return "warm" if hits is not None and hits.value else "none"


def _figure(runs: Sequence[Record], name: str) -> float | None:
    timed = [record for record in runs if not record.untimed or name == "parity_difference"]
    return _median(signal.value for record in timed if (signal := record.signal(name)))


def _seconds(record: Record, name: str) -> float | None:
    signal = None if record.untimed else record.signal(name)
    return seconds(signal.value, signal.unit) if signal else None


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None


def read_store(path: Path) -> list[Row]:
    """Return the rows of the store, as :func:`perf.stores.read_rows` does."""
    return read_rows(path, Row.model_validate, attrgetter("key"))


def store_text(rows: Iterable[Row]) -> str:
    """Return the store with these rows: sorted, one line each."""
    ordered = sorted(rows, key=lambda row: _order(row.key))
    return rows_text(ordered)


def pay_back(row: Row, eager: Row | None, cache: Cache) -> float | None:
    """Return after how many steps compiling has paid back: infinity for never, None where a time is missing."""
    if eager is None or cache not in row.first or "none" not in eager.first:
        return None
    if row.step_seconds is None or eager.step_seconds is None:
        return None
    lost, won = row.first[cache].seconds - eager.first["none"].seconds, eager.step_seconds - row.step_seconds
    return 0 if lost <= 0 <= won else math.ceil(lost / won) if won > 0 else math.inf
