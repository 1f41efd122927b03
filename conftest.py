"""pytest options of the suite, where its runs happen, and the report at the end of a session."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from perf.dataset import read_data_set
from perf.expected import Asked, cases_not_run, expected_cases, write_asked
from perf.judge import GATED
from perf.session import (
    MEASURE,
    NO_GPU,
    NOT_RUN,
    PLACE,
    STASH,
    VERDICT,
    Session,
    bad_input,
    chosen_cases,
    gpu_count,
    is_partly_there,
    lacking,
    new_name,
    nothing_measured,
    on_data,
    worker_threads,
)
from perf.suites import DEFAULT_SUITE, SUITES

ROOT = Path(__file__).parent
JUDGEMENT = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the suite's options."""
    group = parser.getgroup("rfdetr-perf", "RF-DETR performance suite (tests/suite)")
    group.addoption("--lane", choices=("auto", "cpu", "gpu"), default="auto", help="which cases to collect")
    group.addoption("--suite", choices=SUITES, default=DEFAULT_SUITE, help="which set of cases to collect")
    group.addoption("--case", action="append", default=[], metavar="ID", help="measure this case (repeatable)")
    group.addoption("--runs", type=int, metavar="N", help="runs (fresh processes) a case; default 1 on cpu, 3 on gpu")
    group.addoption("--records", type=Path, default=ROOT / "records", metavar="DIR", help="where records go")
    group.addoption("--baselines", type=Path, default=ROOT / "baselines", metavar="DIR", help="what to judge against")
    group.addoption("--gate", metavar="KINDS", help=f"kinds that decide the verdict: {','.join(sorted(GATED))}")
    group.addoption(
        "--untimed",
        action="store_true",
        help="count only, take no time: xdist workers may then share a GPU",
    )
    group.addoption(
        "--cold", action="store_true", help="an Inductor cache of its own a case: run 0 compiles cold, the others warm"
    )
    group.addoption("--patch", type=Path, metavar="FILE", help="Python file to import before rfdetr builds the model")
    group.addoption(
        "--data", type=Path, metavar="DIR", help="train on, or read, this data set: COCO 2017, Roboflow, YOLO"
    )
    group.addoption("--at-once", type=int, metavar="N", help="trainings at the same time; default 3, on cpu one a core")
    group.addoption("--run-timeout", type=float, default=3600.0, metavar="SECONDS", help="longest time for one run")
    group.addoption("--resume", metavar="SESSION", help="go on with this session: runs that finished are not repeated")
    group.addoption("--session", metavar="NAME", help="the session's name, and its folder's; default: the time")
    group.addoption("--turn", type=Path, metavar="FILE", help="internal: lock file of the runs beside this one")
    group.addoption("--one-run", type=int, metavar="INDEX", help="internal: measure this run in this process")


def pytest_configure(config: pytest.Config) -> None:
    """Settle what the session measures, and which GPU a worker uses."""
    config.stash[STASH] = _make_session(config)
    _place(config)


def _make_session(config: pytest.Config) -> Session:
    option = config.option
    fresh = _worker_input(config).get("perf_session") or option.session or new_name()
    name = fresh if option.resume is None else option.resume
    try:
        cases = on_data(chosen_cases(option.case, option.lane, option.suite), option.data)
        gate = _gate(option.gate)
        _check_values(option)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    session = Session(
        name=name,
        folder=option.records / name,
        baselines=option.baselines,
        cases=cases,
        runs=option.runs,
        gate=gate,
        patch=option.patch,
        timeout=option.run_timeout,
        untimed=option.untimed,
        cold=option.cold,
        data=option.data,
        at_once=option.at_once,
    )
    if option.resume is not None:
        try:
            session.check_resumed()
        except (ValueError, RuntimeError) as error:
            raise pytest.UsageError(str(error)) from error
    return session


def _check_values(option: Any) -> None:
    for name in ("runs", "at_once"):
        given = getattr(option, name)
        if given is not None and given < 1:
            msg = f"--{name.replace('_', '-')} {given}: at least 1"
            raise ValueError(msg)
    if option.data and option.one_run is None:  # a run reads it anyway
        read_data_set(option.data)
    if option.records.exists() and not option.records.is_dir():
        msg = f"--records {option.records}: not a folder"
        raise ValueError(msg)
    if option.session and option.one_run is None and Path(option.session).name != option.session:
        msg = f"--session {option.session}: a name, not a path"
        raise ValueError(msg)
    if option.patch and not option.patch.is_file():
        msg = f"--patch {option.patch}: no such file"
        raise ValueError(msg)


def _gate(text: str | None) -> tuple[Any, ...]:
    kinds = tuple(text.split(",")) if text else tuple(sorted(GATED))
    if unknown := set(kinds) - GATED:
        msg = f"--gate: unknown kind {', '.join(sorted(unknown))}; known: {', '.join(sorted(GATED))}"
        raise ValueError(msg)
    return kinds


def _worker_input(config: pytest.Config) -> dict[str, Any]:
    found: dict[str, Any] = getattr(config, "workerinput", {})
    return found


