"""What a report does not have: said where it would stand, and again in a list at the end."""

from __future__ import annotations

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
        self.lines.append((f"{what}: ", Code(why)))
        return [Paragraph((f"{what}: not measured: ", Code(why)))]
