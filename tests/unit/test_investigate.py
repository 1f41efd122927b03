from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import a_record

from perf import environment, investigate
from perf.case import Case
from perf.cli import main
from perf.investigate import Task, asked_of, cases_of, measure, orders_of
from perf.investigation import MANIFEST, read_manifest
from perf.launch import RunFailed
from perf.record import Record, write_model, write_record
from perf.run_order import MINOR_VARIABLE, Order

CPU = ("investigate", "--lane", "cpu")


def a_task(folder: Path, *, runs: int = 2, ask: str = "fit,step", patch: Path | None = None, **more: Any) -> Task:
    cases = cases_of("nano", "cpu", None, ask.split(","), 2)
    return Task(asked_of(cases, runs, patch, None, "it"), cases, folder, lambda _: None, patch, **more)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """The orders of the runs that were started: each leaves a finished record, but runs of the step fail."""
    found: list[Order] = []

    def run(order: Order, tell: Callable[[str], None], timeout: float) -> Record:
        found.append(order)
        if order.case.measure == "step":
            msg = "it broke"
            raise RunFailed(msg)
        record = a_record([], order.case, order.run, session=order.session, command=order.command)
        write_record(order.record_path, record)
        return record

    monkeypatch.setattr(investigate, "run_in_fresh_process", run)
    monkeypatch.setattr(
        environment,
        "software",
        lambda: {name: getattr(a_record().environment, name) for name in ("torch", "rfdetr")},
    )
    return found


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    path = tmp_path / "fix.py"
    path.write_text("x = 1\n", encoding="utf-8")
    return path


def test_every_question_has_its_case() -> None:
    def ids(lane: Any, *questions: str) -> list[str]:
        return [case.id for case in cases_of("nano", lane, None, questions, 2)]

    asked = ("map", "input", "compile", "step", "fit")
    assert ids("gpu", *asked) == ["nano-b4-fit", "nano-b4", "nano-b4-compile", "nano-b4-input", "nano-b16-convergence"]
    assert ids("cpu", *asked) == [
        "nano-cpu-b2-fit",
        "nano-cpu-b2",
        "nano-cpu-b2-compile-eager",
        "nano-cpu-b2-input",
        "nano-cpu-b4-w0-convergence",
    ]
    assert [case.workers for case in cases_of("nano", "gpu", 8, asked, 16)] == [16, 2, 2, 16, 2]


def test_an_unknown_question_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown question 'speed'; known: fit, step, compile, input, map"):
        cases_of("nano", "cpu", None, ["speed"], 2)


def test_rounds_of_all_cases_follow_each_other(tmp_path: Path) -> None:
    assert [what for what, _ in orders_of(a_task(tmp_path))] == [
        "nano-cpu-b2-fit run 0",
        "nano-cpu-b2 run 0",
        "nano-cpu-b2-fit run 1",
        "nano-cpu-b2 run 1",
    ]


def test_a_candidate_alternates_with_what_was_before_it(tmp_path: Path, patch: Path) -> None:
    orders = list(orders_of(a_task(tmp_path / "out", ask="fit,map", patch=patch)))

    assert [(o.folder.name, o.run, o.patch) for _, o in orders] == [
        ("base", 0, None),
        ("head", 0, patch),
        ("head", 1, patch),
        ("base", 1, None),
    ]
    assert {o.session for _, o in orders} == {"out/base", "out/head"}


def test_what_fails_is_counted_and_the_others_go_on(tmp_path: Path, started: list[Order]) -> None:
    said: list[str] = []
    failed = measure(a_task(tmp_path)._replace(tell=said.append), resume=False)

    assert failed == 2
    assert [order.case.measure for order in started] == ["fit", "step", "fit", "step"]
    assert "2 of 4, nano-cpu-b2 run 0 failed: it broke" in said
    assert read_manifest(tmp_path).runs == 2


def test_resuming_measures_only_what_did_not_finish(tmp_path: Path, started: list[Order]) -> None:
    measure(a_task(tmp_path), resume=False)
    started.clear()
    measure(a_task(tmp_path), resume=True)

    assert {order.case.measure for order in started} == {"step"}


