from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.progress import Follower, Progress


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records" / "run-0.progress.log"


def test_the_file_is_there_before_the_first_line(path: Path) -> None:
    Progress(path, "nano run 0")

    assert path.read_text() == ""


def test_a_line_says_when_who_and_what(path: Path) -> None:
    Progress(path, "nano run 0").say("timing 5 steps")

    assert re.fullmatch(r"\[ +\d+\.\d s\] nano run 0: timing 5 steps\n", path.read_text())


def texts(path: Path) -> list[str]:
    return [line.partition("nano: ")[2] for line in path.read_text().splitlines()]


def test_a_long_wait_says_it_begins_goes_on_and_ends(path: Path) -> None:
    details = iter(["", *["3 frames"] * 1000])
    with Progress(path, "nano").during("compiling", lambda: next(details), interval=0.02):
        while len(texts(path)) < 4:
            time.sleep(0.01)

    first, second, third, *_, last = texts(path)
    assert first == "compiling"
    assert second == "compiling: 0 s"
    assert third == "compiling: 0 s, 3 frames"
    assert re.fullmatch(r"compiling: done in \d+\.\d s", last)


def test_a_short_wait_has_no_heartbeat(path: Path) -> None:
    with Progress(path, "nano").during("first step", lambda: "", interval=60):
        pass

    assert len(texts(path)) == 2


def test_a_wait_that_raises_stops_its_thread_and_is_not_done(path: Path) -> None:
    threads = threading.active_count()
    error = ValueError("no")
    with pytest.raises(ValueError, match="no"), Progress(path, "nano").during("compiling", str, interval=60):
        raise error

    assert threading.active_count() == threads
    assert texts(path) == ["compiling"]


def test_following_a_file_that_is_not_there_yet_gives_nothing(path: Path) -> None:
    follower = Follower(path)
    assert follower.new_lines() == []
    Progress(path, "nano").say("here")
    assert [line.partition("nano: ")[2] for line in follower.new_lines()] == ["here"]
    assert follower.new_lines() == []


LINES = st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=9), min_size=1, max_size=6)


@given(LINES, st.data())
def test_a_follower_never_yields_half_a_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("progress") / "log"
    written = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=5)))
    follower, found = Follower(path), []
    for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        with path.open("ab") as file:
            file.write(written[start:end])
        found += follower.new_lines()
        assert found == lines[: len(found)]

    assert found == lines
