"""Tallies: counting by name while remembering the source lines, and turning that into a signal's parts."""

from __future__ import annotations

from collections import Counter, defaultdict

from perf.record import Part

# A part used all over a model has hundreds of lines; the most frequent tell where to look.
MAX_LINES = 12


class Tally:
    """Counts by name, and for each name the source lines by frequency."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, name: str, line: str | None = None, amount: int = 1) -> None:
        """Count ``amount`` more of ``name``, seen at ``line`` (``file:line``) where known."""
        self.counts[name] += amount
        if line is not None:
            self.lines[name][line] += amount

    @property
    def total(self) -> int:
        """The sum over all names."""
        return self.counts.total()

    def parts(self) -> list[Part]:
        """Return the parts, largest first, names in order where equal."""
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [Part(name=name, value=count, where=self.where(name)) for name, count in ordered]

    def where(self, name: str) -> list[str]:
        """Return up to :data:`MAX_LINES` lines of ``name``, the most frequent first."""
        if name not in self.lines:
            return []
        ordered = sorted(self.lines[name].items(), key=lambda item: (-item[1], item[0]))
        return [line for line, _ in ordered[:MAX_LINES]]
