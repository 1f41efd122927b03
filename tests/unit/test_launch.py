from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from factories import CPU_EAGER, a_record, a_signal

from perf import launch
from perf.ab_runs import ended
from perf.case import Case
from perf.environment import usable_cpus
from perf.launch import RunFailed, at_once, command_line, left_crash, run_in_fresh_process, run_together
from perf.record import Record, read_record, write_record
from perf.run_order import Order
from perf.turns import WAITS

# A run's stand-in that leaves its pid and its own child's; the child ignores SIGINT, as a stuck worker would.
WITH_WORKER = """
import pathlib, signal, subprocess, sys, time
worker = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(60)"
worker = subprocess.Popen([sys.executable, "-c", worker], stdout=subprocess.PIPE)
worker.stdout.readline()
{before}
pathlib.Path(sys.argv[1]).write_text("begun\\n")
{after}
"""
STUBBORN = WITH_WORKER.format(before="signal.signal(signal.SIGINT, signal.SIG_IGN)", after="time.sleep(60)")
POLITE = WITH_WORKER.format(before="", after="time.sleep(60)")
CRASHING = WITH_WORKER.format(before="", after="sys.exit('no such kernel')")


# A stand-in leaves the record that :func:`leave` laid ready, and none where there is none.
LEAVING = """
import pathlib, sys
ready = pathlib.Path(sys.argv[1] + ".ready")
if ready.exists():
    ready.rename(sys.argv[1].replace(".progress.log", ".record.json"))
"""


def leave(order: Order, record: Record) -> None:
    """Have the stand-in for the process of ``order`` leave this record."""
    write_record(Path(f"{order.progress_path}.ready"), record)


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(case=CPU_EAGER, session="s1", run=0, folder=tmp_path / "s1")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that makes the run's process execute a script, with the progress file as its argument."""
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)

    def use(script: str) -> None:
        monkeypatch.setattr(
            launch, "command_line", lambda order: [sys.executable, "-c", LEAVING + script, str(order.progress_path)]
        )

    return use


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def no_session_left(group: int) -> bool:
    """Return whether every process of ``group`` is gone, or a zombie that init has yet to reap."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return not found


class Groups:
    """A ``tell`` that notes the process group of the run when it speaks, then does ``then``."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.then = then
        self.group = 0
        self.size = 0
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        [run] = psutil.Process().children()
        self.group, self.size = run.pid, 1 + len(run.children())
        self.then()


