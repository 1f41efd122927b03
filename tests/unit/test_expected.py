from __future__ import annotations

from pathlib import Path

import pytest
from factories import CPU_COMPILED, CPU_EAGER, GPU_EAGER, a_baseline, a_record, a_signal, proof

from perf.baselines import write_baseline
from perf.case import find_case
from perf.expected import Asked, cases_not_run, expected_cases, write_asked
from perf.record import write_record

OPS = a_signal("aten_ops", 1000, "count-volume")
RECORD = a_record([OPS])
UNKNOWN = CPU_EAGER.model_copy(update={"config": "tiny"})


@pytest.fixture
def baselines(tmp_path: Path) -> Path:
    """One approved case of the suite, one on request, one of a config that is no more."""
    folder = tmp_path / "baselines"
    on_request = find_case("nano-cpu-b64-compile-eager")
    for case in (CPU_EAGER, CPU_COMPILED, on_request, UNKNOWN, GPU_EAGER.model_copy(update={"config": "gone"})):
        write_baseline(folder, a_baseline([a_record([OPS, *proof()], case)]))
    return folder


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, []),
        (Asked(cases=["nano-cpu-b2"], full=False), ["nano-cpu-b2"]),
        (Asked(cases=["nano-cpu-b2", "x"], full=True), ["nano-cpu-b2", "x", "tiny-cpu-b2"]),
        (Asked(cases=["tiny-cpu-b2"], full=True), ["tiny-cpu-b2"]),
    ],
)
def test_what_was_asked_for_is_expected_and_what_is_gone_in_a_full_session(
    tmp_path: Path, baselines: Path, asked: Asked | None, expected: list[str]
) -> None:
    if asked:
        write_asked(tmp_path / "s1", asked)
    assert expected_cases(tmp_path / "s1", [RECORD], baselines) == expected


def test_sessions_below_a_folder_add_up(tmp_path: Path, baselines: Path) -> None:
    write_asked(tmp_path / "s1", Asked(cases=["a"], full=False))
    write_asked(tmp_path / "s2", Asked(cases=["b", "a"], full=True))
    assert expected_cases(tmp_path, [RECORD], baselines) == ["a", "b", "tiny-cpu-b2"]


def test_one_record_file_expects_nothing(tmp_path: Path, baselines: Path) -> None:
    write_asked(tmp_path, Asked(cases=["a"], full=True))
    path = tmp_path / "a.record.json"
    write_record(path, RECORD)
    assert expected_cases(path, [RECORD], baselines) == []


def test_a_session_that_left_no_record_still_expects_what_it_was_asked_for(tmp_path: Path, baselines: Path) -> None:
    write_asked(tmp_path, Asked(cases=["a"], full=True))
    assert expected_cases(tmp_path, [], baselines) == ["a"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": [], "full": true, "more": 1}', "[" * 100_000])
def test_an_unusable_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "session.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: "):
        expected_cases(tmp_path, [RECORD], tmp_path)


def test_what_a_machine_could_not_take_is_told_until_it_is_measured(tmp_path: Path) -> None:
    why = {"nano-b4-x2": "needs 2 GPUs, NVML shows 1", CPU_EAGER.id: "whatever"}
    path = write_asked(tmp_path, Asked(cases=[], full=False, not_run=why))
    write_asked(tmp_path, Asked(cases=["a"], full=False), add=True)

    assert cases_not_run(tmp_path, []) == why
    assert cases_not_run(tmp_path, [RECORD]) == {"nano-b4-x2": "needs 2 GPUs, NVML shows 1"}
    assert cases_not_run(tmp_path, [RECORD], ["a"]) == {}
    write_asked(tmp_path, Asked(cases=["a"], full=False))
    assert "not_run" not in path.read_text()
