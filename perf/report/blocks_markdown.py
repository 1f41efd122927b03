"""Blocks -> Markdown as GitHub shows it, ready for an issue: figures are left out, since an issue takes no SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perf.report.blocks import Block, Code, Command, Figure, Heading, Items, Link, Paragraph, Table, Text, pieces
from perf.report.humanize import printable
from perf.report.markdown import code, table

# What GitHub turns into a link or a mention wherever it stands, whatever is put before it.
_LINKED = re.compile(r"@|//|www\.|#\d|\bGH-\d", re.IGNORECASE)
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def markdown(blocks: Sequence[Block]) -> str:
    """Return the document."""
    return "\n".join(filter(None, map(_block, blocks)))


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {inline(block.text)}\n"
    if isinstance(block, Paragraph):
        shown = inline(block.text)
        return f"**{shown}**\n" if block.strong else f"{shown}\n"
    if isinstance(block, Items):
        return "".join(f"- {_item(item)}\n" for item in block.items)
    if isinstance(block, Table):
        return table([inline(one) for one in block.headings], [[inline(one) for one in row] for row in block.rows])
    if isinstance(block, Command):
        return f"Made by {code(block.line)}\n"
    assert isinstance(block, Figure)
    return ""


def _item(item: Text | Link) -> str:
    return code(item.path) if isinstance(item, Link) else inline(item)


def inline(text: Text) -> str:
    """Return a text in which nothing but code spans is markup."""
    return "".join(code(piece) if isinstance(piece, Code) else _prose(piece) for piece in pieces(text))


def _prose(text: str) -> str:
    if _LINKED.search(text):
        return code(text)
    return _MARKS.sub(r"\\\1", printable(re.sub(r"\s+", " ", text)))
