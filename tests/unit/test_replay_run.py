"""Running replays: which runs, in which order, once each. A stand-in leaves the records; tests/releases runs rfdetr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from factories import a_record, a_signal, an_environment

from perf import launch, replay_run
from perf.launch import RunFailed
from perf.record import Part, write_record
from perf.replay import Claim, Replay, chosen
from perf.replay_run import Session, check_pythons, missing, orders, outcomes, replay_all
from perf.run_order import Order

RELEASES = ("1.9.4", "1.10.1", "1.11.0")
CALLS = Replay(
    name="calls",
    base="1.10.1",
    head="1.11.0",
    case="nano-cpu-b2",
    verdict="regressed",
    claims=(Claim("python_calls", "regressed", part="forward a.py:f"),),
    what="more calls",
    source="1.11.0 a.py:1",
)
FAILING = replace(
    CALLS, name="failing", base=None, head="1.9.4", verdict="failed", claims=(Claim("run 0", "failed", told="boom"),)
)
GPU = replace(CALLS, name="gpu", case="nano-b4")


class Bench:
    """Runs that take no time: each release makes a hundred calls more than the one before; 1.9.4 raises."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[str] = []
        self.told: list[str] = []
        self.installed = ""
        self.interrupted = False
        self.crashing = ""
        pythons = {release: Path(sys.executable) for release in RELEASES}
        self.session = Session("replay-1", folder / "replay-1", pythons, self.told.append)
        self.beside: list[list[str]] = []
        monkeypatch.setattr(replay_run, "run_in_fresh_process", self._run)
        monkeypatch.setattr(launch, "run_together", self._run_together)

    def _run_together(
        self,
        orders: Sequence[Order],
        at_once: int,
        tell: Callable[[str], None],
        timeout: float,
        name: Callable[[Order], str],
    ) -> None:
        assert {order.turn for order in orders} == {self.session.folder / "turn.lock"}
        self.beside.append([f"{name(order)}{order.case.id}" for order in orders])
        for order in orders:
            with contextlib.suppress(RunFailed):  # as the real one, which returns it
                self._run(order, tell, timeout)

    def _run(self, order: Order, tell: Callable[[str], None], timeout: float) -> None:
        side = order.folder.name
        self.runs.append(f"{side} {order.case.id} {order.run}")
        if self.crashing == f"{side} {order.run}":
            order.crash_path.parent.mkdir(parents=True, exist_ok=True)
            order.crash_path.write_text("exit code 9 before a record was begun; log: run-0.log", encoding="utf-8")
            raise RunFailed(order.crash_path.read_text(encoding="utf-8"))
        calls = 100 * (1 + RELEASES.index(side.partition("+")[0]))
        parts = [Part(name="forward a.py:f", value=calls)]
        signals = [a_signal("python_calls", calls, "count-volume", parts=parts)]
        error = "ValueError: boom" if side == "1.9.4" else "KeyboardInterrupt: SIGTERM" if self.interrupted else None
        environment = an_environment(rfdetr=self.installed or side.partition("+")[0])
        changes = {
            "session": order.session,
            "environment": environment,
            "status": "failed" if error else "finished",
            "error": error,
        }
        record = a_record(signals, order.case, order.run, **changes)
        write_record(order.record_path, record)
        if error:
            raise RunFailed(error, record)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_what_a_replay_needs_is_run_and_judged(bench: Bench) -> None:
    [calls, failing] = replay_all(bench.session, [CALLS, FAILING])

    assert (calls.outcome, failing.outcome) == ("caught", "caught")
    assert bench.runs == ["1.10.1 nano-cpu-b2 0", "1.11.0 nano-cpu-b2 0", "1.9.4 nano-cpu-b2 0"]
    assert "1.9.4: nano-cpu-b2 run 0 failed: ValueError: boom" in bench.told


def test_a_run_is_shared_by_all_replays_and_never_repeated(bench: Bench) -> None:
    other = replace(CALLS, name="other", base="1.9.4", verdict="no-baseline", claims=(Claim("base", "no-baseline"),))
    replay_all(bench.session, [CALLS, other, FAILING])
    assert len(bench.runs) == 3

    replay_all(bench.session, [CALLS, other, FAILING])
    assert len(bench.runs) == 3
    assert bench.told[-1].endswith("measured already")


def test_a_patched_side_has_a_folder_of_its_own(bench: Bench) -> None:
    patched = replace(CALLS, name="patched", patch="perf/replay_patches/shipped_groups.py")
    found = list(orders(bench.session, [CALLS, patched]))

    assert [order.folder.name for order in found] == [
        "1.10.1",
        "1.11.0",
        "1.10.1+shipped_groups",
        "1.11.0+shipped_groups",
    ]
    assert [order.patch is None for order in found] == [True, True, False, False]


def test_pairs_of_runs_are_taken_back_and_forth_over_all_releases_of_a_case(bench: Bench) -> None:
    timed, repaired = replace(CALLS, pairs=3), replace(CALLS, base="1.11.0", head="1.9.4", pairs=2)
    found = [f"{order.folder.name} {order.run}" for order in orders(bench.session, [timed, repaired])]

    assert found == ["1.10.1 0", "1.11.0 0", "1.9.4 0", "1.9.4 1", "1.11.0 1", "1.10.1 1", "1.10.1 2", "1.11.0 2"]


def test_a_replay_by_counts_takes_one_run_where_another_has_more(bench: Bench) -> None:
    replay_all(bench.session, [replace(CALLS, name="timed", pairs=2), CALLS])

    assert [run.run for run in bench.session.records(CALLS)["1.11.0"]] == [0]


