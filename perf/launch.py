"""Launching: one run in a fresh process, followed while it goes and cleaned up whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perf import processes
from perf.case import Case, Lane
from perf.cluster import has_own_cores
from perf.environment import usable_cpus
from perf.errors import error_line
from perf.evidence import left_behind, trace_environment
from perf.gpus import gpu_memory_bytes
from perf.progress import Follower
from perf.record import Record, read_record, write_record
from perf.run_order import Order
from perf.turns import WAITS, can_lock

ROOT = Path(__file__).resolve().parent.parent
ONE_RUN = ROOT / "tests" / "suite" / "one_run.py"
_POLL_SECONDS = 0.3
_GRACE_SECONDS = 10.0
_LOG_TAIL_LINES = 30


# Trainings at the same time: one a core, and as many as share a GPU without waiting for each other much longer.
AT_ONCE_GPU = 3


def at_once(lane: Lane) -> int:
    """Return how many trainings of ``lane`` run at the same time by default."""
    return usable_cpus() if lane == "cpu" else AT_ONCE_GPU


# Runs that wait keep their memory: Nano at batch 4 has 2 to 2.6 GB reserved (H200), and CUDA's context half a GB more.
_GPU_BYTES_A_RUN = 8 * 10**9


def prepared_at_once(lane: Lane) -> int:
    """Return how many runs prepare beside each other by default, where they take turns to measure (perf.turns).

    On a GPU as many as half of the cores, and as find room in its memory.
    """
    memory = gpu_memory_bytes() if lane == "gpu" else None
    return max(1, min(usable_cpus() // 2, memory // _GPU_BYTES_A_RUN)) if memory else 1


class RunFailed(Exception):  # noqa: N818  (says what happened)
    """A run that left no finished record; the message says why and where its log is. ``record`` is what it left."""

    def __init__(self, message: str, record: Record | None = None) -> None:
        super().__init__(message)
        self.record = record


def run_in_fresh_process(order: Order, tell: Callable[[str], None], timeout: float) -> Record:
    """Measure ``order`` in a process of its own and return its record; ``tell`` gets each line of progress.

    Whatever goes wrong is in the record as well, where there is one. SIGTERM and SIGHUP end the run as Ctrl-C does,
    unless they are ignored.

    Raises:
        RunFailed: the run raised, crashed, or took more than ``timeout`` seconds.
    """
    with _ended_like_ctrl_c(), _Process(order, tell, timeout) as process:
        process.wait()
    return process.record()


def run_together(
    orders: Sequence[Order],
    at_once: int,
    tell: Callable[[str], None],
    timeout: float,
    name: Callable[[Order], str] = lambda _: "",
) -> dict[Order, Record | RunFailed]:
    """Measure all ``orders``, up to ``at_once`` of them at the same time, and return what became of each.

    For what does not mind company, such as accuracy, or takes turns. ``name`` is told before each line of an order.
    An interrupt ends all that are going. ``timeout`` leaves out what a run waits for others of them.
    """
    waiting, going, done = list(orders), list[_Process](), dict[Order, Record | RunFailed]()
    with _ended_like_ctrl_c(), contextlib.ExitStack() as stack, _interrupting(going):
        while waiting or going:
            while waiting and len(going) < at_once:
                told = _named(name(waiting[0]), tell)
                going.append(stack.enter_context(_Process(waiting.pop(0), told, timeout)))
            began = time.monotonic()
            time.sleep(_POLL_SECONDS)
            _excuse(going, time.monotonic() - began)
            for process in [one for one in going if one.ended()]:
                going.remove(process)
                process.close()
                done[process.order] = _outcome(process)
    return done


def run_beside(
    orders: Sequence[Order], lock: Path, tell: Callable[[str], None], timeout: float, name: Callable[[Order], str]
) -> None:
    """Measure runs on a GPU beside each other, taking turns by the file ``lock``; none where it cannot be locked.

    Those that were not measured are left to be run one after another.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    if orders and can_lock(lock):
        run_together([replace(one, turn=lock) for one in orders], prepared_at_once("gpu"), tell, timeout, name)


