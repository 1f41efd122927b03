"""Annotations: failing source lines that a pull request touches, as workflow commands of GitHub's runner."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from perf.report.humanize import printable
from perf.report.section import Section, case_words, rows_of
from perf.verdicts import EXIT_CODES, SignalVerdict

# GitHub shows ten of a kind and step.
MOST = 10
MOST_TEXT = 400
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
_PLACE = re.compile(r"^(?P<file>[^:\n]+\.py):(?P<line>\d+)$")


def changed_lines(files: Sequence[Mapping[str, Any]]) -> dict[str, set[int]]:
    """Return the lines of the new side that each file of a pull request shows, from the API's list of its files."""
    found: dict[str, set[int]] = {}
    for file in files:
        lines = found.setdefault(str(file.get("filename", "")), set())
        for text in str(file.get("patch") or "").split("\n"):
            hunk = _HUNK.match(text)
            if hunk:
                lines.update(range(int(hunk[1]), int(hunk[1]) + int(hunk[2] or 1)))
    return found


def annotate(sections: Sequence[Section], changed: Mapping[str, Collection[int]]) -> list[str]:
    """Return a workflow command for each line of a failing signal that the pull request shows."""
    told = [command for _, _, row in rows_of(sections) if _fails(row) for command in _commands(row, changed)]
    return list(dict.fromkeys(told))[:MOST]


def _fails(row: SignalVerdict) -> bool:
    return row.verdict is not None and EXIT_CODES[row.verdict] == 1


def _commands(row: SignalVerdict, changed: Mapping[str, Collection[int]]) -> Iterator[str]:
    message = row.message.partition("\n")[0]
    title = f"rfdetr-perf: {case_words(row.case_id)}, {row.signal} {row.verdict}"
    for where in row.where:
        place = _PLACE.match(where)
        file = _file(place["file"], changed) if place else None
        if place and file is not None and int(place["line"]) in changed[file]:
            told = f"file={_property(file)},line={int(place['line'])},title={_property(title[:MOST_TEXT])}"
            yield f"::error {told}::{_data(message[:MOST_TEXT])}"


def _file(told: str, changed: Mapping[str, Collection[int]]) -> str | None:
    """Return the file of the pull request that a line of the installed package is of: ``src/`` is before it there."""
    return next((name for name in (told, f"src/{told}") if name in changed), None)


def _data(text: str) -> str:
    return printable(text.replace("\r", " ").replace("\n", " ")).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
