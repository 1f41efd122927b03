"""Time for an investigation: every case has one round, and more only while they fit."""

from __future__ import annotations

import math
from collections.abc import Iterable

from perf.compare import is_cold
from perf.record import Record


class Room:
    """How much of ``budget`` (s; None for no limit) is left, and what a round of each case takes.

    What a run compiled cold does not count: it is once, and no later run has it.
    """

    def __init__(self, budget: float | None) -> None:
        self._left = math.inf if budget is None else budget
        self._rounds: dict[str, float] = {}

    def has(self, case_id: str) -> bool:
        """Return whether there is room for a round of this case; for its first one there always is."""
        return self._rounds.get(case_id, -math.inf) <= self._left

    def spend(self, seconds: float) -> None:
        """Note that something else than a round took, or will take, so long."""
        self._left -= seconds

    def take(self, case_id: str, seconds: float, records: Iterable[Record | None] = ()) -> None:
        """Note that a round took so long; ``records`` are what its runs left."""
        spent = max(0.0, seconds - sum(map(_compiled_cold, records)))
        self.spend(spent)
        self._rounds[case_id] = spent


def _compiled_cold(record: Record | None) -> float:
    if record is None or not is_cold(record):
        return 0.0
    first = record.signal("first_step")
    return first.value if first else 0.0
