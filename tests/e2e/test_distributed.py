"""Two real ranks on a CPU, by gloo: their counts, a slow one, one that is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from running import run_suite

from perf.case import Case
from perf.launch import RunFailed, run_in_fresh_process
from perf.record import read_record, read_records
from perf.run_order import Order

EAGER = Case(config="nano", lane="cpu", batch_size=2, devices=2)


def test_counts_are_those_of_the_baseline_and_a_slow_rank_is_named(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", EAGER.id, patch="slow_rank.py")
    row = outcome.signal(EAGER.id, "slow_ranks")

    assert outcome.exit_code == 3, outcome.output
    assert row.verdict == "inconclusive"
    assert row.message.startswith("rank 1 takes +")
    assert "rank 1 takes +" in outcome.output
    gated = {row.signal: row for row in outcome.case(EAGER.id).signals if row.verdict and row.signal != "slow_ranks"}
    assert {row.verdict for row in gated.values()} == {"pass"}
    # The patch is a call more on either rank, and Lightning looks at the function that it wraps.
    assert {name for name, row in gated.items() if row.change} <= {"python_calls", "c_calls"}
    [record] = read_records(tmp_path)
    for name in (
        "step_time",
        "own_time",
        "collective_time",
        "transfer_time",
        "collective_overlap",
        "peak_rss",
        "rank_imbalance",
    ):
        found = record.signal(name)
        assert found
        assert [part.name for part in found.parts] == ["rank 0", "rank 1"]
    # What each measured by itself stays, of rank 0 too.
    alone = [read_record(path) for path in sorted(tmp_path.rglob("*.rank.json"))]
    both = zip(*(own.samples for one in alone if (own := one.signal("own_time"))), strict=True)
    assert all(rank_1 > rank_0 for rank_0, rank_1 in both)


def an_order(folder: Path) -> Order:
    return Order(case=EAGER, session="s1", run=0, folder=folder / "s1", untimed=True)


def ranks() -> dict[int, psutil.Process]:
    """Return the processes below this one that are a rank, by their rank."""
    below = psutil.Process().children(recursive=True)
    return {int(process.environ()["RANK"]): process for process in below if "RANK" in process.environ()}


class When:
    """A ``tell`` that calls ``then`` once, at the first line that says ``text``."""

    def __init__(self, text: str, then: Callable[[], None]) -> None:
        self.text, self.then, self.at = text, then, 0.0
        self.seen: list[psutil.Process] = []

    def __call__(self, line: str) -> None:
        if self.text in line and not self.at:
            self.seen = psutil.Process().children(recursive=True)
            self.at = time.monotonic()
            self.then()


def assert_gone(processes: list[psutil.Process]) -> None:
    assert len(processes) >= 3  # the launcher and two ranks
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_rank_that_is_killed_ends_the_run_within_a_minute_and_is_named(tmp_path: Path) -> None:
    def kill() -> None:
        ranks()[1].kill()

    tell, order = When("counting work", kill), an_order(tmp_path)

    with pytest.raises(RunFailed, match="rank 1 of 2 was killed by SIGKILL"):
        run_in_fresh_process(order, tell, timeout=300)

    assert time.monotonic() - tell.at < 60
    assert_gone(tell.seen)
    record = read_record(order.record_path)
    assert (record.status, record.error) == ("failed", "rank 1 of 2 was killed by SIGKILL")


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    tell, order = When("first step", lambda: os.kill(os.getpid(), signal.SIGINT)), an_order(tmp_path)

    with pytest.raises(KeyboardInterrupt):
        run_in_fresh_process(order, tell, timeout=300)

    assert time.monotonic() - tell.at < 60
    assert_gone(tell.seen)
    assert read_record(order.record_path).status != "finished"
