from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import CPU_COMPILED, GPU_EAGER, a_baseline, a_record, a_signal, an_environment, proof

from perf.baselines import read_baseline, write_baseline
from perf.cli import main
from perf.expected import Asked, write_asked
from perf.record import Record, Signal, write_record
from perf.suites import catalogue

OPS = a_signal("aten_ops", 1000, "count-volume")
WORSE = a_signal("aten_ops", 2000, "count-volume")


class Bench:
    """A folder of records and one of baselines."""

    def __init__(self, root: Path) -> None:
        self.records, self.baselines = root / "records", root / "baselines"

    def record(self, *signals: Signal, **changes: Any) -> Record:
        record = a_record(signals, **changes)
        write_record(self.records / f"{record.case_id}-{record.run}.record.json", record)
        return record

    def approve(self, *records: Record) -> Path:
        return write_baseline(self.baselines, a_baseline(records))

    def run(self, command: str, *options: str) -> int:
        return main([command, str(self.records), "--baselines", str(self.baselines), *options])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_judge_exits_with_the_verdict(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("judge") == 2
    bench.record(OPS)
    assert bench.run("judge") == 3
    bench.approve(a_record([OPS]))
    assert bench.run("judge") == 0
    bench.record(WORSE)
    assert bench.run("judge") == 1
    bench.record(a_signal("aten_ops", 5, "count-volume"))
    capsys.readouterr()
    assert bench.run("judge", "--width", "150") == 4
    shown = capsys.readouterr()
    assert shown.out.startswith("1 of 1 case improved")
    assert f"rfdetr-perf refresh {bench.records} --case nano-cpu-b2" in shown.out
    assert shown.err == ""


def test_report_is_for_reading(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(WORSE)
    bench.approve(a_record([OPS]))
    assert bench.run("report") == 0
    assert capsys.readouterr().out.startswith("1 of 1 case regressed")


def test_json_holds_the_verdicts(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(WORSE)
    bench.approve(a_record([OPS]))
    assert bench.run("judge", "--json") == 1
    judgement = json.loads(capsys.readouterr().out)
    assert judgement["exit_code"] == 1
    assert judgement["cases"][0]["signals"][0]["verdict"] == "regressed"


def test_gate_leaves_the_other_kinds_shown(bench: Bench) -> None:
    bench.record(WORSE, a_signal("graph_breaks", 0))
    bench.approve(a_record([OPS, a_signal("graph_breaks", 0)]))
    assert bench.run("judge", "--gate", "count-strict,wall") == 0
    assert bench.run("judge", "--gate", "count-volume") == 1


def test_a_case_that_the_session_was_asked_for_and_that_left_no_record_fails(bench: Bench) -> None:
    record = bench.record(OPS)
    bench.approve(record)
    bench.approve(a_record([OPS, *proof()], CPU_COMPILED))
    assert bench.run("judge") == 0
    write_asked(bench.records, Asked(cases=[record.case_id, CPU_COMPILED.id], full=True))
    assert bench.run("judge") == 1
    assert bench.run("judge", "--case", record.case_id) == 0


def test_a_broken_session_file_is_bad_input(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(OPS)
    (bench.records / "session.json").write_text("{}")
    assert bench.run("judge") == 2
    assert f"{bench.records / 'session.json'}: cases: " in capsys.readouterr().err


def test_a_case_without_a_record_says_which_there_are(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(OPS)
    for command in (["judge"], ["report"], ["refresh", "--reason", "x"]):
        assert bench.run(*command, "--case", "nano-b4") == 2
        assert capsys.readouterr().err == (
            f"rfdetr-perf: {bench.records}: no record of case nano-b4, only of nano-cpu-b2; "
            "measure it first: pytest tests/suite --case nano-b4\n"
        )


@pytest.mark.parametrize(
    ("command", "code"),
    [(["judge"], 1), (["judge", "--json"], 1), (["report"], 0), (["refresh", "--reason", "x"], 0)],
)
def test_a_reader_that_stops_changes_nothing(bench: Bench, command: list[str], code: int) -> None:
    bench.record(WORSE)
    path = bench.approve(a_record([OPS]))
    reader, writer = os.pipe()
    os.close(reader)
    name, *options = command
    arguments = [sys.executable, "-m", "perf.cli", name, str(bench.records), "--baselines", str(bench.baselines)]
    done = subprocess.run([*arguments, *options], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")
    assert (read_baseline(path).signals[0].value == 2000) == (name == "refresh")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--case", "nano-1000"], "unknown case 'nano-1000'; known cases: nano-b4"),
        (["--gate", "speed"], "unknown kind 'speed'; known: count-strict"),
        (["--width", "-5"], "'-5' is not a number of columns, 1 or more"),
        (["--width", "0"], "'0' is not a number of columns"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_bad_usage_exits_2(bench: Bench, capsys: pytest.CaptureFixture[str], options: list[str], why: str) -> None:
    bench.record(OPS)
    with pytest.raises(SystemExit) as stop:
        sys.exit(bench.run("judge", *options))
    assert stop.value.code == 2
    assert why in capsys.readouterr().err


def test_bad_files_exit_2_in_one_line(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("judge") == 2
    assert "no such file or folder; run the suite first (nox -s perf-2.14)" in capsys.readouterr().err
    bench.records.mkdir()
    assert bench.run("judge") == 2
    assert "run the suite first (nox -s perf-2.14)" in capsys.readouterr().err
    bench.record(OPS)
    path = bench.approve(a_record([OPS]))
    path.write_text("{")
    for command in (["judge"], ["report"], ["refresh", "--reason", "x"]):
        assert bench.run(*command) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"rfdetr-perf: {path}: ")
        assert error.count("\n") == 1
    assert path.read_text() == "{"


def test_refresh_approves_and_then_the_case_passes(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(OPS)
    assert bench.run("refresh", "--reason", "first", "--approved-by", "ada") == 0
    bench.record(WORSE)
    assert bench.run("refresh", "--reason", "needed", "--approved-by", "ada") == 0
    assert bench.run("judge") == 0
    path = bench.baselines / "cpu/torch-2.14/nano-cpu-b2.json"
    assert f"written: {path}" in capsys.readouterr().out.replace("\n", " ")
    baseline = read_baseline(path)
    assert [(approval.by, approval.reason) for approval in baseline.approvals] == [("ada", "first"), ("ada", "needed")]
    before = path.stat().st_mtime_ns
    assert bench.run("refresh", "--reason", "again") == 0
    assert "nothing changes" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == before


def test_a_dry_run_writes_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(OPS)
    assert bench.run("refresh", "--reason", "first", "--dry-run") == 0
    assert not bench.baselines.exists()
    assert "not written (--dry-run)" in capsys.readouterr().out


def test_one_refused_case_leaves_every_baseline_as_it_was(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(OPS)
    bench.record(OPS, case=GPU_EAGER, status="failed", error="boom")
    assert bench.run("refresh", "--reason", "first") == 2
    assert "nano-b4 run 0 (session s1) is failed" in capsys.readouterr().err
    assert not bench.baselines.exists()
    assert bench.run("refresh", "--reason", "first", "--case", "nano-cpu-b2") == 0


def test_a_refresh_killed_half_way_leaves_the_old_baseline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.approve(a_record([OPS]))
    before = path.read_bytes()
    bench.record(WORSE)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            bench.run("refresh", "--reason", "x")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--reason", " "], "needs a reason"),
        (["--reason", "x", "--case", "nano-b4"], "no record of case nano-b4"),
    ],
)
def test_a_refused_refresh_exits_2(
    bench: Bench, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    bench.record(OPS)
    assert bench.run("refresh", *options) == 2
    assert why in capsys.readouterr().err
    assert not bench.baselines.exists()


def test_a_dirty_source_needs_to_be_allowed(bench: Bench) -> None:
    bench.record(OPS, environment=an_environment(rfdetr_dirty=True))
    assert bench.run("refresh", "--reason", "x") == 2
    assert bench.run("refresh", "--reason", "x", "--allow-dirty") == 0


def test_cases_lists_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["suite main, gpu lane", "  nano-b4", "  nano-b4-compile"]
    assert {line.strip() for line in lines if line.startswith(" ")} == set(catalogue())


def test_matrix_takes_records_into_its_store_and_says_when_the_document_is_stale(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.record(*proof(), case=CPU_COMPILED)
    store, out = tmp_path / "docs" / "m.jsonl", tmp_path / "docs" / "m.md"
    files = ["--store", str(store), "--out", str(out)]
    assert main(["matrix", str(bench.records), *files]) == 0
    assert capsys.readouterr().out == f"{store}: written\n{out}: written\n"
    assert main(["matrix", "--check", *files]) == 0
    out.write_text(out.read_text() + "by hand")
    assert main(["matrix", "--check", *files]) == 1
    assert f"{out}: not what the store gives" in capsys.readouterr().out


@pytest.mark.parametrize("steps", ["0", "-1", "many"])
def test_an_epoch_has_a_number_of_steps(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["matrix", "--steps-per-epoch", steps])
    assert "is not a number of steps, 1 or more" in capsys.readouterr().err
