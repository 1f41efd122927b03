"""When Dynamo broke a graph or compiled a frame again, from the log that a run leaves beside its record."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from perf.probes.source import without_folders

# torch's format: level, month and day, time, process, file of torch, compile id, artifact.
_LINE = re.compile(
    r"[VIWE](?P<day>\d{4}) (?P<time>\d{2}:\d{2}:\d{2}\.\d{1,6}) \d+ \S+ \[(?P<frame>[\d/_ ]+)\]"
    r"(?: \[__(?P<kind>\w+)\])? (?P<text>(?:Graph break in user code at|Recompiling function) .*)"
)
# Of one log: more dots than that are one blot.
MOST = 500
MOST_TEXT = 200


class Event(NamedTuple):
    """One graph break or recompile, ``seconds`` after the first of its log."""

    seconds: float
    what: str


def read_events(path: Path) -> list[Event]:
    """Return the events in a log, oldest first; none where there is no such log."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace") as lines:
        return events_of(lines)


def events_of(lines: Iterable[str]) -> list[Event]:
    """Return the events that these lines tell."""
    found: list[tuple[datetime.datetime, str]] = []
    for line in lines:
        told = _LINE.match(line)
        if told and len(found) < MOST:
            when = _time(told["day"], told["time"])
            if when is not None:
                found.append((when, f"[{told['frame']}] {without_folders(told['text'])}"[:MOST_TEXT]))
    return [Event((when - found[0][0]).total_seconds(), what) for when, what in found]


def _time(day: str, time: str) -> datetime.datetime | None:
    """Return a time of any leap year: the log does not say which, and only differences count. None: there is none."""
    try:
        return datetime.datetime.strptime(f"2024{day} {time}", "%Y%m%d %H:%M:%S.%f")
    except ValueError:
        return None


def read_timelines(folder: Path) -> dict[str, dict[str, list[Event]]]:
    """Return the events of every run below ``folder`` that left a log, by case and run."""
    found: dict[str, dict[str, list[Event]]] = {}
    for path in sorted(folder.rglob("*.recompiles.log")):
        run = f"{path.parent.parent.name} {path.name.partition('.')[0]}"
        found.setdefault(path.parent.name, {})[run] = read_events(path)
    return found
