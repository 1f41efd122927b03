"""Markdown from untrusted text: tables, code spans, and what may stand as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perf.report.humanize import printable


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; cells are Markdown already, see :func:`code` and :func:`text`."""
    rule = ["---"] * len(headings)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, rule, *lines))


def code(value: str) -> str:
    """Return untrusted text as a code span, where neither Markdown nor HTML nor an @ means anything."""
    shown = printable(" ".join(value.split()))
    if not shown:
        return "-"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    # A table's cells end at a bar even within code.
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


# What GitHub makes something of without any markup: emphasis, addresses, issues, commits, pictures.
_ODD = re.compile(r"__| _|//|www\.|\bgh-\d|:[a-z0-9_+-]+:|\b(?=[0-9]*[a-f])[0-9a-f]{7,40}\b", re.IGNORECASE)


def text(value: str) -> str:
    """Return text as it is where it is plain, else as :func:`code`. Plain is ASCII: letters of others look like it."""
    plain = re.fullmatch(r"[A-Za-z0-9][\w .,:;/()+=-]*", value, re.ASCII) and not _ODD.search(value)
    return value if plain else code(value)
