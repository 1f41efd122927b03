from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import GPU_EAGER, H200, a_record, an_environment

from perf.record import Record, write_record
from perf.record_files import Narrowing, mixtures, take

B200 = H200.model_copy(update={"device": "nvidia-b200"})
OLDER = H200.model_copy(update={"torch_minor": "2.13"})


def leave(folder: Path, name: str, record: Record) -> Path:
    path = folder / f"{name}.record.json"
    write_record(path, record)
    return path


def on_gpu(run: int = 0, environment: Any = H200, **changes: Any) -> Record:
    return a_record((), GPU_EAGER, run, environment=environment, **changes)


def problems(folder: Path, narrowing: Narrowing = Narrowing()) -> list[str]:  # noqa: B008  (immutable)
    with pytest.raises(ValueError, match=r"\.record\.json: ") as caught:
        take(folder, narrowing)
    return str(caught.value).split("\n")


def test_records_come_with_their_paths_by_case_and_run(tmp_path: Path) -> None:
    paths = [leave(tmp_path, name, on_gpu(run)) for name, run in {"b": 0, "a": 1}.items()]
    assert [(path, record.run) for path, record in take(tmp_path).items()] == [(paths[0], 0), (paths[1], 1)]
    assert list(take(paths[1])) == paths[1:]


def test_every_file_of_two_devices_is_named_with_its_device(tmp_path: Path) -> None:
    first, second = leave(tmp_path, "a", on_gpu()), leave(tmp_path, "b", on_gpu(1, B200))
    assert problems(tmp_path) == [
        f"{first}: device nvidia-h200, torch 2.14",
        f"{second}: device nvidia-b200, torch 2.14",
        "records of several devices or torch minors cannot be taken together: "
        "pass --device nvidia-b200 or --device nvidia-h200",
    ]
    assert list(take(tmp_path, Narrowing(device="nvidia-b200"))) == [second]


def test_different_cases_of_one_lane_are_of_one_torch_minor(tmp_path: Path) -> None:
    other = GPU_EAGER.model_copy(update={"batch_size": 8})
    first = leave(tmp_path, "a", on_gpu())
    second = leave(tmp_path, "b", a_record((), other, environment=OLDER))
    assert problems(tmp_path) == [
        f"{first}: device nvidia-h200, torch 2.14",
        f"{second}: device nvidia-h200, torch 2.13",
        "records of several devices or torch minors cannot be taken together: pass --torch 2.13 or --torch 2.14",
    ]
    assert list(take(tmp_path, Narrowing(torch_minor="2.13"))) == [second]


def test_the_lanes_of_one_machine_go_together(tmp_path: Path) -> None:
    leave(tmp_path, "a", a_record())
    leave(tmp_path, "b", on_gpu())
    assert len(take(tmp_path)) == 2


def test_every_file_of_a_case_that_cannot_be_pooled_is_named(tmp_path: Path) -> None:
    versions = ["4.57.1", "4.57.1", "5.0"]
    records = [a_record(run=run, environment=an_environment(transformers=v)) for run, v in enumerate(versions)]
    paths = [leave(tmp_path, str(record.run), record) for record in records]
    assert problems(tmp_path) == [
        *(f"{path}: transformers {version}" for path, version in zip(paths, versions, strict=True)),
        "the runs of nano-cpu-b2 cannot be pooled: they differ in transformers; take them separately",
    ]


def test_copies_of_a_run_are_named(tmp_path: Path) -> None:
    first, second = (leave(tmp_path, name, a_record()) for name in ("a", "b"))
    leave(tmp_path, "c", a_record(run=1))
    assert problems(tmp_path) == [
        f"{first}: nano-cpu-b2 run 0 (session s1)",
        f"{second}: nano-cpu-b2 run 0 (session s1)",
        "one run must not count as two: remove the copies",
    ]


def bad_folder(folder: Path) -> dict[str, Path]:
    """Leave what a folder should not hold: two devices, two schema versions, a half-written and a future record."""
    paths = {name: leave(folder, name, on_gpu(run)) for run, name in enumerate(["cut", "future", "fine", "old"])}
    paths["other"] = leave(folder, "other", on_gpu(7, B200))
    paths["cut"].write_bytes(paths["cut"].read_bytes()[:400])
    for name, version in {"future": 7, "old": 0}.items():
        document = json.loads(paths[name].read_text())
        del document["session"]
        # A future schema differs in more than its number.
        paths[name].write_text(json.dumps({"sparkle": 1, **document, "schema_version": version}))
    return paths


def test_all_that_is_wrong_with_a_folder_is_named_file_by_file_at_once(tmp_path: Path) -> None:
    paths = bad_folder(tmp_path)
    cut, future, old, *rest = problems(tmp_path)
    assert cut.startswith(f"{paths['cut']}: not whole JSON, was it cut short? (")
    assert cut.endswith("; restore it, or make it again")
    assert (
        future == f"{paths['future']}: schema_version 7, and this rfdetr-perf reads 1: a newer one wrote it, so update"
    )
    assert old == f"{paths['old']}: schema_version 0, and this rfdetr-perf reads 1 only: make the file again"
    assert rest[0] == f"{paths['fine']}: device nvidia-h200, torch 2.14"
    assert rest[1] == f"{paths['other']}: device nvidia-b200, torch 2.14"


def test_a_file_that_cannot_be_read_is_named_though_another_case_is_asked_for(tmp_path: Path) -> None:
    paths = bad_folder(tmp_path)
    told = problems(tmp_path, Narrowing(cases=["nano-b8"]))
    assert told[0].startswith(f"{paths['cut']}: ")
    assert told[-1].startswith(f"{tmp_path}: no record of case nano-b8, only of nano-b4; ")


@pytest.mark.parametrize(
    ("narrowing", "why"),
    [
        (Narrowing(device="nvidia-b200"), "no record of device nvidia-b200, only of nvidia-h200"),
        (Narrowing(torch_minor="2.3"), "no record of torch minor 2.3, only of 2.14"),
    ],
)
def test_nothing_to_take_says_what_there_is(tmp_path: Path, narrowing: Narrowing, why: str) -> None:
    leave(tmp_path, "a", on_gpu())
    with pytest.raises(ValueError, match=why):
        take(tmp_path, narrowing)


def test_no_files_are_no_mixture() -> None:
    assert mixtures({}) == []
