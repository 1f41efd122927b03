from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import GPU_EAGER, a_baseline, a_record, a_signal, an_environment, parts, runs_of

from perf import baselines
from perf.baselines import (
    Baseline,
    approved_cases,
    baseline_path,
    find_baseline,
    read_baseline,
    write_baseline,
    writing,
)

RECORDS = runs_of(a_signal("graph_breaks", 2, parts=parts(a=2)), [2, 2])
PLACE = "cpu/torch-2.14/nano-cpu-b2.json"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return write_baseline(tmp_path, a_baseline(RECORDS))


def test_a_baseline_lies_by_device_torch_minor_and_case_and_reads_back(tmp_path: Path, written: Path) -> None:
    assert written == tmp_path / PLACE == baseline_path(tmp_path, "cpu", "2.14", "nano-cpu-b2")
    assert read_baseline(written) == a_baseline(RECORDS)
    assert find_baseline(tmp_path, RECORDS[0]) == a_baseline(RECORDS)
    assert approved_cases(tmp_path, "cpu", "2.14") == ["nano-cpu-b2"]


def test_a_relative_path_reads_too(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written.parent)
    assert read_baseline(Path(written.name)).case_id == "nano-cpu-b2"


# Writes baselines, and dies as the out-of-memory killer would have it once the file in the making is there.
DIES = """
import os, signal, sys
from pathlib import Path
from perf.baselines import writing, write_baseline, read_baseline

old = Path(sys.argv[1])
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with writing(old.parents[2]):
    write_baseline(old.parents[2], read_baseline(old))
"""


def test_who_writes_next_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path, written: Path) -> None:
    kept = [written.with_name(name) for name in (".nano-cpu-b2.json.swp", ".notes.abcd1234", "x.json.abcd1234")]
    for path in kept:
        path.touch()
    before = set(written.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", DIES, str(written)], check=False)
    assert done.returncode == -signal.SIGKILL
    [left] = set(written.parent.iterdir()) - before
    assert left.name.startswith(f".{written.name}.")
    with writing(tmp_path):
        assert set(written.parent.iterdir()) == before


def test_one_at_a_time_writes(tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "LOCK_SECONDS", 0.1)
    left = written.with_name(f".{written.name}.abcd1234")
    with writing(tmp_path):
        left.touch()
        with (
            pytest.raises(ValueError, match=r"another process is writing baselines there .*; wait for it"),
            writing(tmp_path),
        ):
            pass
        assert left.exists()
    with writing(tmp_path):
        assert not left.exists()


def test_no_baseline_is_none(tmp_path: Path, written: Path) -> None:
    assert written.exists()
    assert find_baseline(tmp_path, a_record(environment=an_environment(torch_minor="2.13"))) is None
    assert approved_cases(tmp_path, "nvidia-h200", "2.14") == []


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edited


def twice(content: dict[str, Any]) -> None:
    content["signals"].append(content["signals"][0])


def retired_and_present(content: dict[str, Any]) -> None:
    signal = content["signals"][0]
    values = {"runs": [1], "unit": "", "approval": 0}
    content["retired"] = [{"name": signal["name"], "kind": signal["kind"], "approval": 0, "history": [values]}]


def wall_on_a_cpu(content: dict[str, Any]) -> None:
    content["signals"][0]["kind"] = "wall"


def gpu_case(content: dict[str, Any]) -> None:
    content["case"]["lane"] = "gpu"


MALFORMED: dict[str, tuple[Callable[[str], str], str]] = {
    "truncated": (lambda text: text[: len(text) // 2], "line"),
    "empty": (lambda text: "", "Expecting value"),
    "not JSON objects": (lambda text: "[]", "valid dictionary"),
    "NaN": (lambda text: text.replace('"runs": [2', '"runs": [NaN', 1), "NaN is not a number"),
    "Infinity": (lambda text: text.replace('"runs": [2', '"runs": [-Infinity', 1), "-Infinity is not a number"),
    "too large to be finite": (
        lambda text: text.replace('"runs": [2', '"runs": [1e999', 1),
        "signals.0.runs.0.*finite",
    ),
    "key twice": (lambda text: text.replace("{", '{"device": "cpu",', 1), "duplicate key 'device'"),
    "schema": (
        edit(lambda content: content.update(schema_version=2)),
        "schema_version 2, and this rfdetr-perf reads 1: a newer one wrote it",
    ),
    "unknown field": (edit(lambda content: content.update(owner="me")), "owner: Extra inputs"),
    "duplicate signal": (edit(twice), "duplicate signal 'graph_breaks'"),
    "retired and present": (edit(retired_and_present), "duplicate signal 'graph_breaks'"),
    "another case": (edit(gpu_case), "case_id 'nano-cpu-b2' is not the id of its case, 'nano-b2'"),
    "another id": (edit(lambda content: content.update(case_id="small-cpu-b2")), "case_id 'small-cpu-b2' is not"),
    "another device": (edit(lambda content: content.update(device="tpu")), "belongs at tpu/torch-2.14/"),
    "another torch": (edit(lambda content: content.update(torch_minor="2.13")), "belongs at cpu/torch-2.13/"),
    "a device that leads elsewhere": (edit(lambda content: content.update(device="../cpu")), "device: String should"),
    "no runs": (edit(lambda content: content["signals"][0].update(runs=[])), "signals.0.runs: List should have"),
    "no such approval": (edit(lambda content: content["signals"][0].update(approval=3)), "there is no approval 3"),
    "no reason": (edit(lambda content: content["approvals"][0].update(reason="")), "approvals.0.reason"),
    "wall on a cpu": (edit(wall_on_a_cpu), "the cpu lane has no baseline for kind 'wall'"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_baseline_is_named_and_left_as_it_is(name: str, tmp_path: Path, written: Path) -> None:
    spoil, why = MALFORMED[name]
    written.write_text(spoil(written.read_text()))
    before = written.read_bytes()
    with pytest.raises(ValueError, match=why) as caught:
        find_baseline(tmp_path, RECORDS[0])
    assert str(caught.value).startswith(f"{written}: ")
    assert "\n" not in str(caught.value)
    assert written.read_bytes() == before


def test_a_file_under_another_cases_name_is_named(tmp_path: Path, written: Path) -> None:
    moved = written.rename(written.with_name("nano-cpu-b4.json"))
    with pytest.raises(ValueError, match=f"{moved}: this is the baseline that belongs at {PLACE}"):
        read_baseline(moved)
    assert tmp_path in moved.parents


def test_a_write_killed_half_way_leaves_the_old_file(
    tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written.read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    other = a_baseline(runs_of(a_signal("graph_breaks", 9), [9, 9]))
    with pytest.raises(KeyboardInterrupt):
        write_baseline(tmp_path, other)
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_the_gpu_lane_keeps_time_memory_and_quality_and_no_info() -> None:
    kinds = {"kernels": "count-volume", "peak_memory": "device", "step_time": "wall", "mAP": "quality", "x": "info"}
    signals = [a_signal(name, 1, kind) for name, kind in kinds.items()]  # type: ignore[arg-type]
    baseline = a_baseline([a_record(signals, GPU_EAGER)])
    assert [signal.name for signal in baseline.signals] == ["kernels", "peak_memory", "step_time", "mAP"]
    assert baseline.power_limit_w == 700
    assert isinstance(baseline, Baseline)
