from __future__ import annotations

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest
from factories import CPU_EAGER

from perf import run_record
from perf.environment import Environment
from perf.record import read_record
from perf.run_order import Order
from perf.run_record import RunRecord
from perf.turns import BESIDE


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(case=CPU_EAGER, session="s1", run=0, folder=tmp_path / "s1")


def test_a_run_leaves_a_running_record_before_it_measures(order: Order) -> None:
    run = RunRecord(order)

    record = read_record(order.record_path)
    assert record == run.record
    assert (record.status, record.signals, record.finished) == ("running", [], None)
    assert record.environment.device == "cpu"
    assert record.command == order.command


def test_a_run_that_takes_turns_imports_torch_while_none_measures(
    order: Order, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "turn.lock"

    def import_torch(order: Order) -> Environment:
        with lock.open("ab") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fingerprint(order)

    fingerprint = run_record._fingerprint
    monkeypatch.setattr(run_record, "_fingerprint", import_torch)
    run = RunRecord(replace(order, turn=lock))
    assert BESIDE in run.record.notes
    run.turn.close()
