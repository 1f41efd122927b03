from __future__ import annotations

from types import SimpleNamespace

import pytest

from perf.candidate_losses import Check, Loss
from perf.candidates import CANDIDATES, DoesNotApply, find_candidate, required
from perf.case import find_case
from perf.cli import main
from perf.commands.candidates import compared

CHECKS = [Check("float32", 2.0**-24, (Loss("loss_ce", 1.25, 1.25, 1.25), Loss("loss_bbox", 0.5, 0.5, 0.5)))]


def test_each_candidate_has_its_patch_and_a_case() -> None:
    assert all(one.path.is_file() and find_case(one.case) for one in CANDIDATES)
    assert len({one.name for one in CANDIDATES}) == len(CANDIDATES)


def test_an_unknown_one_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["candidates", "faster"]) == 2
    assert "unknown candidate 'faster'; known: compiled_loss" in capsys.readouterr().err


def test_a_check_without_its_gpu_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perf.session.gpu_count", lambda: 0)

    assert main(["candidates", "--check", "--case", "nano-b4"]) == 2
    assert "nano-b4: needs an NVIDIA GPU" in capsys.readouterr().err


def test_what_rfdetr_lacks_is_said() -> None:
    pytest.importorskip("rfdetr")
    owner = SimpleNamespace(__name__="Matcher", forward=1)

    required(owner, "forward")
    with pytest.raises(DoesNotApply, match=r"does not apply to rfdetr [\d.]+: Matcher has no _match_many"):
        required(owner, "forward", "_match_many")


def test_one_check_that_fails_fails_the_candidate() -> None:
    fine = Check("bfloat16", 2.0**-8, (Loss("loss_ce", 1.0, 1.0, 1.0),))
    wrong = Check("float32", 2.0**-24, (Loss("loss_ce", 1.0, 1.001, 1.0),))

    code, told = compared(find_candidate("compiled_loss"), [fine, wrong], on_cpu=False)
    assert code == 1
    assert told.splitlines()[:2] == ["  bfloat16: 1 losses bitwise equal", "  float32: 1 of 1 losses differ"]
    assert compared(find_candidate("compiled_loss"), [fine], on_cpu=False)[0] == 0


def test_losses_that_differ_outweigh_a_candidate_that_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter([0, 1, 3, 0])
    monkeypatch.setattr("perf.commands.candidates._checked", lambda *_: (next(codes), "  told"))

    assert main(["candidates", "--check", "--lane", "cpu"]) == 1


def test_a_candidate_that_does_nothing_on_a_cpu_proves_nothing_there() -> None:
    assert "proves nothing" in compared(find_candidate("compiled_loss"), CHECKS, on_cpu=True)[1]
    assert "proves nothing" not in compared(find_candidate("device_assignment"), CHECKS, on_cpu=True)[1]


def test_the_list_says_how_each_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["candidates"]) == 0
    assert "rfdetr-perf ab --case nano-b4 --head-patch perf/candidates/compiled_loss.py" in capsys.readouterr().out
