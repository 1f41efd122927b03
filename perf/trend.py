"""Trend: what nights measured, a line for each session of a case, and where a signal changed for good. Not in the gate.

One file a case, ``<folder>/<device>/torch-<minor>/<case id>.jsonl``, oldest line first.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict

from perf.baselines import baseline_path
from perf.locks import alone
from perf.pool import by_case, by_signal, pooled
from perf.record import Direction, Finite, Kind, Record, is_patched, write_atomically
from perf.stores import read_rows

LOCK, LOCK_SECONDS = ".trend.lock", 30.0
EXTRA = "change points need ruptures: pip install 'rfdetr-perf[trend]'"
# By this normal noise makes no change in any of 60 series of 60 nights, and a step of 4 sd is found in each of 20, be
# it only five nights old (tests/unit/test_trend.py). With 4 in its place it made one in 4 of 300.
PENALTY = 6.0
LEAST_SEGMENT, LEAST_SERIES = 3, 8
# From the median of absolute differences of neighbours to the sd of one: normal noise.
_MAD, _DIFFERENCE = 0.6745, 2**0.5


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Value(_Line):
    """The value that stands for the runs of one signal, in ``unit``."""

    value: Finite
    kind: Kind
    unit: str = ""
    direction: Direction = "lower"


class Night(_Line):
    """One session of one case: the commit of rfdetr that it measured, or its release, and every signal."""

    schema_version: Literal[1] = 1
    when: AwareDatetime
    commit: str
    suite_commit: str | None = None
    session: str
    runs: int
    device: str
    torch_minor: str
    case_id: str
    values: dict[str, Value]


class Change(NamedTuple):
    """A signal that changed for good: the first night that has it, and the medians of both sides, in ``unit``."""

    signal: str
    at: int
    since: Night
    last_before: Night
    old: float
    new: float
    unit: str
    kind: Kind

    @property
    def commits(self) -> str:
        """The range in which the change lies, as git has it; of the suite, where rfdetr was the same before."""
        before, since = self.last_before, self.since
        if before.commit != since.commit:
            return f"{before.commit}..{since.commit}"
        of_suite = f"suite {before.suite_commit}..{since.suite_commit}"
        return f"{since.commit} before too, {of_suite if before.suite_commit != since.suite_commit else 'suite too'}"


def night_of(records: Sequence[Record]) -> Night:
    """Return the line for the finished runs of one case."""
    environment, first = records[0].environment, min(record.started for record in records)
    signals = {name: pooled(runs) for name, runs in by_signal(records).items() if len(runs) == len(records)}
    kept = {
        name: Value(value=signal.value, kind=signal.kind, unit=signal.unit, direction=signal.direction)
        for name, signal in signals.items()
    }
    return Night(
        when=first,
        commit=environment.rfdetr_commit or environment.rfdetr_source,
        suite_commit=environment.suite_commit,
        session=records[0].session,
        runs=len(records),
        device=environment.device,
        torch_minor=environment.torch_minor,
        case_id=records[0].case_id,
        values=kept,
    )


def unnamed(records: Iterable[Record]) -> list[str]:
    """Return why runs are left out of the trend: they measured what no commit and no release is."""
    return [
        f"{record.case_id} run {record.run} is left out: {record.environment.rfdetr_source} had a patch or uncommitted "
        "changes"
        for record in records
        if _is_unnamed(record)
    ]


def _is_unnamed(record: Record) -> bool:
    return is_patched(record) or bool(record.environment.rfdetr_dirty)


def append(folder: Path, records: Iterable[Record]) -> list[Path]:
    """Add a line for each case to its file, each file at once, and return those that changed.

    Runs that did not finish are left out, those of :func:`unnamed`, and a session that is there already.

    Raises:
        ValueError: a file there cannot be read, all others having been added to; or another process writes them and
            does not end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    finished = [record for record in records if record.status == "finished" and not _is_unnamed(record)]
    changed, problems = [], []
    with alone(folder / LOCK, f"{folder}: another process adds to the trend and does not end", LOCK_SECONDS):
        for group in by_case(finished).values():
            try:
                changed += _add(folder, night_of(group))
            except ValueError as error:
                problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return changed


def _add(folder: Path, night: Night) -> list[Path]:
    path = trend_path(folder, night.device, night.torch_minor, night.case_id)
    nights = read(path)
    if any((one.session, one.when) == (night.session, night.when) for one in nights):
        return []
    # Whole, by renaming: a reader, or a crash, sees all lines or those of before, and never half a line.
    write_atomically(path, "".join(f"{one.model_dump_json()}\n" for one in _ordered([*nights, night])))
    return [path]


def trend_path(folder: Path, device: str, torch_minor: str, case_id: str) -> Path:
    """Return the file of a case."""
    return baseline_path(folder, device, torch_minor, case_id).with_suffix(".jsonl")


def read(path: Path) -> list[Night]:
    """Return the lines of a file, oldest first and each once, as merging two copies may not leave it; none for no file.

    Raises:
        ValueError: a line cannot be read; names the file and the line.
    """
    return _ordered(read_rows(path, Night.model_validate))


def _ordered(nights: Iterable[Night]) -> list[Night]:
    return sorted({(one.session, one.when): one for one in nights}.values(), key=lambda one: one.when)


def series(nights: Sequence[Night], signal: str) -> list[tuple[Night, float]]:
    """Return the nights that have a signal in the unit of the last one, and its value."""
    having = [(night, night.values[signal]) for night in nights if signal in night.values]
    unit = having[-1][1].unit if having else ""
    return [(night, value.value) for night, value in having if value.unit == unit]


def changes(nights: Sequence[Night], signal: str) -> list[Change]:
    """Return where a signal changed for good, oldest first.

    Raises:
        ImportError: ruptures is not there, and the signal is no count.
    """
    points = series(nights, signal)
    if not points:
        return []
    shape, values = points[-1][0].values[signal], [value for _, value in points]
    found = steps(values) if shape.kind.startswith("count") else change_points(values)
    edges = [0, *found, len(values)]
    return [
        Change(
            signal,
            index,
            points[index][0],
            points[index - 1][0],
            statistics.median(values[before:index]),
            statistics.median(values[index:after]),
            shape.unit,
            shape.kind,
        )
        for before, index, after in zip(edges, found, edges[2:], strict=False)
    ]


def steps(values: Sequence[float]) -> list[int]:
    """Return where exact values, which counts are, differ from the one before."""
    return [index for index in range(1, len(values)) if values[index] != values[index - 1]]


def change_points(values: Sequence[float]) -> list[int]:
    """Return where the mean of noisy values changed, by PELT with the squared error.

    A change has to save more than :data:`PENALTY` times the logarithm of the length, in variances of the noise.

    Raises:
        ImportError: ruptures is not there.
    """
    if len(values) < LEAST_SERIES:
        return []
    try:
        import numpy
        import ruptures
    except ImportError as error:
        raise ImportError(EXTRA) from error
    variance = noise(values) ** 2
    if not variance:
        return steps(values)
    scaled = (numpy.asarray(values, dtype=float) - statistics.median(values)) / variance**0.5
    searched = ruptures.Pelt(model="l2", min_size=LEAST_SEGMENT, jump=1).fit(scaled)
    return [int(index) for index in searched.predict(pen=PENALTY * float(numpy.log(len(values))))][:-1]


def noise(values: Sequence[float]) -> float:
    """Return the sd of what is between neighbours, which a few steps do not raise."""
    differences = [abs(after - before) for before, after in itertools.pairwise(values)]
    return statistics.median(differences) / _MAD / _DIFFERENCE
