from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from factories import BREAK_LINE, CPU_COMPILED, GPU_EAGER, H200, a_baseline, a_record, a_signal, parts, proof
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perf.case import Case
from perf.judge import judge
from perf.record import Part
from perf.report.annotations import annotate, changed_lines
from perf.report.comment import LIMIT, MARKER, Origin, comment, headline
from perf.report.section import Section, case_words
from perf.verdicts import CaseVerdict, SignalVerdict, Verdict

NANO = Case(config="nano", compile=True)
BREAKS = a_signal("graph_breaks", 1, parts=parts(a=1))


def a_row(verdict: Verdict | None = "regressed", **changes: Any) -> SignalVerdict:
    values: dict[str, Any] = {
        "case_id": "nano-b4-compile",
        "signal": "graph_breaks",
        "kind": "count-strict",
        "baseline": 6,
        "now": 7,
        "change": 1,
        "verdict": verdict,
        "where": [BREAK_LINE],
        "message": "6 -> 7",
        "reproduce": "nox -s ab-2.11 -- --case nano-b4-compile",
        "refresh": "gh workflow run refresh.yml",
    }
    return SignalVerdict(**(values | changes))


def a_section(*rows: SignalVerdict, title: str = "h200-torch-2.11-quick", verdict: Verdict = "regressed") -> Section:
    case = CaseVerdict(
        case_id=rows[0].case_id if rows else "nano-b4-compile",
        verdict=verdict,
        runs=3,
        device="nvidia-h200",
        torch_minor="2.11",
        signals=list(rows),
    )
    return Section(title, [case])


def passes(count: int, **changes: Any) -> list[SignalVerdict]:
    return [a_row("pass", signal=f"signal_{index}", change=0, now=6, **changes) for index in range(count)]


def test_the_sentence_is_the_one_that_the_issue_asks_for() -> None:
    rows = [a_row(), a_row(signal="eval_graph_breaks"), *passes(12)]
    assert headline([a_section(*rows)]) == (
        f"2 of 14 signals regressed on H200, torch 2.11: Nano compiled, +1 graph break at {BREAK_LINE} "
        "(and 1 more signal)."
    )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (passes(3), "3 of 3 signals pass on H200, torch 2.11."),
        (passes(1, listed=True), "1 of 1 signal pass on H200, torch 2.11; 1 changed inside the gate."),
        ([a_row(None)], "Nothing was judged: no job left a signal."),
        ([], "Nothing was judged: no job left a signal."),
    ],
)
def test_sentences(rows: Sequence[SignalVerdict], sentence: str) -> None:
    assert headline([a_section(*rows, verdict="pass")]) == sentence


def test_the_sentence_counts_what_is_not_known_too() -> None:
    rows = [a_row(), a_row("inconclusive", signal="step_time"), a_row("no-baseline", signal="map"), *passes(1)]
    assert headline([a_section(*rows)]).endswith("; 1 inconclusive; 1 without a baseline.")


def test_the_sentence_names_all_places_up_to_some() -> None:
    sections = [a_section(a_row())._replace(title=str(index)) for index in range(9)]
    many = [s._replace(cases=[s.cases[0].model_copy(update={"device": f"gpu-{i}"})]) for i, s in enumerate(sections)]
    assert "on GPU-0, torch 2.11 and GPU-1, torch 2.11 and GPU-2, torch 2.11 and GPU-3, torch 2.11 and 5 more" in (
        headline(many)
    )


@pytest.mark.parametrize(
    ("case_id", "words"),
    [
        ("nano-b4-compile", "Nano compiled"),
        ("seg-2xlarge-b4", "Seg 2XLARGE eager"),
        ("nano-cpu-b2", "Nano eager"),
        ("nano-b4-compile-x2", "nano-b4-compile-x2"),
        ("<b>", "<b>"),
    ],
)
def test_cases_in_words(case_id: str, words: str) -> None:
    assert case_words(case_id) == words