def test_a_budget_has_every_case_once_and_again_while_it_fits(
    tmp_path: Path, started: list[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock before and after the data are written, 5 s, and each run: a fit takes 50 s, the input 30 s.
    clock = iter([0, 5, 5, 55, 55, 85, 85, 135])
    monkeypatch.setattr(investigate, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    said: list[str] = []
    task = a_task(tmp_path, ask="fit,input", runs=3)
    asked = task.asked.model_copy(update={"budget": 155.0})  # the command itself takes 10
    assert measure(task._replace(asked=asked, tell=said.append), resume=False) == 0

    assert [(order.case.measure, order.run) for order in started] == [("fit", 0), ("input", 0), ("fit", 1)]
    left_out = "input run 1: left out, it would take longer than what is left of --budget"
    assert any(line.endswith(left_out) for line in said)

    clock = iter(range(100))
    more = task.asked.model_copy(update={"budget": 900.0})
    assert measure(task._replace(asked=more), resume=True) == 0
    assert [(order.case.measure, order.run) for order in started[3:]] == [("input", 1), ("fit", 2), ("input", 2)]
    assert read_manifest(tmp_path).budget == 900


def test_what_was_measured_before_an_interruption_counts_in_the_budget(
    tmp_path: Path, started: list[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = a_task(tmp_path, ask="fit,input", runs=3)
    asked = task.asked.model_copy(update={"budget": 155.0})
    write_model(tmp_path / MANIFEST, asked)
    for case, seconds in zip(task.cases, (50, 30), strict=True):
        order = task.order("base", case, 0)
        began = datetime(2026, 7, 1, tzinfo=UTC)
        times: dict[str, Any] = {"started": began, "finished": began + timedelta(seconds=seconds)}
        write_record(order.record_path, a_record([], case, session=order.session, command=order.command, **times))
    clock = iter([0, 5, 5, 5, 5, 5, 5, 55])
    monkeypatch.setattr(investigate, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    assert measure(task._replace(asked=asked), resume=True) == 0
    assert [(order.case.measure, order.run) for order in started] == [("fit", 1)]


@pytest.mark.parametrize(
    ("change", "resume", "why"),
    [
        ({}, False, "there is an investigation already; go on with it by --resume"),
        ({"runs": 3}, True, r"asked for runs 2, now 3; give another --out"),
        ({"ask": "fit"}, True, "asked for cases "),
    ],
)
@pytest.mark.usefixtures("started")
def test_another_investigation_is_not_mixed_in(tmp_path: Path, change: dict[str, Any], resume: bool, why: str) -> None:
    measure(a_task(tmp_path), resume=False)

    with pytest.raises(ValueError, match=why):
        measure(a_task(tmp_path, **change), resume=resume)


@pytest.mark.usefixtures("started")
def test_another_rfdetr_is_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(a_task(tmp_path), resume=False)
    monkeypatch.setattr(environment, "software", lambda: {"rfdetr": "9.9"})

    with pytest.raises(ValueError, match=r"it was measured with rfdetr 1.11.2, now 9.9; give another --out"):
        measure(a_task(tmp_path), resume=True)


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no investigation"):
        measure(a_task(tmp_path), resume=True)


@pytest.mark.parametrize(("minor", "by"), [(None, "rfdetr-perf investigate"), ("2.14", "nox -s investigate-2.14 --")])
def test_the_command_measures_reports_and_says_what_is_missing(
    minor: str | None,
    by: str,
    tmp_path: Path,
    started: list[Order],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if minor is None:
        monkeypatch.delenv(MINOR_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(MINOR_VARIABLE, minor)
    out = tmp_path / "out"

    assert main([*CPU, "--out", str(out), "--ask", "fit,step", "--runs", "1"]) == 1
    said = capsys.readouterr()
    assert said.out == f"{out / 'report.md'}: written\n{out / 'report.html'}: written\n"
    assert "1 runs did not finish" in said.err
    assert len(started) == 2
    assert read_manifest(out).command == f"{by} --config nano --workers 2 --lane cpu --runs 1 --ask fit,step"
    assert main([*CPU, "--out", str(out), "--ask", "fit", "--runs", "1", "--resume"]) == 2


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (("--config", "nanoo"), "unknown config 'nanoo'"),
        (("--ask", "speed"), "unknown question 'speed'"),
        (("--patch", "nowhere.py"), "--patch nowhere.py: no such file"),
        (("--workers", "-1"), "--workers -1: 0 or more"),
        (("--data", "nowhere"), "nowhere: no such folder"),
        (("--resume",), "--resume: give the folder"),
        (("--out", "/dev/null/x"), "--out /dev/null/x: no folder can be made there (Not a directory); give another"),
    ],
)
def test_bad_input_is_one_line(
    told: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([*CPU, *told]) == 2
    assert why in capsys.readouterr().err
    assert not list(tmp_path.rglob(MANIFEST))


def test_without_a_gpu_the_gpu_lane_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from perf.session import gpu_count

    if gpu_count():
        pytest.skip("there is a GPU here")
    assert main(["investigate", "--lane", "gpu", "--out", str(tmp_path)]) == 2
    assert "nano-b4-fit: needs an NVIDIA GPU" in capsys.readouterr().err


def test_traceml_that_is_not_installed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perf.traceml_run.PACKAGE", "no_such_package")

    assert main(["traceml", "--lane", "cpu", "--out", str(tmp_path / "out")]) == 2
    assert "TraceML is not installed here: nox -s traceml-2.14" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_patch_is_remembered_by_its_text(patch: Path) -> None:
    case = Case(config="nano", lane="cpu", batch_size=2)
    asked = asked_of([case], 1, patch, None, "")

    assert (asked.head, len(asked.head_sha256), asked.sides) == ("fix.py", 64, ("base", "head"))
