from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from factories import (
    CPU_COMPILED,
    CPU_EAGER,
    GPU_EAGER,
    H200,
    a_baseline,
    a_record,
    a_signal,
    an_environment,
    proof,
    runs_of,
)

from perf.baselines import read_baseline, write_baseline, writing
from perf.cli import main
from perf.expected import Asked, write_asked
from perf.record import Part, Record, Signal, write_record
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


def test_a_refresh_shows_every_case_before_it_writes_any(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    wall = a_signal("step_time", 0, "wall", "ms")
    bench.approve(*runs_of(wall, [99, 100, 101], GPU_EAGER))
    bench.record(OPS)
    for run, value in enumerate([79.0, 80.0, 81.0]):
        bench.record(wall.model_copy(update={"value": value}), case=GPU_EAGER, run=run)
    assert bench.run("refresh", "--reason", "faster") == 0
    shown = capsys.readouterr().out
    first, table, _, step, *_ = [line.split() for line in shown.partition("nano-b4:")[2].splitlines()]
    assert first == ["1", "signal", "changes"]
    assert " ".join(table) == "signal old new change 95 % interval drift since first"
    assert " ".join(step) == "step_time 100.00 ms 80.00 ms -20.00 % -22.07 % to -17.88 % -20.00 %"
    assert "nano-cpu-b2: first baseline of this case on cpu, torch 2.14, 1 signal\n" in shown
    written = [f"written: {path}" for path in sorted(bench.baselines.rglob("*.json"), reverse=True)]
    assert shown.splitlines()[-2:] == written


B200 = H200.model_copy(update={"device": "nvidia-b200"})


def test_the_first_baseline_on_another_device_is_asked_for_by_name(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.approve(a_record([OPS], GPU_EAGER))
    bench.record(WORSE, case=GPU_EAGER, environment=B200)
    assert bench.run("refresh", "--reason", "x") == 2
    assert capsys.readouterr().err == (
        f"rfdetr-perf: {bench.records}/nano-b4-0.record.json: device nvidia-b200, and nano-b4 is approved on others, "
        f"as in {path}\n"
        "are these the records you meant? for first baselines on their device pass --device nvidia-b200\n"
    )
    assert list(bench.baselines.rglob("*.json")) == [path]
    assert bench.run("judge", "--width", "200") == 3
    assert "--case nano-b4 --device nvidia-b200 --reason" in capsys.readouterr().out
    assert bench.run("refresh", "--reason", "x", "--device", "nvidia-b200") == 0
    assert "nano-b4: first baseline of this case on nvidia-b200, torch 2.14, 1 signal\n" in capsys.readouterr().out
    assert (bench.baselines / "nvidia-b200/torch-2.14/nano-b4.json").is_file()
    # A further torch minor on a device that has the case is no mistake.
    bench.record(WORSE, case=GPU_EAGER, environment=B200.model_copy(update={"torch_minor": "2.15"}))
    assert bench.run("refresh", "--reason", "x") == 0


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


def test_every_record_that_may_not_become_a_baseline_is_named(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.record(OPS)
    bench.record(OPS, run=1, status="failed", error="boom")
    bench.record(OPS, case=GPU_EAGER, environment=H200.model_copy(update={"rfdetr_dirty": True}))
    bench.record(OPS, run=3, status="running")
    assert bench.run("refresh", "--reason", "x") == 2
    lines = capsys.readouterr().err.removeprefix("rfdetr-perf: ").splitlines()
    assert [line.split(": ")[0].rpartition("/")[2].partition(".")[0] for line in lines] == [
        "nano-b4-0",
        "nano-cpu-b2-1",
        "nano-cpu-b2-3",
    ]


# Runs the command line and kills itself, as the machine's out-of-memory killer would, before the n-th line that it
# would execute while it writes files. Nothing of what it does until then differs.
DIES = """
import os, signal, sys
from perf.cli import main
from perf.record import write_atomically

left = int(sys.argv[1])

def on_line(frame, event, _):
    global left
    left -= event == "line"
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return on_line

sys.settrace(lambda frame, *_: on_line if frame.f_code is write_atomically.__code__ else None)
sys.exit(main(sys.argv[2:]))
"""


class Killing:
    """Baselines of two cases, records that change both, and what a refresh that is left alone makes of them."""

    def __init__(self, bench: Bench, parts: int = 0) -> None:
        self.bench, self.cases = bench, (CPU_EAGER, CPU_EAGER.model_copy(update={"batch_size": 4}))
        for case in self.cases:
            bench.approve(a_record([OPS], case))
            bench.record(_in_parts(WORSE, parts), case=case)
        self.old = self.state(bench.baselines)
        untouched = self.copy("untouched")
        self.seconds = time.perf_counter()
        assert subprocess.run(self.command(untouched), capture_output=True, check=False).returncode == 0
        self.seconds = time.perf_counter() - self.seconds
        self.new = self.state(untouched)
        assert all(self.new[name] != self.old[name] for name in self.old)

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.bench.baselines, self.bench.baselines.with_name(name)))

    def arguments(self, baselines: Path) -> list[str]:
        return ["refresh", str(self.bench.records), "--baselines", str(baselines), "--reason", "x"]

    def command(self, baselines: Path) -> list[str]:
        return [sys.executable, "-m", "perf.cli", *self.arguments(baselines), "--approved-by", "ada"]

    @staticmethod
    def state(baselines: Path) -> dict[str, bytes]:
        """Return every baseline there, but for the day on which it was approved."""
        return {path.name: re.sub(rb'"date": "[^"]*"', b"", path.read_bytes()) for path in baselines.rglob("*.json")}

    def seen(self, baselines: Path) -> tuple[set[str], int]:
        """Return the names beside the first baseline that is written, and its size."""
        folder = baselines / "cpu/torch-2.14"
        return {path.name for path in folder.iterdir()}, (folder / f"{self.cases[0].id}.json").stat().st_size

    def check(self, baselines: Path) -> int:
        """Check that each baseline is the old one or the new one, to the byte, and return how many are new."""
        state = self.state(baselines)
        assert all(state[name] in (self.old[name], self.new[name]) for name in self.old)
        assert set(state) == set(self.old)
        done = [state[f"{case.id}.json"] == self.new[f"{case.id}.json"] for case in self.cases]
        assert done == sorted(done, reverse=True), "the cases are written in order"
        # What the killed process left beside them troubles no later command, and the refresh can be done again.
        assert main(["judge", str(self.bench.records), "--baselines", str(baselines)]) == (0 if all(done) else 1)
        assert main([*self.arguments(baselines), "--approved-by", "ada"]) == 0
        assert self.state(baselines) == self.new
        assert not list(baselines.rglob(".*.json.*"))
        return sum(done)


def _in_parts(signal: Signal, count: int) -> Signal:
    return signal.model_copy(update={"parts": [Part(name=f"aten::op{index}", value=1) for index in range(count)]})


def test_a_refresh_killed_before_any_line_of_its_writing_leaves_whole_baselines(bench: Bench) -> None:
    killing = Killing(bench)

    def kill(lines: int) -> tuple[int, Path]:
        baselines = killing.copy(f"killed-{lines}")
        command = [sys.executable, "-c", DIES, str(lines), *killing.arguments(baselines), "--approved-by", "ada"]
        return subprocess.run(command, capture_output=True, check=False).returncode, baselines

    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(kill, range(24)))
    killed = [baselines for code, baselines in ends if code == -signal.SIGKILL]
    assert {code for code, _ in ends} == {0, -signal.SIGKILL}, "the sweep reaches the end of the second file"
    leftovers = [bool(list(baselines.rglob(".*.json.*"))) for baselines in killed]
    # Killed with none and with one of the two written: the replacement is the last line.
    assert {killing.check(baselines) for baselines in killed} == {0, 1}
    assert all(killing.check(baselines) == 2 for code, baselines in ends if code == 0)
    assert leftovers.count(True) > leftovers.count(False) > 2, "killed before, during and between the two writes"