def test_what_fails_comes_first_with_all_that_is_needed_and_the_rest_is_folded() -> None:
    interval = a_row(signal="gpu_busy", kind="device", unit="ms", baseline=10, now=11, interval=(1.05, 1.15), where=[])
    rows = [
        *passes(2),
        a_row(None, signal="first_step"),
        a_row("inconclusive", message="3 more runs"),
        a_row(),
        interval,
    ]
    text = comment([a_section(*rows)], Origin("git+x@1", "git+x@2", "https://github.com/o/r/actions/runs/1"))
    assert text.startswith(f"{MARKER}\n**2 of 5 signals regressed on H200, torch 2.11: ")
    opened, _, folded = text.partition("<details>")
    for told in (
        f"`{BREAK_LINE}`",
        "| 6 | 7 | +1 |",
        "`nox -s ab-2.11 -- --case nano-b4-compile`",
        "+5.00 % to +15.00 %",
    ):
        assert told in opened
    assert "- refresh, once approved: `gh workflow run refresh.yml`" in opened
    assert "- inconclusive: `h200-torch-2.11-quick` `nano-b4-compile` `graph_breaks`: `3 more runs`" in opened
    assert "signal_1" not in opened
    assert "2 passed</summary>" in folded
    assert "1 shown, not gated</summary>" in folded
    assert text.count("<details>") == text.count("</details>")


def test_it_says_how_it_was_measured() -> None:
    now = [a_record([*proof(), BREAKS], CPU_COMPILED, notes=["@octocat look"])]
    section = Section("cpu", judge(now, {}).cases, now)
    assert "- `note: @octocat look`" in comment([section])


HOSTILE = [
    "@octocat",
    "<script>alert(1)</script>",
    "[click](https://evil.example)",
    "https://evil.example",
    "www.evil.example",
    "![x](https://evil.example/x.png)",
    "a|b|c",
    "`code`",
    "``",
    "line\nbreak\n\n# head",
    "</details>",
    "<!-- rfdetr-perf -->",
    "**bold** _it_ ~~x~~",
    "fixes #1 GH-1 owner/repo#2",
    "a\u202eb\x1b[31m",
    "&lt;b&gt; &#64;octocat",
    "\\`x\\`",
    "$x$ :smile:",
    "someone@example.org",
    "gh-1 and more",
    "all is well :white_check_mark: indeed",
    "see deadbeef1 for more",
    "p\u0430ss \u3164 pass",
    "x \\| y \\\\| z",
]


def rendered(text: str) -> Any:
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def leaves(tokens: Sequence[Any]) -> list[Any]:
    return [leaf for token in tokens for leaf in ([token, *leaves(token.children)] if token.children else [token])]


