"""A section of a report: what was judged at one place, and the records that it was judged from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perf.case import parse_id
from perf.record import Record
from perf.verdicts import SEVERITY, CaseVerdict, SignalVerdict


class Section(NamedTuple):
    """The verdicts of one device and torch minor; ``base`` are the records of the other side, where there is one.

    ``title`` names the job, and is the suite's own text or the name of a folder: untrusted like all the rest.
    """

    title: str
    cases: Sequence[CaseVerdict]
    head: Sequence[Record] = ()
    base: Sequence[Record] = ()


class Placed(NamedTuple):
    """A row and where it belongs."""

    section: Section
    case: CaseVerdict
    row: SignalVerdict


def rows_of(sections: Sequence[Section]) -> list[Placed]:
    """Return every row with its case and section."""
    return [Placed(section, case, row) for section in sections for case in section.cases for row in case.signals]


def rank(row: SignalVerdict) -> tuple[int, bool]:
    """Return what sorts rows: the worst first, then what passes and is listed, then what passes, then what is shown."""
    return (len(SEVERITY) if row.verdict is None else SEVERITY.index(row.verdict), not row.listed)


def place_words(device: str, torch_minor: str) -> str:
    """Return a device and a torch minor as a sentence names them: ``H200, torch 2.11``."""
    name = device.removeprefix("nvidia-")
    return f"{name.upper() if name != 'any device' else name}, torch {torch_minor}"


def case_words(case_id: str) -> str:
    """Return what a case is in words, ``Nano compiled``; its id, where it is more than a config and compile."""
    case = parse_id(case_id)
    if case is None:
        return case_id
    plain = case.measure == "step" and case.model_fields_set <= {"config", "lane", "batch_size", "compile"}
    words = " ".join(part.upper() if part[0].isdigit() else part.title() for part in case.config.split("-"))
    return f"{words} {'compiled' if case.compile else 'eager'}" if plain else case_id
