"""What a refresh changes, as Markdown: the body of the pull request by which a person approves it."""

from __future__ import annotations

from collections.abc import Sequence

from perf.refresh import Change
from perf.report.markdown import code, table, text
from perf.report.terminal import CHANGE_HEADINGS, change_cells, what_changes


def markdown_changes(case_id: str, changes: Sequence[Change], first_on: str = "") -> str:
    """Return the table of one case; ``first_on`` says where it gets its first baseline."""
    head = f"### {code(case_id)}\n\n{text(what_changes(changes, first_on))}\n"
    rows = []
    for change in changes:
        # A unit is the record's own word; what follows is ours.
        signal, old, new, *ours = change_cells(change)
        rows.append([code(signal), *(value if value == "-" else text(value) for value in (old, new)), *ours])
    return f"{head}\n{table(CHANGE_HEADINGS, rows)}" if rows else head