def check_inert(text: str, hostile: str) -> None:
    """Check what a renderer of Markdown makes of it: names are in code spans, and the only markup is the suite's."""
    tokens = leaves(rendered(text))
    assert {t.type for t in tokens} & {"link_open", "image", "fence", "code_block", "hr"} == set()
    markup = "".join(t.content for t in tokens if t.type.startswith("html"))
    assert re.sub(r"<summary>[\w ,]+</summary>|</?details>|<!-- rfdetr-perf -->|\s", "", markup) == ""
    assert text.count(MARKER) - sum(t.content.count(MARKER) for t in tokens if t.type == "code_inline") == 1
    plain = " ".join(t.content for t in tokens if t.type == "text")
    assert not re.search(r"(?i)@|https?:|www\.|#\d|GH-\d|:\w+:|deadbeef|[^\x00-\x7f]", plain), plain
    assert "\x1b" not in text
    assert "\u202e" not in text
    widths = {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths <= {10}, hostile


@pytest.mark.parametrize("hostile", HOSTILE)
def test_whatever_a_name_is_it_comes_out_inert(hostile: str) -> None:
    named: dict[str, Any] = dict.fromkeys(("case_id", "signal", "message", "reproduce", "refresh", "unit"), hostile)
    verdicts: tuple[Verdict | None, ...] = ("failed", "regressed", "improved", "inconclusive", "pass", None)
    rows = [a_row(verdict, where=[hostile, hostile], kind="wall", **named) for verdict in verdicts]
    record = a_record([], GPU_EAGER, notes=[hostile], environment=H200.model_copy(update={"cpu_model": hostile}))
    for first in (rows, rows[3:], rows[4:]):
        section = a_section(*first, title=hostile)._replace(head=[record])
        case = section.cases[0].model_copy(update={"device": hostile, "torch_minor": hostile})
        check_inert(comment([section._replace(cases=[case])], Origin(hostile, hostile, hostile)), hostile)


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_name_is_inert(name: str) -> None:
    check_inert(comment([a_section(a_row(signal=name, message=name, where=[name]), title=name)]), name)


@pytest.mark.parametrize("verdict", ["failed", "inconclusive", "pass", None])
@pytest.mark.parametrize("name", ["s", "|" * 1_000, "`" * 1_000, "\N{PILE OF POO}" * 1_000])
def test_it_is_never_longer_than_github_takes(verdict: Verdict | None, name: str) -> None:
    count = 800
    rows = [
        a_row(verdict, signal=f"{name}{index}", message=f"{name}{index}\n{name}", where=[name], reproduce=name)
        for index in range(count)
    ]
    others = [a_row("inconclusive", signal=name) for _ in range(count)]
    text = comment([a_section(*rows, *others, *passes(count))])
    assert len(text) <= LIMIT
    assert text.count("<details>") == text.count("</details>")
    assert re.search(r"Cut to what a comment may hold: .*\d+ .*All of it is in the run's `report\.html`\.", text)


def test_what_fits_is_not_cut_and_failing_signals_have_their_commands_even_among_many() -> None:
    assert "Cut to" not in comment([a_section(a_row(), *passes(50))])
    text = comment([a_section(*(a_row(signal=f"s{i}") for i in range(2_000)))])
    assert "- reproduce: `nox -s ab-2.11" in text


PATCH = "@@ -1,3 +10,4 @@ def f\n a\n+b\n@@ -90 +99 @@\n-x\n+y"


def test_lines_that_the_pull_request_shows_are_annotated() -> None:
    changed = changed_lines(
        [
            {"filename": "src/rfdetr/models/transformer.py", "patch": PATCH},
            {"filename": "docs/a.md"},
            {"filename": "big.py", "patch": None},
        ]
    )
    assert changed["src/rfdetr/models/transformer.py"] == {10, 11, 12, 13, 99}
    rows = [a_row(where=[f"rfdetr/models/transformer.py:{line}"]) for line in (11, 14, 99)]
    rows += [a_row("inconclusive", where=["rfdetr/models/transformer.py:12"]), a_row(where=["docs/a.md:1"])]
    told = annotate([a_section(*rows)], changed)
    assert [command.partition("::6")[0] for command in told] == [
        f"::error file=src/rfdetr/models/transformer.py,line={line},"
        "title=rfdetr-perf%3A Nano compiled%2C graph_breaks regressed"
        for line in (11, 99)
    ]


def test_a_line_of_another_file_with_that_name_is_not_annotated() -> None:
    rows = [a_row(where=["rfdetr/a.py:1"])]
    other = {"tests/rfdetr/a.py": {1}}
    assert annotate([a_section(*rows)], other) == []
    [command] = annotate([a_section(*rows)], other | {"src/rfdetr/a.py": {1}})
    assert command.startswith("::error file=src/rfdetr/a.py,line=1,")


def test_an_annotation_cannot_become_another_command() -> None:
    evil = "x\n::set-env name=A::b %0A::error::\r"
    row = a_row(signal=evil, message=f"{evil}\n{evil}", where=["src/a.py:1"])
    [command] = annotate([a_section(row)], {"src/a.py": {1}})
    assert "\n" not in command
    assert "\r" not in command
    assert "%0A" not in command.replace("%250A", "")
    assert annotate([a_section(*(a_row(where=[f"a.py:{n}"]) for n in range(50)))], {"a.py": set(range(50))})[10:] == []


def test_a_part_with_a_name_of_the_pull_requests_is_told_as_code() -> None:
    more = a_signal("graph_breaks", 2, parts=[*parts(a=1), Part(name="@octocat <b>", value=1, where=[BREAK_LINE])])
    now = [a_record([*proof(), more], CPU_COMPILED)]
    approved = a_baseline([a_record([*proof(), BREAKS], CPU_COMPILED)])
    text = comment([Section("cpu", judge(now, {approved.case_id: approved}).cases, now)])
    assert f"  - `@octocat <b> 0 -> 1 at {BREAK_LINE}`" in text
    check_inert(text, "part")
