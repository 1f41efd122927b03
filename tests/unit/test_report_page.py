from __future__ import annotations

import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from factories import BREAK_LINE, GPU_EAGER, H200, a_baseline, a_record, a_request, a_signal, parts, proof
from snapshot import check_snapshot
from test_report_comment import HOSTILE, NANO, a_row, a_section

from perf.judge import judge
from perf.record import Part, Record
from perf.refresh import refresh
from perf.report.charts import alone, bars, course, dots, events
from perf.report.comment import Origin, comment
from perf.report.html import Html, escape, page, table, tag
from perf.report.page import render
from perf.report.section import Section
from perf.report.terminal import render as render_terminal
from perf.report.timeline import Event, events_of, read_timelines
from perf.verdicts import Judgement


class Reader(HTMLParser):
    """Gathers tags with their attributes, and checks that all are closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def a_session() -> Section:
    """A compiled Nano with one more graph break, base and head of three runs each."""
    signals = [*proof(), a_signal("kernels", 2201, "count-volume", parts=parts(forward=1200, backward=1001))]
    busy = a_signal(
        "gpu_busy", 10.26, "device", "ms", parts=[Part(name="forward", value=4), Part(name="backward", value=6.26)]
    )
    wall = a_signal("step_time", 70, "wall", "ms")
    first = a_signal("graph_breaks", 6, parts=[Part(name="disabled", value=6, where=["rfdetr/a.py:1"])])
    more = first.model_copy(
        update={"value": 7, "parts": [*first.parts, Part(name="item() in forward", value=1, where=[BREAK_LINE])]}
    )

    def runs(strict: Any) -> list[Record]:
        changed = ((busy, 0.01), (wall, 1.0))
        return [
            a_record(
                [strict, *signals, *(s.model_copy(update={"value": s.value + run * by}) for s, by in changed)],
                NANO,
                run,
                notes=["EMA attached after the steps"],
            )
            for run in range(3)
        ]

    base, head = runs(first), runs(more)
    approved = a_baseline(base)
    return Section("h200-torch-2.14-quick", judge(head, {approved.case_id: approved}).cases, head, base)


def test_all_renderers_tell_the_same_verdicts_as_they_did() -> None:
    section = a_session()
    judgement = Judgement(cases=list(section.cases), exit_code=1, summary="1 of 1 case regressed")
    origin = Origin("git+head", "git+base", "https://github.com/owner/suite/actions/runs/5")
    baselines = {
        (section.title, NANO.id): refresh(section.head, a_baseline(section.base), a_request("more breaks")).baseline
    }
    compiled = [Event(0, "[0/0] Graph break"), Event(1.5, "[1/1] Recompiling function f")]
    timelines = {(section.title, NANO.id): {"head run-0": compiled}}
    check_snapshot("terminal.txt", render_terminal(judgement, section.head))
    check_snapshot("comment.md", comment([section], origin))
    check_snapshot("report.html", render([section], origin, baselines, timelines))


def test_the_page_holds_every_figure_and_loads_nothing() -> None:
    section = a_session()
    approved = refresh(section.head, a_baseline(section.base), a_request("more breaks")).baseline
    place = (section.title, NANO.id)
    text = render([section], Origin(), {place: approved}, {place: {"r": [Event(0, "x")]}})
    reader = read(text)
    told = " ".join(reader.text)
    for caption in (
        "step_time: a dot is one run",
        "gpu_busy by phase",
        "graph breaks and recompiles",
        "graph_breaks: approved values",
    ):
        assert caption in told
    assert {"script", "link", "img", "iframe", "object"} & {name for name, _ in reader.tags} == set()
    assert not any(key.startswith("on") or key in ("href", "src") for _, told in reader.tags for key in told)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("hostile", [*HOSTILE, '"><img src=x onerror=alert(1)>', "' onload='x"])
def test_whatever_a_name_is_the_page_stays_the_same_markup(hostile: str) -> None:
    def tags(name: str) -> list[Any]:
        named: dict[str, Any] = dict.fromkeys(("case_id", "signal", "message", "reproduce", "refresh", "unit"), name)
        record = a_record(
            [
                a_signal("gpu_busy", 1, "device", "ms", parts=[Part(name=name, value=1)]),
                a_signal(name, 1, "wall", name),
            ],
            GPU_EAGER,
            notes=[name],
        )
        section = a_section(a_row(where=[name], **named), title=name)._replace(head=[record], base=[record])
        drawn = {(section.title, GPU_EAGER.id): {name: [Event(0, name)]}}
        return [tag for tag, _ in read(render([section], Origin(name, name, name), timelines=drawn)).tags]

    # As many lines as the hostile message has: each is a part.
    assert tags(hostile) == tags("\n".join("x" * (1 + hostile.count("\n"))))


def test_five_hundred_verdicts_are_rendered_in_under_a_second() -> None:
    rows = [a_row("regressed", case_id="nano-b4-compile", signal=f"signal_{index}") for index in range(500)]
    section = a_section(*rows)
    judgement = Judgement(cases=list(section.cases), exit_code=1, summary="x")
    renderings: list[Callable[[], str]] = [
        lambda: comment([section]),
        lambda: render([section]),
        lambda: render_terminal(judgement, []),
    ]
    render_terminal(Judgement(cases=[], exit_code=0, summary="x"), [])  # which imports rich
    for rendering in renderings:
        # Of this process: others on the machine are not the renderer's.
        began = time.process_time()
        text = rendering()
        assert time.process_time() - began < 1
        assert "signal_1" in text


def test_figures_are_whole_xml_and_name_what_they_show() -> None:
    figures = {
        "dots": dots({"base": [1, 2, 3], "head": [2], "none": []}),
        "bars": bars({"head": {"forward": 1.0, "<b>": 2.0}}),
        "events": events({"run": [(0.0, "a"), (2.0, "b")], "empty": []}),
        "course": course([1.0, 1.0], ["one", "two"], [1]),
        "same": dots({"x": [0.0]}),
    }
    for figure in figures.values():
        root = ElementTree.fromstring(alone(figure).encode())
        assert not any(re.search(r"nan|inf", value) for element in root.iter() for value in element.attrib.values())
    assert "<b>" not in figures["bars"]
    assert figures["dots"].count("<circle") == 4


def test_what_is_text_becomes_text() -> None:
    assert escape("<b a=\"'\x00>") == "&lt;b a=&quot;&#x27;\N{REPLACEMENT CHARACTER}&gt;"
    assert tag("p", "<", tag("b", "x"), class_='a"b', text_anchor="end") == (
        '<p class="a&quot;b" text-anchor="end">&lt;<b>x</b></p>'
    )
    assert table(["a"], [["<"]]) == Html("<table><tr><th>a</th></tr><tr><td>&lt;</td></tr></table>")
    assert "<title>&lt;/title&gt;</title>" in page("</title>")


LOG = """\
V1130 02:45:58.500000 1 torch/x.py:5] [0/0] [__graph_breaks] Graph break in user code at /e/site-packages/rfdetr/a.py:4
V1130 02:45:58.949000 1 torch/x.py:5] [0/0] [__graph_breaks] Graph Break Reason: x
V1130 02:46:00.000000 1 torch/g.py:1] [3/1] [__recompiles] Recompiling function f in /e/site-packages/rfdetr/b.py:7
V1399 99:99:99 nonsense
"""


def test_breaks_and_recompiles_are_read_from_the_log_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "s" / "head" / "nano-b4-compile" / "run-0.recompiles.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(LOG.encode() + b"\xff\n")
    assert read_timelines(tmp_path) == {
        "nano-b4-compile": {
            "head run-0": [
                Event(0.0, "[0/0] Graph break in user code at rfdetr/a.py:4"),
                Event(1.5, "[3/1] Recompiling function f in rfdetr/b.py:7"),
            ]
        }
    }
    assert events_of([]) == []
    assert len(events_of([LOG.splitlines()[0]] * 9_999)) == 500


def test_a_line_of_nothing_but_slashes_is_read_at_once() -> None:
    line = f"V1130 10:00:00.5 12 torch/a.py:1 [0/0] [__recompiles] Recompiling function {'/a' * 500_000}"
    started = time.perf_counter()
    [event] = events_of([line])
    assert len(event.what) == 200
    assert time.perf_counter() - started < 5


def test_devices_of_other_power_are_told_by_name() -> None:
    assert "NVIDIA H200" in " ".join(read(render([Section("x", [], [a_record([], GPU_EAGER, environment=H200)])])).text)
