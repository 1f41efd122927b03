"""What a report does not have: said where it would stand, and again in a list at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perf.findings import Runs
from perf.report.blocks import Block, Code, Paragraph, Text


@dataclass
class Missing:
    """Gathers what is missing. ``told`` are the notes of records that have been repeated with it."""

    lines: list[Text] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def say(self, what: str, runs: Runs | None, name: str) -> list[Block]:
        """Return what stands in for ``what``, whose signal is ``name``; ``runs`` is None where nobody asked for it."""
        why = "it was not asked for" if runs is None else runs.missing(name)
        if runs is not None:
            self.told |= {note for note in runs.notes if note in why}
        self.lines.append((f"{what}: ", *_told(why)))
        return [Paragraph((f"{what}: not measured: ", *_told(why)))]


# A package that is not there, as rfdetr says it, behind the names of the errors that it went through.
_REQUIRES = re.compile(r".*\brequires ([\w.-]+)\. Install with: (pip install \S.*)")


def _told(why: str) -> tuple[str, ...]:
    """Return why, shorter where a package is all that is missing."""
    found = _REQUIRES.fullmatch(why)
    return (Code(why),) if found is None else ("needs ", Code(found[1]), ": ", Code(found[2]))
