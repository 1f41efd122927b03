"""The document of findings: no question without a row, no dead link, no command that would not run."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perf.case import find_case
from perf.cli import _parser
from perf.matrix import MATRIX
from perf.replay import chosen

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = ROOT / "docs" / "findings" / "nvidia-h200.md"
TEXT = FINDINGS.read_text(encoding="utf-8")
QUESTIONS = TEXT.partition("## The questions")[2].partition("\n## ")[0]
UNANSWERED = ("not measured yet", "not measurable on that machine")
FILE = re.compile(r"(?:perf|tests|docs|baselines)/[\w./-]+")


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row whose first cell is a number."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("|") and cells[0].isdigit():
            yield cells


def commands(text: str) -> list[str]:
    """Return what is to be typed, once each."""
    quoted = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))
    return list(dict.fromkeys(code for code in quoted if re.match(r"(pytest|rfdetr-perf|nox) ", code)))


def suite_options() -> argparse.ArgumentParser:
    """Return the options that the suite adds to pytest, and those of pytest that the document uses."""
    spec = importlib.util.spec_from_file_location("suite_conftest", ROOT / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    parser = argparse.ArgumentParser()
    conftest.pytest_addoption(SimpleNamespace(getgroup=lambda *_: SimpleNamespace(addoption=parser.add_argument)))
    parser.add_argument("-s", action="store_true")
    parser.add_argument("tests", nargs="*")
    return parser


def asked(command: str) -> argparse.Namespace:
    """Return what a command asks for, by the parser that would read it; a wrong one ends in SystemExit."""
    program, *arguments = shlex.split(command)
    if program == "rfdetr-perf":
        return _parser().parse_args(arguments)
    if program == "nox":
        assert arguments[0] == "-s"
        session, dashes, *arguments = arguments[1:]
        assert dashes == "--"
        if session == "replay":
            assert chosen(words=asked(f"rfdetr-perf replay {shlex.join(arguments)}").words)
            return argparse.Namespace()
        assert session.removeprefix("perf-") in MATRIX
    return suite_options().parse_args(arguments)


def test_each_question_has_a_row_with_an_answer_a_command_and_a_source() -> None:
    found = list(rows(QUESTIONS))

    assert [int(row[0]) for row in found] == list(range(1, 18))
    for number, question, answer, command, source in found:
        assert all((question, source)), number
        assert commands(command), number
        told = any(word in answer.lower() for word in UNANSWERED)
        assert told or re.search(r"\d", answer), number


def test_nothing_is_left_open_without_the_words_for_it() -> None:
    assert not re.search(r"not measured(?! yet)|not measurable(?! on that machine)", " ".join(TEXT.split()))


def test_every_link_leads_to_a_file_or_a_heading_that_is_there() -> None:
    headings = {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", TEXT, re.M)}
    targets = re.findall(r"\]\(([^)\s]+)\)", TEXT)

    assert len(targets) > len(headings)
    for target in targets:
        path, _, heading = target.partition("#")
        assert heading in headings if not path else (FINDINGS.parent / path).is_file(), target


@pytest.mark.parametrize("command", commands(TEXT))
def test_a_command_is_one_that_is_understood(command: str) -> None:
    options = asked(command)
    cases = getattr(options, "case", None) or []

    for case in cases if isinstance(cases, list) else [cases]:
        assert find_case(case).id == case
    for file in FILE.findall(command):
        assert (ROOT / file).exists(), file


def test_the_report_that_it_leans_on_names_no_machine() -> None:
    report = (FINDINGS.parent / "nvidia-h200-nano.md").read_text(encoding="utf-8")

    for text in (report, TEXT):
        assert not re.search(r"(?<![\w.])/(?:tmp|home|root|opt|work|mnt|usr)/|hostname", text)
