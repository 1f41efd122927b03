"""A document as blocks, which Markdown and HTML are made of: what is said once cannot differ between the two.

Texts are plain: a ``str`` is prose, a :class:`Code` is a name, a path or a message from elsewhere. Neither is markup;
the renderers (:mod:`perf.report.blocks_markdown`, :mod:`perf.report.blocks_html`) make both inert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Code(str):
    """A text to be shown as it is, in type."""

    __slots__ = ()


# Pieces that follow each other without a space between them.
Text = str | tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """A file beside the document, by its relative path."""

    path: str


@dataclass(frozen=True)
class Heading:
    """A heading of ``level`` 1 to 3."""

    text: Text
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; ``strong`` for the one that a reader must not miss."""

    text: Text
    strong: bool = False


@dataclass(frozen=True)
class Items:
    """A list, of texts or of files."""

    items: Sequence[Text | Link]


@dataclass(frozen=True)
class Table:
    """A table; the first column names the row, the others are numbers or texts.

    ``swatches`` are CSS classes of the colours that a figure gives to the rows, where it has any.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Text]]
    swatches: Sequence[str] = ()


@dataclass(frozen=True)
class Command:
    """What made the table above it."""

    line: str


@dataclass(frozen=True)
class Figure:
    """A picture: SVG, trusted, for HTML alone. Its numbers are in a table too."""

    svg: str
    caption: str


Block = Heading | Paragraph | Items | Table | Command | Figure


def pieces(text: Text) -> tuple[str, ...]:
    """Return the pieces of a text."""
    return (text,) if isinstance(text, str) else text


def joined(texts: Sequence[Text], between: str = ", ") -> Text:
    """Return texts as one, with ``between`` between them."""
    found: list[str] = []
    for text in texts:
        found += [between, *pieces(text)] if found else pieces(text)
    return tuple(found)
