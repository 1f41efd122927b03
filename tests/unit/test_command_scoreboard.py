from __future__ import annotations

from pathlib import Path

import pytest
from test_scoreboard import BLATANT, measured

from perf import scoreboard_run
from perf.cli import main
from perf.faults import FAULTS, Fault
from perf.scoreboard import Row, read_store, store_text


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return ["scoreboard", "--store", str(tmp_path / "s.jsonl"), "--out", str(tmp_path / "s.md"), "--lane", "cpu"]


def test_the_faults_are_listed(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [fault.id for fault in FAULTS]


def test_what_is_selected_is_measured_and_written_and_what_the_lane_cannot_take_is_said(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []

    def measure(_: object, fault: Fault) -> Row:
        asked.append(fault.id)
        return measured(BLATANT, 1400)

    monkeypatch.setattr(scoreboard_run, "measure_fault", measure)
    assert main([*files, "--select", BLATANT.id, "--select", "kernel_small"]) == 0

    assert asked == [BLATANT.id]
    assert read_store(tmp_path / "s.jsonl") == [measured(BLATANT, 1400)]
    assert "kernel_small.nano-b4: not run here, it needs the gpu lane: nox -s" in capsys.readouterr().err


def test_a_selection_that_this_lane_has_none_of_is_no_success(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "s.jsonl").write_text(store_text([measured(BLATANT, 1400)]), encoding="utf-8")
    assert main([*files, "--select", "cuda_graph"]) == 3

    told = capsys.readouterr()
    assert (told.out, told.err.count("not run here, it needs the gpu lane")) == ("", 2)


def test_a_document_is_made_anew_from_the_store_and_a_store_with_gaps_fails_the_check(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "s.jsonl").write_text(store_text([measured(BLATANT, 1400)]), encoding="utf-8")
    assert main([*files, "--check"]) == 1
    assert "make it anew: rfdetr-perf scoreboard --document" in capsys.readouterr().out

    assert main([*files, "--document"]) == 0
    assert "| aten op, blatant | `nano-cpu-b2` | caught |" in (tmp_path / "s.md").read_text(encoding="utf-8")
    assert main([*files, "--check"]) == 1
    told = capsys.readouterr().out
    assert "make it anew" not in told
    assert "host_sync_blatant.nano-cpu-b2: not measured" in told
