"""Turns: who works beside whom, told by real locks that threads and processes hold."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perf import turns
from perf.turns import Turn

ROOT = Path(__file__).resolve().parents[2]


class Diary:
    """What each of several threads does when, in the order in which they do it."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.measuring, self.most = path, list[str](), 0, 0
        self.ready = threading.Barrier(3)

    def run(self, name: str, seconds: float) -> None:
        turn = Turn(self.path)
        with turn.together():
            self.ready.wait(10)
            time.sleep(seconds)
            self.lines.append(f"{name} is ready")
            with turn.alone(lambda _: None):
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
    turn, told = Turn(None), list[str]()
    with turn.together(), turn.alone(told.append):
        pass
    assert told == []


HOLDS = """
import pathlib, sys, time
from perf.turns import Turn
with Turn(pathlib.Path(sys.argv[1])).together():
    print("holds", flush=True)
    time.sleep(60)
"""


def test_one_that_is_killed_while_it_prepares_holds_up_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "turn.lock"
    turn, command = Turn(lock), [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"holds\n"
        threading.Timer(0.3, other.kill).start()
        with turn.together(), turn.alone(lambda _: None):
            assert other.wait(5) != 0


def measure_and_fail(turn: Turn) -> None:
    with turn.together(), turn.alone(lambda _: None):
        msg = "boom"
        raise RuntimeError(msg)


def test_after_an_error_it_neither_yields_nor_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_YIELD_SECONDS", 60)
    turn, began = Turn(tmp_path / "turn.lock"), time.monotonic()
    with pytest.raises(RuntimeError, match="boom"):
        measure_and_fail(turn)
    with turn.together():
        assert time.monotonic() - began < 10