def gone(group: int) -> bool:
    deadline = time.monotonic() + 5
    while not no_session_left(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("script", [STUBBORN, POLITE])
def test_a_run_that_takes_too_long_is_ended_with_all_its_processes(
    order: Order, stand_in: Callable[[str], None], script: str
) -> None:
    stand_in(script)
    tell = Groups()

    with pytest.raises(RunFailed, match=r"no end after 2 s \(--run-timeout\)"):
        run_in_fresh_process(order, tell, timeout=2)

    assert tell.size == 2
    assert gone(tell.group)
    assert children() == set()


def test_a_run_that_takes_too_long_is_not_told_as_one_that_somebody_interrupted(
    order: Order, stand_in: Callable[[str], None]
) -> None:
    stand_in("import time; time.sleep(60)")
    leave(order, a_record(status="failed", error="Traceback (most recent call last):\n  step\nKeyboardInterrupt"))

    with pytest.raises(RunFailed, match=r"^no end after 1 s \(--run-timeout\); stopped\n") as failure:
        run_in_fresh_process(order, lambda _: None, timeout=1)

    assert failure.value.record is not None
    assert str(failure.value.record.error).endswith("KeyboardInterrupt\nno end after 1 s (--run-timeout); stopped")
    assert ended(order) is not None  # a session that goes on does not repeat it


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("script", [STUBBORN, POLITE])
def test_an_interrupt_ends_the_run_with_all_its_processes(
    order: Order, stand_in: Callable[[str], None], script: str
) -> None:
    stand_in(script)
    tell = Groups(interrupt)

    with pytest.raises(KeyboardInterrupt):
        run_in_fresh_process(order, tell, timeout=60)

    assert tell.size == 2
    assert gone(tell.group)


def test_a_run_that_crashes_leaves_no_worker_and_its_last_words(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in(CRASHING)

    with pytest.raises(RunFailed, match=r"exit code 1 before a record was begun.*\n.*no such kernel") as failure:
        run_in_fresh_process(order, lambda _: None, timeout=60)

    assert str(order.log_path) in str(failure.value)
    assert children() == set()


def test_the_log_tail_is_short(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("for number in range(1000): print('line', number)")

    with pytest.raises(RunFailed) as failure:
        run_in_fresh_process(order, lambda _: None, timeout=60)

    assert "line 999" in str(failure.value)
    assert "line 900" not in str(failure.value)


def test_progress_is_told_as_it_comes_and_to_the_end(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in(
        "import sys, time; file = open(sys.argv[1], 'w'); print('a\\nb', file=file, flush=True); time.sleep(1)\n"
        "print('c', file=file)"
    )
    told: list[tuple[str, float]] = []

    with pytest.raises(RunFailed):
        run_in_fresh_process(order, lambda line: told.append((line, time.monotonic())), timeout=60)

    assert [line for line, _ in told] == ["a", "b", "c"]
    assert told[2][1] - told[1][1] > 0.3


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [("running", None, "ended in mid-run"), ("failed", "Traceback\nValueError: no loss", "ValueError: no loss")],
)
def test_a_record_that_is_not_finished_is_a_failure(
    order: Order, stand_in: Callable[[str], None], status: str, error: str | None, said: str
) -> None:
    stand_in("")
    leave(order, a_record(status=status, error=error))

    with pytest.raises(RunFailed) as failure:
        run_in_fresh_process(order, lambda _: None, timeout=60)

    assert str(failure.value).startswith(f"{said}\nrecord: {order.record_path}")


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_record_of_before_is_not_what_became_of_a_run(
    order: Order, stand_in: Callable[[str], None], status: str
) -> None:
    write_record(order.record_path, a_record(status=status, error="KeyboardInterrupt"))
    stand_in("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    with pytest.raises(RunFailed, match="killed by SIGKILL before a record was begun") as failure:
        run_in_fresh_process(order, lambda _: None, timeout=60)

    assert failure.value.record is None
    assert not order.record_path.exists()


def test_what_ranks_left_before_is_gone(order: Order, stand_in: Callable[[str], None]) -> None:
    order.stem.parent.mkdir(parents=True)
    old, another = (
        order.stem.with_name(f"{order.stem.name}{name}") for name in ("-rank-1.rank.json", "0-rank-1.rank.json")
    )
    for path in (old, another):
        path.write_text("{}", encoding="utf-8")
    order.stem.with_name(f"{order.stem.name}-rank-1.trace").mkdir()
    stand_in("raise SystemExit(1)")

    with pytest.raises(RunFailed):
        run_in_fresh_process(order, lambda _: None, timeout=60)
    assert (old.exists(), another.exists()) == (False, True)


def test_a_finished_record_is_returned(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("")
    record = a_record([a_signal("aten_ops", 7, "count-volume")])
    leave(order, record)

    assert run_in_fresh_process(order, lambda _: None, timeout=60) == record


def test_a_run_is_alone_and_its_sets_are_ordered(
    order: Order, stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    stand_in("import os; print({n: v for n, v in os.environ.items() if n.startswith('PYT')})")

    with pytest.raises(RunFailed):
        run_in_fresh_process(order, lambda _: None, timeout=60)

    log = order.log_path.read_text()
    assert "'PYTHONHASHSEED': '0'" in log
    assert "PYTEST_XDIST_WORKER" not in log
    assert "'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1'" in log


def test_the_command_names_case_run_session_and_records(order: Order, tmp_path: Path) -> None:
    command = command_line(order)
    told = dict(pairwise(command))

    assert command[0] == sys.executable
    assert (told["--case"], told["--one-run"], told["--session"]) == (CPU_EAGER.id, "0", "s1")
    assert told["--records"] == str(tmp_path)
    assert "--patch" not in command
    assert "--turn" not in command
    assert command_line(replace(order, turn=Path("/t.lock")))[-2:] == ["--turn", "/t.lock"]
    assert command_line(Order(CPU_EAGER, "s1", 0, tmp_path, Path("/p.py")))[-2:] == ["--patch", "/p.py"]


def test_ranks_are_started_by_a_launcher_that_is_told_their_number_and_the_record(order: Order) -> None:
    two = replace(order, case=Case(config="nano", lane="cpu", devices=2))
    python, *child = launch.child_command(two)

    assert python == sys.executable
    assert child[:2] == ["-m", "perf.child"]
    record = str(two.record_path.resolve())
    assert command_line(two) == [sys.executable, "-m", "perf.ranks", "2", record, *child[2:]]


def test_a_worker_in_a_session_of_its_own_is_ended_too(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in(CRASHING.replace("stdout=subprocess.PIPE", "stdout=subprocess.PIPE, start_new_session=True"))
    before = {process.pid for process in psutil.process_iter()}

    with pytest.raises(RunFailed):
        run_in_fresh_process(order, lambda _: None, timeout=60)

    left = [process for process in psutil.process_iter() if process.pid not in before]
    assert [process for process in left if "signal.SIG_IGN" in " ".join(process.cmdline())] == []


def test_a_side_of_an_ab_session_is_found_below_the_records_folder(order: Order, tmp_path: Path) -> None:
    side = replace(order, session="ab-1/base", folder=tmp_path / "ab-1" / "base")
    told = dict(pairwise(command_line(side)))

    assert (told["--session"], told["--records"]) == ("ab-1/base", str(tmp_path))


class At:
    """A ``tell`` that does something to the run at the first line that says ``text``."""

    def __init__(self, text: str, then: Callable[[], None]) -> None:
        self.text, self.then = text, then

    def __call__(self, line: str) -> None:
        if self.text in line:
            self.then()


def kill() -> None:
    [run] = psutil.Process().children()
    os.killpg(run.pid, signal.SIGKILL)


@pytest.fixture
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # Beside other work on few cores, torch's threads wait for one another.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.usefixtures("_one_thread")
def test_a_real_run_interrupted_leaves_a_failed_record(order: Order) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_in_fresh_process(order, At("warming up", interrupt), timeout=300)

    record = read_record(order.record_path)
    assert record.status == "failed"
    assert record.error
    assert record.finished
    assert record.signal("first_step")
    assert ended(order) is None  # a session that goes on measures it again
    assert children() == set()


@pytest.mark.usefixtures("_one_thread")
def test_a_real_run_killed_leaves_what_it_had_measured(order: Order) -> None:
    with pytest.raises(RunFailed, match="killed by SIGKILL"):
        run_in_fresh_process(order, At("counting work", kill), timeout=300)

    record = read_record(order.record_path)
    assert (record.status, record.error) == ("failed", "killed by SIGKILL")
    assert [signal.name for signal in record.signals] == [
        "first_step",
        "first_loss",
        "optimizer_groups",
        "step_time",
        "peak_rss",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_parent_ends_the_run(
    order: Order, stand_in: Callable[[str], None], number: signal.Signals
) -> None:
    stand_in("import sys, time; print('up', file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)")
    before = signal.signal(number, signal.SIG_DFL)  # whoever started these tests may have it ignored, as nohup does
    try:
        with pytest.raises(KeyboardInterrupt, match=number.name):
            run_in_fresh_process(order, lambda _: os.kill(os.getpid(), number), timeout=60)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)

    assert children() == set()


def test_a_closed_terminal_does_not_end_a_run_that_nohup_started(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("import sys; print('up', file=open(sys.argv[1], 'w'), flush=True)")
    leave(order, a_record([]))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        record = run_in_fresh_process(order, lambda _: os.kill(os.getpid(), signal.SIGHUP), timeout=60)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

    assert record.status == "finished"


def test_a_crash_after_the_record_was_finished_is_a_failure(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("import os; os.abort()")
    leave(order, a_record([a_signal("aten_ops", 7, "count-volume")]))

    with pytest.raises(RunFailed, match="killed by SIGABRT"):
        run_in_fresh_process(order, lambda _: None, timeout=60)

    assert read_record(order.record_path).status == "failed"


def test_the_cpu_lane_runs_on_one_thread(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'])")

    with pytest.raises(RunFailed):
        run_in_fresh_process(order, lambda _: None, timeout=60)

    assert order.log_path.read_text().startswith("1 1")


def test_ranks_on_a_gpu_share_the_cores_as_lightning_has_them(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "usable_cpus", lambda: 33)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cases = [Case(config="nano", devices=devices) for devices in (1, 2, 64)]
    told = [launch.environment(replace(order, case=case)).get("OMP_NUM_THREADS") for case in cases]
    assert told == [None, "16", "1"]

    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert launch.environment(replace(order, case=cases[1]))["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize(("tasks", "threads"), [("1", "16"), ("2", None)])
def test_ranks_that_srun_started_have_their_own_cores_and_those_of_its_one_task_share_them(
    order: Order, monkeypatch: pytest.MonkeyPatch, tasks: str, threads: str | None
) -> None:
    monkeypatch.setattr(launch, "usable_cpus", lambda: 32)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in {"STEP_ID": "0", "PROCID": "0", "LOCALID": "0", "NTASKS": tasks}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)

    told = launch.environment(replace(order, case=Case(config="nano", devices=2)))
    assert told.get("OMP_NUM_THREADS") == threads


def test_only_a_cold_run_has_an_inductor_cache_of_its_own(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    cold = replace(order, cold=True)
    assert "TORCHINDUCTOR_CACHE_DIR" not in launch.environment(order)
    assert launch.environment(cold)["TORCHINDUCTOR_CACHE_DIR"] == str(cold.cache.resolve())
    assert "--cold" in launch.command_line(cold)


def orders(order: Order, number: int) -> list[Order]:
    return [replace(order, run=run) for run in range(number)]


def leave_record(order: Order) -> None:
    leave(order, a_record([a_signal("map", 0.5, "quality")], run=order.run))


# Notes when it began and ended, so that a test sees what ran beside what.
NOTING = """
import pathlib, sys, time
began = time.time(); time.sleep(1)
pathlib.Path(sys.argv[1]).with_suffix(".times").write_text(f"{began} {time.time()}")
"""


def most_at_once(orders: list[Order]) -> int:
    files = [order.progress_path.with_suffix(".times") for order in orders]
    spans = [tuple(map(float, file.read_text().split())) for file in files]
    return max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)


@pytest.mark.parametrize("at_once", [1, 2])
def test_runs_together_are_so_many_at_once(order: Order, stand_in: Callable[[str], None], at_once: int) -> None:
    stand_in(NOTING)
    runs = orders(order, 3)
    for one in runs:
        leave_record(one)

    done = run_together(runs, at_once, lambda _: None, timeout=60)

    assert {one.run for one in done} == {0, 1, 2}
    assert all(isinstance(record, Record) for record in done.values())
    assert most_at_once(runs) == at_once
    assert children() == set()


def test_a_run_that_fails_together_with_others_is_told_and_ends_none(
    order: Order, stand_in: Callable[[str], None]
) -> None:
    stand_in("import sys; sys.exit('run-1' in sys.argv[1])")
    runs = orders(order, 3)
    for one in runs:
        leave_record(one)

    done = run_together(runs, 3, lambda _: None, timeout=60)

    assert [isinstance(done[one], RunFailed) for one in runs] == [False, True, False]
    assert "exit code 1" in str(done[runs[1]])


def test_together_each_has_its_own_time_limit(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("import sys, time; time.sleep(60 if 'run-0' in sys.argv[1] else 0)")
    runs = orders(order, 2)
    leave_record(runs[1])

    done = run_together(runs, 2, lambda _: None, timeout=1)

    assert "no end after 1 s" in str(done[runs[0]])
    assert isinstance(done[runs[1]], Record)
    assert children() == set()


def test_a_run_that_ends_before_its_record_leaves_how_until_it_is_measured_again(
    order: Order, stand_in: Callable[[str], None]
) -> None:
    stand_in("import sys; sys.exit(9)")
    with pytest.raises(RunFailed, match="exit code 9 before a record was begun"):
        run_in_fresh_process(order, lambda _: None, timeout=60)
    assert left_crash(order) == "exit code 9 before a record was begun"

    stand_in("import time; print('up', file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)")
    with pytest.raises(KeyboardInterrupt):
        run_in_fresh_process(order, At("up", interrupt), timeout=60)
    assert left_crash(order) == ""


# Run 0 hangs, and the others wait until it has ended.
WAITING = f"""
import pathlib, sys, time
if "run-0" in sys.argv[1]:
    time.sleep(60)
pathlib.Path(sys.argv[1]).write_text("[   0.1 s] nano run 1: {WAITS}\\n")
time.sleep(SECONDS)
"""


def test_together_none_pays_with_its_time_for_one_that_hangs(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in(WAITING.replace("SECONDS", "3"))
    runs = orders(order, 2)
    leave_record(runs[1])

    done = run_together(runs, 2, lambda _: None, timeout=2)

    assert "no end after 2 s" in str(done[runs[0]])
    assert isinstance(done[runs[1]], Record)


def test_where_all_wait_their_time_runs_out(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in(WAITING.replace("SECONDS", "60"))
    runs = orders(order, 3)[1:]

    done = run_together(runs, 2, lambda _: None, timeout=2)

    assert all("no end after 2 s" in str(done[one]) for one in runs)


def test_an_interrupt_ends_all_that_run_together(order: Order, stand_in: Callable[[str], None]) -> None:
    stand_in("import sys, time; print('up', file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)")

    with pytest.raises(KeyboardInterrupt):
        run_together(orders(order, 3), 2, At("up", interrupt), timeout=60)

    assert children() == set()


def test_the_data_set_is_told_to_the_run(order: Order, tmp_path: Path) -> None:
    assert command_line(replace(order, data=tmp_path))[-2:] == ["--data", str(tmp_path)]
    assert replace(order, data=tmp_path).command.endswith(f"--data {tmp_path}")


def test_the_cpu_lane_trains_one_seed_a_core() -> None:
    assert at_once("cpu") == usable_cpus()
    assert at_once("gpu") == launch.AT_ONCE_GPU
