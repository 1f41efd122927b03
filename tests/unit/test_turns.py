"""Turns: who works beside whom, told by real locks that threads and processes hold."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from perf import turns
from perf.turns import Turn, can_lock

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def joined(path: Path | None, say: Callable[[str], None] = lambda _: None) -> Iterator[Turn]:
    """Take part as a run does."""
    with contextlib.closing(Turn(path, say)) as turn:
        turn.join()
        yield turn


class Diary:
    """What each of several threads does when, in the order in which they do it."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.measuring, self.most = path, list[str](), 0, 0
        self.ready = threading.Barrier(3)

    def run(self, name: str, seconds: float) -> None:
        with joined(self.path) as turn:
            self.ready.wait(10)
            time.sleep(seconds)
            self.lines.append(f"{name} is ready")
            with turn.alone():
                self.measuring += 1
                self.most = max(self.most, self.measuring)
                self.lines.append(f"{name} measures")
                time.sleep(0.1)
                self.measuring -= 1


def test_all_prepare_together_and_each_measures_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_YIELD_SECONDS", 0.05)
    diary = Diary(tmp_path / "turn.lock")
    threads = [
        threading.Thread(target=diary.run, args=(name, wait)) for name, wait in (("a", 0), ("b", 0.2), ("c", 0.4))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert diary.most == 1
    assert [line.split()[1] for line in diary.lines] == ["is"] * 3 + ["measures"] * 3


def test_without_a_lock_file_it_is_always_its_turn() -> None:
    told = list[str]()
    with joined(None, told.append) as turn, turn.alone():
        pass
    assert told == []


HOLDS = """
import pathlib, sys, time
from perf.turns import Turn, can_lock
turn = Turn(pathlib.Path(sys.argv[1]), print)
turn.join()
print("holds", flush=True)
time.sleep(60)
"""


def test_one_that_is_killed_while_it_prepares_holds_up_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "turn.lock"
    command = [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"holds\n"
        threading.Timer(0.3, other.kill).start()
        with joined(lock) as turn, turn.alone():
            assert other.wait(5) != 0


def measure_and_fail(path: Path) -> None:
    with joined(path) as turn, turn.alone():
        msg = "boom"
        raise RuntimeError(msg)


def test_after_an_error_it_neither_yields_nor_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_YIELD_SECONDS", 60)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="boom"):
        measure_and_fail(tmp_path / "turn.lock")
    with joined(tmp_path / "turn.lock"):
        assert time.monotonic() - began < 10


def test_it_says_when_it_waits_for_others_and_when_that_is_over(tmp_path: Path) -> None:
    lock, told = tmp_path / "turn.lock", list[str]()

    def prepare() -> None:
        with joined(lock, told.append):
            pass

    with joined(lock) as other, other.alone():
        thread = threading.Thread(target=prepare)
        thread.start()
        while not told:
            time.sleep(0.01)
        assert told == [turns.WAITS]
    thread.join(10)
    assert told == [turns.WAITS, "goes on"]


def test_the_lock_file_is_open_as_nfs_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, asked = fcntl.flock, list[int]()

    def of_nfs(file: IO[bytes], kind: int) -> None:
        assert file.readable() if kind & fcntl.LOCK_SH else file.writable()
        asked.append(kind)
        flock(file, kind)

    monkeypatch.setattr(turns, "_YIELD_SECONDS", 0)
    monkeypatch.setattr(fcntl, "flock", of_nfs)
    with joined(tmp_path / "turn.lock") as turn, turn.alone():
        pass
    assert [kind & ~fcntl.LOCK_NB for kind in asked] == [
        *[fcntl.LOCK_SH, fcntl.LOCK_UN, fcntl.LOCK_EX, fcntl.LOCK_UN, fcntl.LOCK_SH],
    ]


@pytest.mark.parametrize(("error", "can"), [(None, True), (BlockingIOError(), True), (OSError("ENOSYS"), False)])
def test_some_file_systems_lock_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None, can: bool
) -> None:
    def flock(file: IO[bytes], kind: int) -> None:
        if error:
            raise error

    monkeypatch.setattr(fcntl, "flock", flock)
    assert can_lock(tmp_path / "turn.lock") is can
