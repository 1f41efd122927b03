from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench import OPS, WORSE, Bench
from factories import CPU_EAGER, GPU_EAGER, H200, a_record, a_signal, an_environment, runs_of

from perf.baselines import read_baseline, writing
from perf.cli import main
from perf.record import Part, Signal


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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


def test_the_tables_are_written_as_markdown(bench: Bench, tmp_path: Path) -> None:
    bench.approve(a_record([OPS]))
    bench.record(WORSE, a_signal("<b>|@x", 1, unit="|"))
    path = tmp_path / "changes.md"
    assert bench.run("refresh", "--reason", "x", "--markdown", str(path), "--dry-run") == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith("### `nano-cpu-b2`\n\n2 signals change\n")
    assert "| `aten_ops` | 1000 | 2000 | +100.00 % | - | +100.00 % |" in text
    assert "| `<b>\\|@x` | - | `1 \\|` | new | - | new |" in text


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
