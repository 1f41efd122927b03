"""Errors: the one line of a traceback that says what went wrong."""

from __future__ import annotations

import re

from perf.probes.source import without_folders

# As perf.launch says of a run whose time was up, which it interrupts: the KeyboardInterrupt before it is its own.
TOO_LONG = re.compile(r"^no end after .*$", re.MULTILINE)


def error_line(error: str | None) -> str:
    """Return the line of the error that says what it was: what torch appends to its own is advice."""
    if too_long := TOO_LONG.search(error or ""):
        return too_long[0]
    _, header, last = (error or "").rpartition("Traceback (most recent call last):\n")
    lines = [line.rstrip() for line in last.splitlines() if line.strip()]
    after = [line for line in lines if not line.startswith(" ")] if header else lines[-1:]
    if not after:
        return lines[-1].strip() if lines else "ended in mid-run"
    told = " ".join(after[:2]) if after[0].endswith("raised:") else after[0]
    return without_folders(told)
