"""Sessions: what the suite was asked to measure, and the judgement at its end."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pytest

from perf import environment, gpus
from perf.case import SHAPES, Case, Lane, find_case
from perf.dataset import check_unchanged, folder_name
from perf.judge import Options, judge
from perf.launch import RunFailed, at_once, has_finished, run_together
from perf.record import Kind, Record, read_any
from perf.run_order import Order
from perf.suites import DEFAULT_SUITE, suite
from perf.verdicts import EXIT_BAD_INPUT, EXIT_NOTHING_JUDGED, CaseVerdict, Judgement

# A count needs one run; wall time needs several, and three is the least that gives an interval worth reading.
DEFAULT_RUNS: dict[Lane, int] = {"cpu": 1, "gpu": 3}


NO_GPU = "needs an NVIDIA GPU, and NVML shows none on this machine"


@functools.cache
def gpu_count() -> int:
    """Return how many NVIDIA GPUs this process may use, as NVML says; torch is not asked."""
    return len(gpus.gpu_states())


def lacking(case: Case) -> str:
    """Return what ``case`` needs and this machine, or the part of it that an xdist worker has, lacks; empty if nothing.

    Several nodes are not the suite's to start.
    """
    if case.lane == "gpu" and not gpu_count():
        return NO_GPU
    shown = len(gpus.gpu_states()) if case.lane == "gpu" else case.devices
    if shown < case.devices:
        return f"needs {case.devices} GPUs, NVML shows {shown}"
    return "" if case.nodes == 1 else f"needs {case.nodes} nodes: start it with torchrun or srun (docs/clusters.md)"


def is_partly_there(case: Case) -> bool:
    """Return whether ``case`` is of a lane that this machine has: then that it cannot be run must not go unseen."""
    return case.lane == "cpu" or gpu_count() > 0


def worker_threads(workers: int) -> dict[str, str]:
    """Return the environment by which each of ``workers`` xdist workers leaves the others their share of the cores.

    Else each takes all of them, and 14 that wait for each other's threads are slower than one after another. Inductor
    gets two processes a core in all, since a worker compiles kernels now and then only.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    names = {"OMP_NUM_THREADS": cores, "MKL_NUM_THREADS": cores, "TORCHINDUCTOR_COMPILE_THREADS": 2 * cores}
    return {name: str(max(1, count // workers)) for name, count in names.items()}


def new_name() -> str:
    """Return a session's name: the time in UTC and the process, so that two sessions never share a folder."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"


def lane_here(asked: str) -> str:
    """Return the lane that is asked for; for ``auto`` the gpu lane where there is a GPU, else the cpu lane."""
    return ("gpu" if gpu_count() else "cpu") if asked == "auto" else asked


def chosen_cases(ids: Sequence[str], lane: str, name: str = DEFAULT_SUITE) -> tuple[Case, ...]:
    """Return the cases to collect: those asked for by id, else those of the suite called ``name`` on the lane.

    ``lane="auto"`` is the gpu lane where there is a GPU; elsewhere it is the cpu lane, with the gpu lane
    collected too so that its skips, and the reason, are seen.

    Raises:
        ValueError: an unknown id or suite; names the closest ids, or the known suites.
    """
    if ids:
        return tuple(find_case(case_id) for case_id in dict.fromkeys(ids))
    if lane == "auto":
        return suite(name, "gpu") if gpu_count() else suite(name, "cpu") + suite(name, "gpu")
    return suite(name, "gpu" if lane == "gpu" else "cpu")


def on_data(cases: Sequence[Case], data: Path | None) -> tuple[Case, ...]:
    """Return ``cases`` with those that read one on the data set at ``data``; None leaves them on the generated one.

    Raises:
        ValueError: a case names a data set by its folder, and that is not the one that is given; or nothing reads one.
    """
    name = folder_name(data) if data else SHAPES
    wrong = [case for case in cases if case.data not in (SHAPES, name)]
    if wrong:
        msg = f"case {wrong[0].id!r} reads {wrong[0].data!r}: give the folder of that name with --data"
        raise ValueError(msg)
    if data and not any(case.takes_data for case in cases):
        msg = f"--data {data}: none of these cases trains: add --suite convergence, fit or input"
        raise ValueError(msg)
    return tuple(case.model_copy(update={"data": name}) if case.takes_data else case for case in cases)


@dataclass(frozen=True)
class Session:
    """One invocation of the suite. ``folder`` is where its records go; ``runs`` of None means the lane's default."""

    name: str
    folder: Path
    baselines: Path
    cases: tuple[Case, ...]
    runs: int | None
    gate: tuple[Kind, ...]
    patch: Path | None
    timeout: float
    untimed: bool = False
    cold: bool = False
    data: Path | None = None
    at_once: int | None = None

    def runs_of(self, case: Case) -> int:
        """Return how many runs ``case`` gets; of a training one seed tells of a collapse."""
        return self.runs or (1 if case.trains else DEFAULT_RUNS[case.lane])

    def train(self, case: Case, tell: Callable[[str], None]) -> dict[int, RunFailed]:
        """Train all seeds of ``case`` that are not trained yet, several at once; return those that failed, by run."""
        orders = [self.order(case, run) for run in range(self.runs_of(case))]
        fresh = [order for order in orders if not has_finished(order)]
        for order in orders:
            if order not in fresh:
                tell(f"{case.id} run {order.run}: measured already")
        done = run_together(fresh, self.at_once or at_once(case.lane), tell, self.timeout)
        return {order.run: found for order, found in done.items() if isinstance(found, RunFailed)}

    def order(self, case: Case, run: int) -> Order:
        """Return the order of one run."""
        return Order(
            case=case,
            session=self.name,
            run=run,
            folder=self.folder,
            patch=self.patch,
            untimed=self.untimed,
            cold=self.cold,
            data=self.data if case.takes_data else None,
        )

    def check_resumed(self) -> None:
        """Check that what is installed now is what the session's records were measured with.

        Raises:
            ValueError: there is no such session, or another rfdetr, torch or library made it, or from other data; says
                which.
        """
        if self.name in ("", ".", "..") or Path(self.name).name != self.name or not self.folder.is_dir():
            msg = f"--resume {self.name}: no such session in {self.folder.parent}"
            raise ValueError(msg)
        finished = (record.environment for record in self.records() if record.status == "finished")
        if changed := environment.changed_since(finished):
            msg = f"--resume {self.name}: it was measured with {changed}; start a new session"
            raise ValueError(msg)
        if self.data:
            check_unchanged(self.data, self.records())

    def records(self, case: Case | None = None) -> list[Record]:
        """Return the session's records so far, of one case or of all; empty where there is none.

        Raises:
            ValueError: a record cannot be read; names the file.
        """
        folder = self.folder / case.id if case else self.folder
        return read_any(folder)

    def judge(
        self,
        records: Sequence[Record],
        expected: Sequence[str] = (),
        not_run: Mapping[str, str] = MappingProxyType({}),
    ) -> Judgement:
        """Judge ``records`` against the stored baselines; ``expected`` are the ids that must be among them.

        ``not_run`` are those that this machine cannot take, and why.

        Raises:
            ValueError: a baseline cannot be used; names the file.
        """
        options = Options(gate=self.gate, records_path=self.folder)
        return judge(records, self.baselines, expected=expected, not_run=not_run, options=options)


# The user property by which a report says which test of which case it is of, and the suite's two tests.
PLACE, MEASURE, VERDICT = "rfdetr-perf", "test_measure", "test_verdict"
# And by which it says why this machine cannot run the case.
NOT_RUN = "rfdetr-perf-not-run"
# Where pytest's config keeps the session.
STASH = pytest.StashKey[Session]()


def reasons(case: CaseVerdict) -> str:
    """Return the verdict of ``case`` and why, in a line for each message; signals with the same one share it."""
    shared: dict[str, list[str]] = {}
    for row in case.signals:
        if row.verdict == case.verdict:
            shared.setdefault(row.message, []).append(row.signal)
    return "\n".join([f"{case.case_id}: {case.verdict}", *(f"{', '.join(v)}: {k}" for k, v in shared.items())])


def nothing_measured(reasons: Sequence[str]) -> Judgement:
    """Return the judgement of a session without a single run: never a success."""
    why = "; ".join(dict.fromkeys(reasons)) or "no test of the suite ran"
    return Judgement(cases=[], exit_code=EXIT_NOTHING_JUDGED, summary=f"nothing was measured: {why}")


def bad_input(error: ValueError) -> Judgement:
    """Return the judgement of a session whose records or baselines cannot be used; ``error`` names the files."""
    return Judgement(cases=[], exit_code=EXIT_BAD_INPUT, summary=f"nothing was judged: {error}")
