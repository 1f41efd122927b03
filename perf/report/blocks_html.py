"""Blocks -> one HTML file: no script, nothing to fetch, light and dark, from 400 px of width on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from perf.report.blocks import Block, Code, Command, Figure, Heading, Items, Link, Paragraph, Table, Text, pieces
from perf.report.html import POLICY, escape

# Ten colours that differ in hue and in lightness too, so that neighbours can be told apart without colour.
COLOURS = (
    "#c2571a",
    "#e3a857",
    "#2f6fb3",
    "#7fb2e5",
    "#3c7d4b",
    "#8cc48f",
    "#7a4fa3",
    "#b99ad6",
    "#8a6d3b",
    "#8f8f8f",
)

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --faint: #5b6470; --line: #d5dae0; --box: #f3f5f7;
  --accent: #2f6fb3; --mark: #b3261e; --shade: #1b1f2459; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e6e9ed; --faint: #a0a9b4; --line: #363c44;
  --box: #1e2329; --accent: #7fb2e5; --mark: #ff8a80; --shade: #e6e9ed73; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1080px; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2rem; } h3 { font-size: 1rem; }
.first { background: var(--box); border-left: 4px solid var(--accent); padding: 12px 16px; font-weight: 600; }
/* A shadow at the right while a table goes on there: the paper over it scrolls along and covers it at the end. */
.scroll { overflow-x: auto; margin: 12px 0; background:
  linear-gradient(to left, var(--paper) 40%, transparent) right / 56px 100% no-repeat local,
  linear-gradient(to left, var(--shade), transparent) right / 28px 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); }
th { color: var(--faint); font-weight: 600; } td { min-width: 6em; }
td:first-child { position: sticky; left: 0; min-width: 9em; max-width: 45vw; background: var(--paper); }
code { font: 0.9em ui-monospace, monospace; overflow-wrap: anywhere; } td code { overflow-wrap: break-word; }
.named { white-space: nowrap; }
.command { color: var(--faint); font-size: 14px; } .command code { color: var(--ink); }
figure { margin: 16px 0; } figcaption { color: var(--faint); font-size: 14px; }
svg { display: block; width: 100%; overflow: visible; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .faint { fill: var(--faint); } svg .rail { fill: var(--box); stroke: var(--line); }
svg .bar { fill: var(--accent); } svg .dot { fill: var(--accent); fill-opacity: 0.45; }
  svg .beyond { fill: none; stroke: var(--mark); stroke-width: 2; } svg .mark { stroke: var(--mark);
  stroke-width: 2; stroke-dasharray: 5 3; } svg .middle { stroke: var(--ink); stroke-width: 2; }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 6px; border: 1px solid var(--line); }
"""


FIRST = ' class="first"'
# A word that is long on a screen of 400 px, and where it may break: not in what escaping made of a character.
_LONG = re.compile(r"[\w/:.,-]{20,}")
_PARTS = re.compile(r"(?<=\w[/:._])(?=\w)")


def page(title: str, blocks: Sequence[Block]) -> str:
    """Return the whole file."""
    colours = "".join(f".c{i} {{ fill: {c}; background: {c}; }}\n" for i, c in enumerate(COLOURS))
    body = "\n".join(map(_block, blocks))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Should a text from elsewhere ever get through, it can neither run nor fetch anything.
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{_plain(title)}</title>\n<style>{_STYLE}{colours}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{inline(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p{FIRST if block.strong else ''}>{inline(block.text)}</p>"
    if isinstance(block, Items):
        return "<ul>\n" + "".join(f"<li>{_item(item)}</li>\n" for item in block.items) + "</ul>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Command):
        return f'<p class="command">Made by {_code(block.line)}</p>'
    assert isinstance(block, Figure)
    return f"<figure>\n{block.svg}\n<figcaption>{_plain(block.caption)}</figcaption>\n</figure>"


def _table(block: Table) -> str:
    head = "".join(f"<th>{inline(one)}</th>" for one in block.headings) if any(block.headings) else ""
    colours = [*block.swatches, *[""] * (len(block.rows) - len(block.swatches))]
    rows = "".join(f"<tr>{_cells(row, colour)}</tr>\n" for row, colour in zip(block.rows, colours, strict=True))
    return f'<div class="scroll"><table>\n<tr>{head}</tr>\n{rows}</table></div>'


def _cells(row: Sequence[Text], colour: str) -> str:
    shown = [f"<td>{inline(cell)}</td>" for cell in row]
    if colour:  # and the name beside it, not below
        shown[0] = f'<td class="named"><span class="swatch {escape(colour)}"></span>{inline(row[0])}</td>'
    return "".join(shown)


def _item(item: Text | Link) -> str:
    if isinstance(item, Link):
        return f'<a href="./{quote(item.path)}">{_code(item.path)}</a>'
    return inline(item)


def inline(text: Text) -> str:
    """Return a text in which nothing but ``<code>`` is markup."""
    return "".join(_code(piece) if isinstance(piece, Code) else _plain(piece) for piece in pieces(text))


def _code(text: str) -> str:
    # A path may break behind what parts its words, rather than anywhere.
    return f"<code>{_LONG.sub(lambda word: _PARTS.sub('<wbr>', word[0]), _plain(text))}</code>"


def _plain(text: str) -> str:
    return escape(re.sub(r"\s+", " ", text))