def test_on_a_gpu_the_releases_of_a_case_prepare_beside_each_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_run, "lacking", lambda _: "")
    results = replay_all(bench.session, [GPU, replace(GPU, name="masks", case="seg-nano-b4"), CALLS])

    assert bench.beside == [[f"{one}: {case}" for one in RELEASES[1:]] for case in ("nano-b4", "seg-nano-b4")]
    assert len(bench.runs) == 6
    assert [one.outcome for one in results] == ["caught"] * 3


def test_where_files_cannot_be_locked_runs_follow_one_another(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_run, "lacking", lambda _: "")
    monkeypatch.setattr(launch, "can_lock", lambda _: False)
    [found] = replay_all(bench.session, [GPU])
    assert (bench.beside, len(bench.runs), found.outcome) == ([], 2, "caught")


def test_what_needs_a_gpu_is_not_run_here_and_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf.session.gpu_count", lambda: 0)
    [found] = replay_all(bench.session, [GPU])

    assert (found.outcome, found.said) == (
        "not run here",
        ("needs an NVIDIA GPU, and NVML shows none on this machine",),
    )
    assert bench.runs == []
    check_pythons([GPU], {})


def test_records_of_a_gpu_are_judged_where_there_is_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_run, "lacking", lambda _: "")
    replay_all(bench.session, [GPU])
    monkeypatch.setattr(replay_run, "lacking", lambda _: "needs a GPU")

    assert [one.outcome for one in outcomes(bench.session, [GPU])] == ["caught"]
    [more] = outcomes(bench.session, [replace(GPU, pairs=2)])
    there = "1 of 2 runs of 1.10.1, 1 of 2 runs of 1.11.0"
    assert (more.outcome, more.said) == ("not run here", (f"{there} are there, and the rest needs a GPU",))
    assert missing(bench.session, replace(GPU, pairs=2)) == there
    assert missing(bench.session, replace(GPU, case="seg-nano-b4")) == ""  # never begun, and no machine for it here


def test_what_is_on_record_needs_neither_run_nor_interpreter(bench: Bench) -> None:
    told = Claim("outcome", "cannot be imported", told="BackboneConfigMixin")
    floor = replace(CALLS, base=None, head="1.11.2", recorded=True, minor="2.2", claims=(told,))

    check_pythons([floor], {})
    [found] = outcomes(bench.session, [floor])
    assert found.outcome == "on record"
    assert bench.runs == []


def test_what_a_session_has_not_measured_is_named(bench: Bench) -> None:
    timed = replace(CALLS, name="timed", pairs=2)
    assert missing(bench.session, CALLS) == "0 of 1 runs of 1.10.1, 0 of 1 runs of 1.11.0"

    replay_all(bench.session, [CALLS])
    assert missing(replace(bench.session, pythons={}), CALLS) == ""
    assert missing(bench.session, timed) == "1 of 2 runs of 1.10.1, 1 of 2 runs of 1.11.0"


def test_a_run_that_was_interrupted_is_missing_and_run_again(bench: Bench) -> None:
    bench.interrupted = True
    replay_all(bench.session, [CALLS])
    assert missing(bench.session, CALLS) == "0 of 1 runs of 1.10.1, 0 of 1 runs of 1.11.0"

    bench.interrupted = False
    [found] = replay_all(bench.session, [CALLS])
    assert (found.outcome, len(bench.runs)) == ("caught", 4)


def test_a_run_that_crashed_before_its_record_is_not_repeated_and_told(bench: Bench) -> None:
    bench.crashing = "1.11.0 0"
    replay_all(bench.session, [CALLS])
    bench.crashing = ""
    [found] = replay_all(bench.session, [CALLS])

    crash = "exit code 9 before a record was begun"
    assert bench.runs == ["1.10.1 nano-cpu-b2 0", "1.11.0 nano-cpu-b2 0"]
    assert bench.told[-1] == f"1.11.0: nano-cpu-b2 run 0 crashed before: {crash}; a new session measures it again"
    assert (found.outcome, found.wrong[0]) == ("not caught", f"1.11.0, run 0: {crash}")
    assert missing(bench.session, CALLS) == ""
    assert outcomes(bench.session, [CALLS]) == [found]


def test_a_crash_is_told_where_the_runs_beside_it_show_what_is_claimed(bench: Bench) -> None:
    bench.crashing = "1.11.0 1"
    two = replace(CALLS, pairs=2, claims=(), verdict="no-baseline")
    [found] = replay_all(bench.session, [two])

    assert (found.outcome, found.wrong) == ("other", ("1.11.0, run 1: exit code 9 before a record was begun",))


def test_on_a_gpu_a_crash_is_not_repeated_either(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_run, "lacking", lambda _: "")
    bench.crashing = "1.11.0 0"
    [found] = replay_all(bench.session, [GPU])

    assert bench.runs == ["1.10.1 nano-b4 0", "1.11.0 nano-b4 0"]
    assert found.wrong[0] == "1.11.0, run 0: exit code 9 before a record was begun"


def test_what_is_on_record_is_found_from_any_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [found] = outcomes(bench.session, chosen("cpu", ["torch-2.2"]))

    assert found.outcome == "on record"


def test_runs_of_another_release_than_they_should_be_of_catch_nothing(bench: Bench) -> None:
    bench.installed = "1.11.0"
    [found] = replay_all(bench.session, [CALLS])

    assert (found.outcome, found.wrong) == ("not caught", ("1.10.1: its runs measured rfdetr 1.11.0",))


def test_a_release_without_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no interpreter for rfdetr 1\.11\.0: nox -s replay makes them"):
        check_pythons([CALLS], {"1.10.1": Path(sys.executable)})
    with pytest.raises(ValueError, match=r"--python 1\.9\.4=.*gone: no such file"):
        check_pythons([FAILING], {"1.9.4": tmp_path / "gone"})