def test_a_refresh_killed_from_outside_at_any_time_leaves_whole_baselines(bench: Bench) -> None:
    killing = Killing(bench, parts=3_000)
    for step in range(10):
        baselines = killing.copy(f"killed-{step}")
        with subprocess.Popen(killing.command(baselines), stdout=subprocess.DEVNULL) as process:
            if step % 2:
                time.sleep(killing.seconds * (0.5 + 0.06 * step))
            else:
                # As soon as it begins to write, or a little later: it writes for some milliseconds.
                while process.poll() is None and killing.seen(baselines) == killing.seen(bench.baselines):
                    pass
                time.sleep(0.0005 * step)
            process.kill()
        killing.check(baselines)


def refreshing(bench: Bench) -> subprocess.Popen[str]:
    """Start a refresh, and return it once it has shown what it will do."""
    arguments = [str(bench.records), "--baselines", str(bench.baselines), "--reason", "x", "--approved-by", "ada"]
    command = [sys.executable, "-m", "perf.cli", "refresh", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("nano-cpu-b2: ")
    return process


def test_a_refresh_waits_for_another_and_then_leaves_what_that_wrote(bench: Bench) -> None:
    path = bench.approve(a_record([OPS]))
    bench.record(WORSE)
    with writing(bench.baselines):
        making = path.with_name(f".{path.name}.abcd_123")
        making.touch()
        process = refreshing(bench)
        time.sleep(0.2)
        assert process.poll() is None
        assert making.exists()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert read_baseline(path).signals[0].value == 2000
    assert not making.exists()

    bench.record(a_signal("aten_ops", 3000, "count-volume"))
    with writing(bench.baselines):
        process = refreshing(bench)
        bench.approve(a_record([a_signal("aten_ops", 5, "count-volume")]))
    _, said = process.communicate(timeout=60)
    assert (process.returncode, read_baseline(path).signals[0].value) == (2, 5)
    assert said.startswith(f"rfdetr-perf: {path}: another process refreshed it meanwhile, so that nothing is written")


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
    assert "is not a whole number, 1 or more" in capsys.readouterr().err
