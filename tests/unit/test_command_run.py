from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from perf.cli import main

RANK_1 = {"TORCHELASTIC_RUN_ID": "abc", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}


class Started(Exception):  # noqa: N818  (instead of the program that would replace this one)
    pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command would become: path, arguments and environment."""
    found: list[Any] = []

    def execve(*arguments: Any) -> NoReturn:
        found.extend(arguments)
        raise Started

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(os, "chdir", lambda _: None)
    for name in (*RANK_1, "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_a_process_of_a_launch_becomes_a_rank_of_the_run(
    started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in RANK_1.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Started):
        main(["run", "--case", "nano-cpu-b2-compile-eager-x2", "--records", str(tmp_path), "--untimed"])

    _, command, environment = started
    assert command[1:3] == ["-m", "perf.child"]
    assert command[command.index("--session") + 1] == "torchrun-abc"
    assert command[command.index("--records") + 1] == str(tmp_path)
    assert "--untimed" in command
    assert environment["RANK"] == "1"
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["TORCH_TRACE"].endswith("/torchrun-abc/nano-cpu-b2-compile-eager-x2/run-0-rank-1.trace")


@pytest.mark.usefixtures("started")
def test_the_number_of_processes_has_to_be_that_of_the_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--case", "nano-cpu-b2-x2", "--records", str(tmp_path), "--session", "mine"]) == 2
    assert "nano-cpu-b2-x2 wants 2 processes (2 a node), and 1 were started" in capsys.readouterr().err


@pytest.mark.usefixtures("started")
def test_processes_that_nobody_launched_have_to_be_told_their_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--case", "nano-cpu-b2", "--records", str(tmp_path)]) == 2
    assert "give --session NAME, the same to every process of the run" in capsys.readouterr().err
