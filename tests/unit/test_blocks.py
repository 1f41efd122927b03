from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.report.blocks import Block, Code, Command, Figure, Heading, Items, Link, Paragraph, Table, Text, joined
from perf.report.blocks_html import page
from perf.report.blocks_markdown import inline, markdown

EVIL = "<script>alert(1)</script> **x** `y` [a](b) @someone #12 | ~~z~~ &amp; \x1b[31m\n# h"
BLOCKS: list[Block] = [
    Heading(("Where ", Code("a_b"), " goes"), 1),
    Paragraph("Host-bound: 12 % of a step.", strong=True),
    Table(["phase", "ms"], [[Code("forward"), "1.0"], ["a | b", ("2 ", Code("x|y"))]], swatches=["c0", "c1"]),
    Command("rfdetr-perf investigate --config nano"),
    Items(["one", Link("base/run 0.json")]),
    Figure("<svg></svg>", "bars"),
]


def test_markdown_of_every_kind_of_block() -> None:
    assert markdown(BLOCKS) == (
        "# Where `a_b` goes\n\n"
        "**Host-bound: 12 % of a step.**\n\n"
        "| phase | ms |\n| --- | --- |\n| `forward` | 1.0 |\n| a \\| b | 2 `x\\|y` |\n\n"
        "Made by `rfdetr-perf investigate --config nano`\n\n"
        "- one\n- `base/run 0.json`\n"
    )


def test_html_of_every_kind_of_block() -> None:
    shown = page("T", BLOCKS)

    assert "<h1>Where <code>a_b</code> goes</h1>" in shown
    assert '<p class="first">Host-bound: 12 % of a step.</p>' in shown
    assert '<td class="named"><span class="swatch c1"></span>a | b</td><td>2 <code>x|y</code></td>' in shown
    assert '<a href="./base/run%200.json"><code>base/run 0.json</code></a>' in shown
    assert "<figure>\n<svg></svg>\n<figcaption>bars</figcaption>\n</figure>" in shown


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        assert all(not name.startswith("on") and name != "src" for name, _ in attrs)


def everywhere(text: str) -> list[Block]:
    cells: list[list[Text]] = [[text, Code(text)], [Code(text), (text, Code(text))]]
    return [
        Heading(text, 1),
        Paragraph((text, Code(text))),
        Table([text], cells, swatches=[text]),
        Command(text),
        Items([text, Link(text)]),
        Figure("", text),
    ]


@pytest.mark.parametrize("text", [EVIL, "' onload='x", '"><img src=x onerror=y>', "javascript:alert(1)"])
def test_text_from_elsewhere_is_no_html(text: str) -> None:
    plain, evil = Tags(), Tags()
    plain.feed(page("word", everywhere("word")))
    evil.feed(page(text, everywhere(text)))

    assert evil.found == plain.found


def test_text_from_elsewhere_is_no_markdown() -> None:
    shown = markdown([Paragraph("<b>x</b> **y** ~~z~~ [a](b) _c_ &lt;"), Heading(EVIL), Paragraph(Code(EVIL))])

    assert "\\<b\\>x\\</b\\> \\*\\*y\\*\\* \\~\\~z\\~\\~ \\[a\\](b) \\_c\\_ \\&lt;" in shown
    assert "\x1b" not in shown
    # A code span whose fence is longer than any within.
    assert "``<script>alert(1)</script>" in shown


@pytest.mark.parametrize("text", ["ask @someone", "see #12", "http://x", "www.x.org", "GH-12"])
def test_what_github_would_link_is_code(text: str) -> None:
    assert inline(text) == f"`{text}`"


@given(st.text(max_size=40))
def test_a_cell_stays_one_cell(text: str) -> None:
    [head, _, row] = markdown([Table(["a", "b"], [[text, Code(text)]])]).splitlines()
    unescaped = row.replace("\\\\", "").replace("\\|", "")

    assert unescaped.count("|") == head.count("|")


def test_texts_are_joined_with_their_pieces() -> None:
    assert joined(["a", ("b ", Code("c"))]) == ("a", ", ", "b ", "c")


def test_a_long_path_may_break_between_its_words_and_a_short_name_stays_whole() -> None:
    shown = page("T", [Paragraph((Code("rfdetr/models/criterion.py:652"), " ", Code("host_to_device")))])

    assert "<code>rfdetr/<wbr>models/<wbr>criterion.<wbr>py:<wbr>652</code> <code>host_to_device</code>" in shown


def test_a_name_stands_beside_its_colour() -> None:
    shown = page("T", [Table(("phase", "ms"), [[Code("ema"), "1"], ["sum", "1"]], ["c0"])])

    assert '<td class="named"><span class="swatch c0"></span><code>ema</code></td><td>1</td>' in shown
    assert "<td>sum</td>" in shown
