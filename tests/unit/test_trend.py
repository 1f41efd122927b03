from __future__ import annotations

import datetime
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest
from factories import CPU_EAGER, GPU_EAGER, a_record, a_signal, an_environment

from perf.cli import main
from perf.record import Kind, Record, read_record, write_record
from perf.trend import EXTRA, append, change_points, changes, night_of, read, steps, trend_path

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def a_night(day: int, value: float, name: str = "gpu_busy", kind: Kind = "device", commit: str = "") -> Record:
    return a_record(
        [a_signal(name, value, kind, "ms" if kind == "device" else "")],
        GPU_EAGER,
        session=f"night-{day}",
        started=START + datetime.timedelta(days=day),
        environment=an_environment(device="nvidia-h200", rfdetr_commit=commit or f"{day:040x}"),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "trend"


def nights(folder: Path, values: Sequence[float], **told: object) -> Path:
    for day, value in enumerate(values):
        append(folder, [a_night(day, value, **told)])  # type: ignore[arg-type]
    return trend_path(folder, "nvidia-h200", "2.14", "nano-b4")


def test_a_line_a_session_and_none_twice(folder: Path) -> None:
    path = nights(folder, [10, 11])
    before = path.read_bytes()
    assert append(folder, [a_night(1, 11)]) == []
    assert path.read_bytes() == before
    assert [night.values["gpu_busy"].value for night in read(path)] == [10, 11]
    assert append(folder, [a_night(0, 10).model_copy(update={"session": "earlier", "started": START})]) == [path]
    assert [night.session for night in read(path)] == ["night-0", "earlier", "night-1"]


@pytest.mark.parametrize(
    "changes", [{"rfdetr_dirty": True}, {"rfdetr_source": "release 1.11.2, patched by x.py (41f5aed0)"}]
)
def test_what_no_commit_is_is_left_out_and_said(
    folder: Path, tmp_path: Path, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    fine = a_night(0, 10)
    odd = a_night(1, 99)
    odd = odd.model_copy(update={"environment": odd.environment.model_copy(update=changes)})
    for run, record in enumerate((fine, odd)):
        write_record(tmp_path / "records" / f"run-{run}.record.json", record)
    main(["trend", str(folder), "--add", str(tmp_path / "records")])
    assert "nano-b4 run 0 is left out: " in capsys.readouterr().err
    [night] = read(trend_path(folder, "nvidia-h200", "2.14", "nano-b4"))
    assert night.values["gpu_busy"].value == 10


def test_runs_that_did_not_finish_and_signals_of_some_runs_are_left_out(folder: Path) -> None:
    ops, rare = a_signal("aten_ops", 5, "count-volume"), a_signal("rare", 1)
    records = [a_record([ops, rare], run=0), a_record([ops], run=1), a_record([], run=2, status="failed")]
    [path] = append(folder, records)
    [night] = read(path)
    assert (night.runs, list(night.values), night.commit) == (2, ["aten_ops"], "release 1.11.2")


def test_many_at_once_lose_no_line_and_a_reader_sees_whole_files(folder: Path) -> None:
    records = [a_night(day, day) for day in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda record: append(folder, [record]), records))
    path = trend_path(folder, "nvidia-h200", "2.14", "nano-b4")
    assert [night.values["gpu_busy"].value for night in read(path)] == list(range(12))
    assert not list(folder.rglob(".nano*"))


def test_one_that_is_killed_leaves_the_lines_of_before(folder: Path, tmp_path: Path) -> None:
    path = nights(folder, [1, 2])
    before = path.read_bytes()
    write_record(tmp_path / "r" / "a.record.json", a_night(2, 3))
    code = (
        "import os, perf.record, perf.trend as trend\n"
        "os.replace = lambda *_: os._exit(9)\n"
        f"trend.append(__import__('pathlib').Path({str(folder)!r}), "
        f"perf.record.read_records(__import__('pathlib').Path({str(tmp_path / 'r')!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ})
    assert (done.returncode, path.read_bytes()) == (9, before)


@pytest.mark.parametrize("line", ["{", '{"schema_version": 2}', "NaN"])
def test_a_line_that_cannot_be_read_is_named(folder: Path, line: str) -> None:
    path = nights(folder, [1])
    path.write_text(f"{path.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{path}:2: ")):
        read(path)


def test_a_file_that_cannot_be_read_keeps_no_other_case_from_being_added(folder: Path) -> None:
    path = nights(folder, [1])
    path.write_text("{\n", encoding="utf-8")
    other = a_record([a_signal("kernels", 1, "count-volume")], CPU_EAGER, session="night-1", started=START)
    with pytest.raises(ValueError, match=re.escape(f"{path}:1: ")):
        append(folder, [a_night(1, 2), other])
    assert len(read(trend_path(folder, "cpu", "2.14", other.case_id))) == 1
    assert path.read_text(encoding="utf-8") == "{\n"


def test_each_step_of_a_count_is_a_change_with_its_commits(folder: Path) -> None:
    path = nights(folder, [7, 7, 9, 9, 8], name="kernels", kind="count-volume")
    found = changes(read(path), "kernels")
    assert [(change.at, change.old, change.new) for change in found] == [(2, 7, 9), (4, 9, 8)]
    assert found[0].commits == f"{1:040x}..{2:040x}"
    assert steps([1, 1]) == []


def test_lines_that_were_merged_are_put_in_order_and_counted_once(folder: Path) -> None:
    path = nights(folder, [7, 7, 9, 9, 8], name="kernels", kind="count-volume")
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[4], *lines, lines[0], lines[2]]), encoding="utf-8")
    assert [(change.at, change.old, change.new) for change in changes(read(path), "kernels")] == [(2, 7, 9), (4, 9, 8)]


