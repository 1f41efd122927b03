"""Errors: the one line of a traceback that says what went wrong."""

from __future__ import annotations

from perf.probes.source import without_folders


def error_line(error: str | None) -> str:
    """Return the line of the error that says what it was: what torch appends to its own is advice."""
    _, header, last = (error or "").rpartition("Traceback (most recent call last):\n")
    lines = [line.rstrip() for line in last.splitlines() if line.strip()]
    after = [line for line in lines if not line.startswith(" ")] if header else lines[-1:]
    if not after:
        return lines[-1].strip() if lines else "ended in mid-run"
    told = " ".join(after[:2]) if after[0].endswith("raised:") else after[0]
    return without_folders(told)
