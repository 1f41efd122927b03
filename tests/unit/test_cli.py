from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import OPS, WORSE, Bench
from factories import CPU_COMPILED, GPU_EAGER, H200, a_record, a_signal, proof

from perf.baselines import read_baseline
from perf.cli import main
from perf.expected import Asked, write_asked
from perf.record import write_record
from perf.suites import catalogue


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


def test_a_report_is_written_as_markdown_and_as_a_page_too(bench: Bench, tmp_path: Path) -> None:
    bench.record(WORSE)
    bench.approve(a_record([OPS]))
    text, page = tmp_path / "out" / "c.md", tmp_path / "out" / "r.html"
    assert bench.run("judge", "--markdown", str(text), "--html", str(page)) == 1
    assert "**1 of 1 signal regressed on CPU, torch 2.14: Nano eager, " in text.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


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
        (["--case", "nano-1000"], "unknown case 'nano-1000'; the closest: nano-b4; rfdetr-perf cases lists them all"),
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


B200 = H200.model_copy(update={"device": "nvidia-b200"})
READING = {"judge": [], "report": [], "refresh": ["--reason", "x"]}


def test_files_of_two_devices_are_named_by_every_command(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.approve(a_record([OPS], GPU_EAGER))
    bench.record(OPS, case=GPU_EAGER)
    bench.record(OPS, case=GPU_EAGER, run=1, environment=B200)
    (bench.records / "half.record.json").write_text('{"schema_version": 1, "case')
    (bench.records / "future.record.json").write_text('{"schema_version": 9}')
    before = {path: path.read_bytes() for path in bench.baselines.rglob("*.json")}
    commands = [[command, str(bench.records), *more] for command, more in READING.items()]
    for command in [*commands, ["compare", str(bench.records), str(bench.records)]]:
        assert main([*command, "--baselines", str(bench.baselines)]) == 2
        named = [line.removeprefix("rfdetr-perf: ") for line in capsys.readouterr().err.splitlines()]
        names = ["future", "half", "nano-b4-0", "nano-b4-1"]
        assert [line.split(": ")[0] for line in named[:-1]] == [f"{bench.records}/{name}.record.json" for name in names]
    for name in ("half", "future"):
        (bench.records / f"{name}.record.json").unlink()
    for command in [*commands, ["compare", str(bench.records), str(bench.records)]]:
        assert main([*command, "--baselines", str(bench.baselines), "--device", "nvidia-h200"]) == 0
    assert before == {path: path.read_bytes() for path in bench.baselines.rglob("*.json")}


def test_nothing_is_expected_of_the_sessions_that_another_device_left(bench: Bench) -> None:
    for device, case in ((H200, GPU_EAGER), (B200, GPU_EAGER.model_copy(update={"batch_size": 8}))):
        session = bench.records / device.device
        write_record(session / "a.record.json", a_record([OPS], case, environment=device))
        write_asked(session, Asked(cases=[case.id], full=False))
    bench.approve(a_record([OPS], GPU_EAGER))
    assert bench.run("judge", "--device", "nvidia-h200") == 0
    write_asked(bench.records / "lost", Asked(cases=["small-b4"], full=False))
    assert bench.run("judge", "--device", "nvidia-h200") == 1


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
    assert "is not a whole number, 1 or more" in capsys.readouterr().err