def test_a_change_without_a_change_of_rfdetr_is_said_to_be_one(folder: Path) -> None:
    path = nights(folder, [7, 9], name="kernels", kind="count-volume", commit="a" * 40)
    [change] = changes(read(path), "kernels")
    assert change.commits == f"{'a' * 40} before too, suite too"
    since = change.since.model_copy(update={"suite_commit": "c" * 40})
    before = change.last_before.model_copy(update={"suite_commit": "b" * 40})
    moved = change._replace(since=since, last_before=before)
    assert moved.commits == f"{'a' * 40} before too, suite {'b' * 40}..{'c' * 40}"


def test_a_time_without_a_zone_is_no_record(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run-0.record.json"
    write_record(path, a_night(1, 1))
    path.write_text(path.read_text(encoding="utf-8").replace("2026-01-02T00:00:00Z", "2026-01-02T00:00:00"))
    with pytest.raises(ValueError, match="started: Input should have timezone info"):
        read_record(path)
    nights(folder, [1])
    line = trend_path(folder, "nvidia-h200", "2.14", "nano-b4")
    line.write_text(line.read_text(encoding="utf-8").replace("00:00:00Z", "00:00:00"), encoding="utf-8")
    with pytest.raises(ValueError, match="when: Input should have timezone info"):
        read(line)


def noisy(seed: int, count: int, step: float = 0, at: int = 0, sd: float = 0.1) -> list[float]:
    numbers = random.Random(seed)
    return [10 + (step if index >= at else 0) + numbers.gauss(0, sd) for index in range(count)]


def test_noise_is_hardly_ever_a_change() -> None:
    alarms = sum(bool(change_points(noisy(seed, 60))) for seed in range(60))
    assert alarms == 0


def test_a_step_of_four_sd_is_found_where_it_is() -> None:
    for seed in range(20):
        step = (30, 55)[seed % 2]
        found = change_points(noisy(seed, 60, step=0.4, at=step))
        assert any(abs(at - step) <= 1 for at in found), (seed, found)
    assert change_points(noisy(1, 7, step=5, at=3)) == []
    assert change_points([1.0] * 20) == []


def test_without_the_extra_the_trend_is_shown_and_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nights(folder, noisy(1, 20, step=2, at=10))
    monkeypatch.setitem(sys.modules, "ruptures", None)
    assert main(["trend", str(folder), "--signal", "gpu_busy"]) == 0
    assert EXTRA in capsys.readouterr().out


def test_the_command_adds_shows_and_draws(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = nights(folder, noisy(1, 19, step=2, at=10))
    write_record(tmp_path / "night" / "a.record.json", a_night(19, 12))
    page, picture = tmp_path / "t.html", tmp_path / "t.svg"
    asked = ["--add", str(tmp_path / "night"), "--html", str(page), "--svg", str(picture)]
    assert main(["trend", str(folder), *asked]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("nano-b4 gpu_busy on nvidia-h200, torch 2.14: 20 nights, last 12.00 ms\n")
    assert "2026-01-11: 10.0" in shown.out
    assert f"commits {9:040x}..{10:040x}" in shown.out
    assert len(read(path)) == 20
    assert ElementTree.fromstring(picture.read_text(encoding="utf-8")).tag.endswith("svg")
    assert f"{9:040x}..{10:040x}" in page.read_text(encoding="utf-8")


def test_a_trend_that_is_not_there_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trend", str(folder)]) == 2
    assert "add records of a night with --add RECORDS" in capsys.readouterr().err
    nights(folder, [1, 1])
    assert main(["trend", str(folder)]) == 0
    assert capsys.readouterr().out == "no signal changed\n"
    append(folder, [a_record([a_signal("aten_ops", 5, "count-volume")], CPU_EAGER)])
    assert main(["trend", str(folder), "--signal", "gpu_busy", "--svg", "x.svg", "--case", "nano-cpu-b2"]) == 2
    assert "--svg is of one signal" in capsys.readouterr().err


def test_what_a_record_calls_itself_is_inert_in_the_page(folder: Path, tmp_path: Path) -> None:
    name, commit = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
    for day, value in enumerate([1, 2]):
        append(folder, [a_night(day, value, name=name, kind="count-strict", commit=commit)])
    page = tmp_path / "t.html"
    assert main(["trend", str(folder), "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert json.dumps("&lt;script&gt;")[1:-1] in text


def test_a_night_is_of_the_first_run(folder: Path) -> None:
    records = [a_night(3, 1), a_night(3, 2).model_copy(update={"run": 1, "started": START})]
    assert night_of(records).when == START
