from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from perf.case import Case
from perf.environment import Environment
from perf.gpus import GpuState
from perf.record import (
    Part,
    Record,
    Signal,
    parse_json,
    read_record,
    read_records,
    reject_duplicates,
    write_atomically,
    write_record,
)

ENVIRONMENT = Environment(
    device="cpu",
    torch="2.14.1",
    torch_minor="2.14",
    python="3.11.7",
    rfdetr="1.11.2",
    rfdetr_source="release 1.11.2",
    cpu_model="some CPU",
    cpu_count=2,
    system="Linux",
    suite="0.1.0",
)


def a_record(**changes: Any) -> Record:
    case = changes.pop("case", Case(config="nano", lane="cpu", batch_size=2))
    fields: dict[str, Any] = {"case_id": case.id, "session": "s1", "run": 0, "command": "rfdetr-perf run"}
    return Record(case=case, environment=ENVIRONMENT, **{**fields, **changes})


def a_signal(name: str = "aten ops", value: float = 14690) -> Signal:
    parts = [Part(name="aten::mm", value=value, where=["transformer.py:10"])]
    return Signal(name=name, kind="count-volume", unit="ops", value=value, samples=[value], parts=parts)


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.record.json"
    record = a_record(signals=[a_signal()], gpu_before=[GpuState(index=0, power_w=77.5)], status="finished")

    write_record(path, record)

    assert read_record(path) == record
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_signal_is_found_by_name() -> None:
    record = a_record(signals=[a_signal("kernels"), a_signal("aten ops")])

    assert record.signal("aten ops") == a_signal("aten ops")
    assert record.signal("speed") is None


def edited(tmp_path: Path, **changes: object) -> Path:
    document = json.loads(a_record(signals=[a_signal()]).model_dump_json())
    path = tmp_path / "edited.record.json"
    path.write_text(json.dumps({**document, **changes}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"case_id": "nano-b4"}, "case_id 'nano-b4' is not the id of its case, 'nano-cpu-b2'"),
        ({"signals": [a_signal().model_dump()] * 2}, "duplicate signal 'aten ops'"),
        ({"surprise": 1}, "surprise"),
        ({"run": -1}, "run"),
        ({"status": "great"}, "status"),
    ],
)
def test_an_inconsistent_record_is_named_with_its_fault(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    path = edited(tmp_path, **changes)
    before = path.read_bytes()

    with pytest.raises(ValueError, match=complaint) as caught:
        read_record(path)

    assert str(caught.value).startswith(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_truncated_record_is_named(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.record.json"
    write_record(path, a_record())
    path.write_bytes(path.read_bytes()[:length])

    with pytest.raises(ValueError, match=r"cut\.record\.json: "):
        read_record(path)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_refused_in_a_file(tmp_path: Path, token: str) -> None:
    path = tmp_path / "nan.record.json"
    text = a_record(signals=[a_signal(value=424242)]).model_dump_json().replace("424242", token, 1)
    assert token in text
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=rf"nan\.record\.json: {token} is not a number that can be judged"):
        read_record(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_in_a_signal(value: float) -> None:
    with pytest.raises(ValidationError, match="must be a finite number"):
        a_signal(value=value)


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="duplicate key 'a'"):
        parse_json('{"b": {"a": 1, "a": 2}}')


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_deep_nesting_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.record.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: nested too deeply"):
        read_record(path)


def test_reject_duplicates_names_the_first() -> None:
    reject_duplicates(["a", "b"], "name")
    with pytest.raises(ValueError, match="duplicate name 'b'"):
        reject_duplicates(["a", "b", "b", "a"], "name")


def test_an_interrupted_write_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.json"
    write_atomically(path, "old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")

    assert [item.name for item in tmp_path.iterdir()] == ["kept.json"]
    assert path.read_text(encoding="utf-8") == "old"


def test_an_unwritable_value_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    write_atomically(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half \ud800")

    assert [item.name for item in tmp_path.iterdir()] == ["kept.json"]
    assert path.read_text(encoding="utf-8") == "old"


def test_records_of_a_folder_come_sorted(tmp_path: Path) -> None:
    compiled = Case(config="nano", lane="cpu", batch_size=2, compile=True)
    for name, record in {"a": a_record(case=compiled), "b/c": a_record(run=1), "d": a_record(run=0)}.items():
        write_record(tmp_path / f"{name}.record.json", record)

    found = [(record.case_id, record.run) for record in read_records(tmp_path)]

    assert found == [("nano-cpu-b2", 0), ("nano-cpu-b2", 1), ("nano-cpu-b2-compile", 0)]


def test_one_file_can_be_read_instead_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.record.json"
    write_record(path, a_record())

    assert len(read_records(path)) == 1


def test_every_unreadable_record_of_a_folder_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.record.json").write_text("{", encoding="utf-8")

    with pytest.raises(ValueError, match=r"a\.record\.json: .*\n.*b\.record\.json: "):
        read_records(tmp_path)


def test_a_folder_without_records_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run the suite first"):
        read_records(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no-such"):
        read_records(tmp_path / "no-such")
