"""HTML from untrusted text: what is a str becomes text, and only what these functions return is markup.

The pages are one file each, without a script, and load nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from perf.report.humanize import printable

# Even if markup got in: nothing is loaded, nothing is run.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root{color-scheme:light dark;--line:#8884;--bad:#c62828;--odd:#a06000;--good:#2e7d32;--mark:#1565c0}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem}
table{border-collapse:collapse;margin:.6rem 0;font-size:.87rem;display:block;overflow-x:auto}
th,td{text-align:left;padding:.2rem .7rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}
code,pre{font-family:ui-monospace,monospace;font-size:.85em;overflow-wrap:anywhere;white-space:pre-wrap}
summary{cursor:pointer;margin:.4rem 0}
figure{margin:.8rem 0}figcaption{font-size:.85rem;opacity:.75}
svg{max-width:100%;height:auto;font:11px system-ui,sans-serif}
svg text{fill:currentColor}
.failed,.not-compiled,.regressed{color:var(--bad)}.improved,.incompatible,.inconclusive,.no-baseline{color:var(--odd)}
.pass{color:var(--good)}
"""


class Html(str):
    """Markup that is safe to put into a page."""

    __slots__ = ()


def escape(value: str) -> Html:
    """Return text as markup that shows it, also within the quotes of an attribute."""
    return value if isinstance(value, Html) else Html(html.escape(printable(value), quote=True))


def join(parts: Iterable[str]) -> Html:
    """Return parts one behind the other; each that is not markup is escaped."""
    return Html("".join(map(escape, parts)))


def tag(name: str, *children: str, **attributes: object) -> Html:
    """Return an element; ``class_`` is its class, and an underscore in a name stands for a hyphen."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value != ""
    )
    return Html(f"<{name}{told}>{join(children)}</{name}>")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table."""
    head = tag("tr", *(tag("th", heading) for heading in headings))
    return tag("table", head, *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))


def details(summary: str, *body: str, opened: bool = False) -> Html:
    """Return something folded away."""
    inside = join([tag("summary", summary), *body])
    return Html(f"<details{' open' if opened else ''}>{inside}</details>")


def page(title: str, *body: str) -> str:
    """Return a whole page."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{join(body)}</body></html>\n'