def _place(config: pytest.Config) -> None:
    """Give each xdist worker a GPU of its own: two runs on one would time each other. Counts do not mind."""
    worker = _worker_input(config).get("workerid")
    if worker is None:
        return
    for name, value in worker_threads(_worker_input(config)["workercount"]).items():
        os.environ.setdefault(name, value)
    if not gpu_count():
        return
    index = int(worker.removeprefix("gw"))
    if index >= gpu_count() and not config.option.untimed:
        msg = f"worker {worker} has no GPU of its own: use -n {gpu_count()} or fewer, or --untimed"
        raise pytest.UsageError(msg)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpu_count()))))
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[index % gpu_count()]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which session it belongs to."""
    node.workerinput["perf_session"] = node.config.stash[STASH].name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a case's runs and then its verdict on one worker; xdist 3.8's own loadgroup does not under pytest 9.2.

    Whatever ``--dist`` shares the tests out: a worker that stole a verdict would ask for it before there are runs.
    """
    if config.option.dist not in ("load", "loadgroup", "worksteal"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByCase(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            found = re.search(rf"::(?:{MEASURE}|{VERDICT})\[(.*?)(?:-run\d+)?\]$", nodeid)
            return found[1] if found else nodeid

    return ByCase(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine, or this worker's share of it, cannot run."""
    case: Any = item.callspec.params.get("case") if isinstance(item, pytest.Function) and _is_of_suite(item) else None
    # A rank may be shown its own GPU alone; it was started because there are enough.
    if case and item.config.option.one_run is None and (reason := lacking(case)):
        if is_partly_there(case):
            item.user_properties.append((NOT_RUN, reason))
        pytest.skip(reason)
    if item.get_closest_marker("gpu") and not gpu_count():
        pytest.skip(NO_GPU)


def _is_of_suite(item: pytest.Item) -> bool:
    return PLACE in dict(item.user_properties)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what became of each test: what was skipped and why, what was tried, what failed."""
    place: Any = dict(report.user_properties).get(PLACE)
    if report.skipped and isinstance(report.longrepr, tuple):
        _Reports.skips.append(report.longrepr[2].removeprefix("Skipped: "))
    # A verdict's own failure is in the judgement already, with an exit code of its own.
    if report.failed and not (place and place[0] == VERDICT and report.when == "call"):
        _Reports.failed.append(report.nodeid)
    if place:
        _Reports.of_suite = True
        if why := dict(report.user_properties).get(NOT_RUN):
            _Reports.not_run[place[1]] = str(why)
        if place[0] == MEASURE and (report.failed or (report.when == "call" and not report.skipped)):
            _Reports.tried.add(place[1])


class _Reports:
    """What this process was told of tests, its xdist workers' too; the hook above gets no config to stash it in."""

    of_suite = False
    skips: list[str] = []  # noqa: RUF012
    failed: list[str] = []  # noqa: RUF012
    tried: set[str] = set()  # noqa: RUF012
    not_run: dict[str, str] = {}  # noqa: RUF012


def _suite_ran(session: pytest.Session) -> bool:
    option = session.config.option
    worker = hasattr(session.config, "workerinput")
    return _Reports.of_suite and not worker and option.one_run is None and not option.collectonly


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Judge what was measured; the session's exit code is the worst verdict's.

    It is 1 where a test failed other than by its verdict, and pytest's own where the session was interrupted.
    """
    interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
    if not _suite_ran(session) or not (interrupted or exitstatus in (0, 1)):
        return
    judgement, records = _judgement(session.config, interrupted)
    session.config.stash[JUDGEMENT] = (judgement, records)
    if not interrupted:
        session.exitstatus = 1 if _Reports.failed else judgement.exit_code


def _judgement(config: pytest.Config, interrupted: bool) -> tuple[Any, list[Any]]:
    perf, tried = config.stash[STASH], sorted(_Reports.tried)
    # A run that died before its record leaves none, and is a failure all the same.
    if not tried:
        return nothing_measured(_Reports.skips), []
    try:
        full = not interrupted and _is_full(config)
        asked = Asked(cases=[] if interrupted else tried, full=full, not_run=_Reports.not_run)
        write_asked(perf.folder, asked, add=config.option.resume is not None)
        records = perf.records()
        expected = expected_cases(perf.folder, records, perf.baselines)
        return perf.judge(records, expected, cases_not_run(perf.folder, records)), records
    except ValueError as error:
        return bad_input(error), []


def _is_full(config: pytest.Config) -> bool:
    """Return whether the session was asked for all of its lane: then an approved case that is gone is missed."""
    option = config.option
    return not (option.case or option.keyword or option.markexpr or any("::" in argument for argument in config.args))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the report of the session, and where its records are."""
    if JUDGEMENT not in config.stash:
        return
    from perf.report.scaling import render_scaling
    from perf.report.terminal import render

    judgement, records = config.stash[JUDGEMENT]
    terminalreporter.section("rfdetr-perf")
    terminalreporter.write_line(render(judgement, records, terminalreporter._tw.fullwidth, config.stash[STASH].folder))
    for nodeid in _Reports.failed:
        terminalreporter.write_line(f"failed, whatever the verdicts say: {nodeid}")
    if records and (scaled := render_scaling(records)):
        terminalreporter.write_line(scaled)
    if records:
        terminalreporter.write_line(f"records: {config.stash[STASH].folder}")