def _excuse(going: Sequence[_Process], seconds: float) -> None:
    """Let those that waited for one that works not pay for it: one that hangs would take the others with it."""
    waiting = [process for process in going if process.waits]
    if len(waiting) < len(going):
        for process in waiting:
            process.allow(seconds)


def _named(name: str, tell: Callable[[str], None]) -> Callable[[str], None]:
    return lambda line: tell(f"{name}{line}")


@contextlib.contextmanager
def _interrupting(going: list[_Process]) -> Iterator[None]:
    """Interrupt all that are going where this one is: one after another each might take its time to end."""
    try:
        yield
    except BaseException:
        for process in going:
            process.interrupt()
        raise


def _outcome(process: _Process) -> Record | RunFailed:
    try:
        return process.record()
    except RunFailed as failure:
        return failure


class _Process:
    """The process of one run, from its start until nothing of it is left."""

    def __init__(self, order: Order, tell: Callable[[str], None], timeout: float) -> None:
        self.order = order
        self._tell, self._timeout, self._problem = tell, timeout, ""
        self._closed, self._mark = False, uuid.uuid4().hex
        self.waits = False

    def __enter__(self) -> _Process:
        order = self.order
        order.stem.parent.mkdir(parents=True, exist_ok=True)
        ranks = order.stem.parent.glob(f"{order.stem.name}-rank-*.*")
        for path in (order.progress_path, order.record_path, order.crash_path, *ranks):
            if not path.is_dir():
                path.unlink(missing_ok=True)  # of a run that was interrupted: not what became of this one
        self._follower = Follower(order.progress_path)
        self._deadline = time.monotonic() + self._timeout
        with order.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command_line(order),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment(order) | {processes.MARK: self._mark},
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Tell the run's progress until it ends."""
        while not self.ended():
            time.sleep(_POLL_SECONDS)

    def ended(self) -> bool:
        """Tell what is new, and return whether the run has ended, by itself or because its time is up."""
        running = self._process.poll() is None
        for line in self._follower.new_lines():
            self.waits = line.endswith(WAITS)
            self._tell(line)
        if running and time.monotonic() > self._deadline:
            self._problem = f"no end after {self._timeout:.0f} s (--run-timeout); stopped"
        return not running or bool(self._problem)

    def allow(self, seconds: float) -> None:
        """Let it run so much longer."""
        self._deadline += seconds

    def interrupt(self) -> None:
        """Have the run end, without waiting for it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def close(self) -> None:
        """Leave nothing of the run behind."""
        if not self._closed:
            self._closed = True
            _end(self._process, self._mark)

    def record(self) -> Record:
        """Return the record of a run that ended well, else raise RunFailed."""
        return _finished_record(self.order, self._problem, _exit_in_words(self._process.returncode))


def has_finished(order: Order) -> bool:
    """Return whether this run finished already, in a session that is resumed: by the same command."""
    record = left_record(order)
    return record is not None and record.status == "finished" and record.command == order.command


def left_record(order: Order) -> Record | None:
    """Return the record that this run left, in a session that is resumed; None for none, or half a one."""
    try:
        return read_record(order.record_path)
    except (OSError, ValueError):
        return None


def left_crash(order: Order) -> str:
    """Return how this run ended where that was before it began a record; empty otherwise, and if it was interrupted."""
    text = order.crash_path.read_text(encoding="utf-8", errors="replace") if order.crash_path.exists() else ""
    return text.partition(";")[0]


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt: the child has a session of its own and would live on.

    One that is ignored stays so: ``nohup`` has a closed terminal end nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    heeded = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_in_words(returncode: int) -> str:
    if returncode == 0:
        return ""
    return f"killed by {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"


def command_line(order: Order) -> list[str]:
    """Return the command of a run: of its one process, or of what starts its ranks."""
    python, *child = child_command(order)
    if not order.case.distributed:
        return [python, *child]
    record = str(order.record_path.resolve())
    return [python, "-m", "perf.ranks", str(order.case.ranks), record, *child[2:]]


# What pytest needs for one test, and no more: plugins take seconds of each run, and unraisableexception alone collects
# the garbage of all of torch five times on its way out.
_PLUGINS = ("pytest_benchmark.plugin", "no:cacheprovider", "no:unraisableexception")
_PYTEST = ("-q", "--tb=native", "-o", "filterwarnings=default", *(word for one in _PLUGINS for word in ("-p", one)))


def child_command(order: Order) -> list[str]:
    """Return the command of the process that measures, or of each that does: pytest on the single test for it."""
    benchmark = order.stem.resolve().with_suffix(".benchmark.json")  # the child starts in the project's root
    options = [*_PYTEST, f"--benchmark-json={benchmark}"]
    files = [("patch", order.patch), ("data", order.data), ("turn", order.turn)]
    paths = [word for name, path in files if path for word in (f"--{name}", str(path.resolve()))]
    flags = [f"--{name}" for name in ("untimed", "cold") if getattr(order, name)]
    told = ["--case", order.case.id, "--one-run", str(order.run), "--session", order.session]
    # A session's name may be several folders deep: that of a side of an A/B session is.
    records = ["--records", str(order.folder.resolve().parents[len(Path(order.session).parts) - 1])]
    python = str(order.python or sys.executable)
    return [python, "-m", "perf.child", str(ONE_RUN), *options, *told, *records, *paths, *flags]


# Which convolution ATen takes depends on the number of threads, and with it the cpu lane's counts. One is what every
# machine has, and several spin against each other beside a busy core.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _threads(case: Case) -> dict[str, str]:
    """Return what says how many threads a process of ``case`` takes, where that is not left to torch.

    Ranks share the cores, as those do that Lightning starts itself: ``RFDETR.train(devices=2)``. Those of srun do not.
    """
    if case.lane == "cpu":
        return _ONE_THREAD
    if case.devices == 1 or "OMP_NUM_THREADS" in os.environ or has_own_cores():
        return {}
    return {"OMP_NUM_THREADS": str(max(1, usable_cpus() // case.devices))}


def environment(order: Order) -> dict[str, str]:
    """Return the environment variables of the run's process."""
    # pytest-benchmark refuses to measure where it believes xdist spreads tests; the child is alone.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Set iteration order reaches Python call counts.
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(order.cache.resolve())} if order.cold else {}
    trace = trace_environment(order.stem, order.case.compile)
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **_threads(order.case),
        **cache,
        **trace,
    }


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Leave nothing of the run behind; SIGINT first, so that it can write its record."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
    finally:
        # The whole group: a run that crashed leaves its data loader's or its compiler's workers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        processes.kill_marked(mark)  # ranks have sessions of their own


def _finished_record(order: Order, stopped: str, ended: str) -> Record:
    """Return the record of a run that ended well; else put into the record that there is why it did not, and raise.

    ``stopped`` says why this process stopped it, ``ended`` how it ended: what a run says of itself is better.
    """
    problem = stopped or ended
    if not order.record_path.exists():
        msg = f"{problem or 'ended'} before a record was begun; {_log_tail(order)}"
        order.crash_path.write_text(msg, encoding="utf-8")
        raise RunFailed(msg)
    record = read_record(order.record_path)
    if record.status == "finished" and not problem:
        return record
    record.error = "\n".join(filter(None, [record.error, stopped if record.status == "failed" else problem]))
    record.status = "failed"
    record.evidence = left_behind(order.stem)
    write_record(order.record_path, record)
    msg = f"{error_line(record.error)}\nrecord: {order.record_path}\nlog: {order.log_path}"
    raise RunFailed(msg, record)


def _log_tail(order: Order) -> str:
    lines = order.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"log: {order.log_path}", *lines[-_LOG_TAIL_LINES:]])
