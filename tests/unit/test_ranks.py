from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import a_record

from perf.case import Case
from perf.ranks import Death, blame, deaths
from perf.record import Record, read_record, write_record
from perf.run_order import Order

TWO = Case(config="nano", lane="cpu", batch_size=2, devices=2)
THEN = datetime(2026, 7, 1, tzinfo=UTC)
GONE = "Traceback (most recent call last):\n  x\nRuntimeError: Connection closed by peer"
RAISED = "Traceback (most recent call last):\n  x\nValueError: no loss"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return order(tmp_path, 0).record_path


def order(folder: Path, rank: int) -> Order:
    return Order(case=TWO, session="s1", run=0, folder=folder, rank=rank)


def leave(folder: Path, rank: int, error: str | None = None, seconds: float = 0) -> Record:
    status = "failed" if error else "running"
    finished = THEN + timedelta(seconds=seconds) if error else None
    record = a_record(case=TWO, status=status, error=error, finished=finished)
    write_record(order(folder, rank).record_path, record)
    return record


def test_deaths_come_in_the_order_of_time() -> None:
    failures = {0: SimpleNamespace(exitcode=1, timestamp=20), 1: SimpleNamespace(exitcode=-9, timestamp=10)}
    assert deaths(failures) == [Death(1, -9, 10), Death(0, 1, 20)]


def test_a_rank_that_was_killed_is_to_blame_whatever_the_others_raised(tmp_path: Path, path: Path) -> None:
    leave(tmp_path, 0, GONE)
    leave(tmp_path, 1)

    assert blame([Death(0, 1), Death(1, -9)], 2, path) == "rank 1 of 2 was killed by SIGKILL"
    record = read_record(path)
    assert (record.status, record.error) == ("failed", "rank 1 of 2 was killed by SIGKILL")
    assert record.notes == ["rank 0 ended so: RuntimeError: Connection closed by peer"]


@pytest.mark.parametrize(
    ("first", "told"), [(0, "RuntimeError: Connection closed by peer"), (1, "ValueError: no loss")]
)
def test_else_the_rank_that_failed_first(tmp_path: Path, path: Path, first: int, told: str) -> None:
    leave(tmp_path, 0, GONE, seconds=first)
    leave(tmp_path, 1, RAISED, seconds=1 - first)
    # The launcher sees processes end, which says little of which raised first.
    assert blame([Death(0, 1)], 2, path) == f"rank {first} of 2: {told}"


@pytest.mark.parametrize("others", [Death(0, -15), Death(0, -9, second=30)])
def test_what_the_launcher_ended_then_is_not_to_blame(tmp_path: Path, path: Path, others: Death) -> None:
    leave(tmp_path, 0)
    leave(tmp_path, 1, RAISED)

    assert blame([Death(1, 1), others], 2, path) == "rank 1 of 2: ValueError: no loss"
    assert blame([Death(1, -9), others], 2, path) == "rank 1 of 2 was killed by SIGKILL"
    assert blame([Death(1, -15), others], 2, path) == "rank 1 of 2 was killed by SIGTERM"


def test_a_rank_that_left_no_record_is_named_by_its_exit(tmp_path: Path, path: Path) -> None:
    assert blame([Death(1, 3)], 2, path) == "rank 1 of 2: exit code 3"
    assert not path.exists()


def test_a_ranks_record_is_none_of_a_run(tmp_path: Path, path: Path) -> None:
    own = order(tmp_path, 1).record_path
    assert own.name == "run-0-rank-1.rank.json"
    assert path.name == "run-0.record.json"
    assert len({order(tmp_path, rank).progress_path for rank in (0, 1)}) == 2
