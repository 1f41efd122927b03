from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perf import traceml_run
from perf.case import Case
from perf.traceml import OURS, SUMMARY
from perf.traceml_run import run_traceml
from perf.traceml_workload import SWITCH, Window

FIT = Case(config="nano", lane="cpu", batch_size=2, measure="fit")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Code that stands for TraceML's launcher, whose arguments follow."""
    code = [""]
    monkeypatch.setattr(traceml_run, "PACKAGE", "json")  # one that is installed
    monkeypatch.setattr(
        traceml_run, "_launcher", lambda scratch, _: [sys.executable, "-c", code[0], str(scratch / "logs" / "run")]
    )
    return code


def run(folder: Path, timeout: float = 30) -> Path:
    return run_traceml(FIT, folder, None, "it", timeout, lambda _: None)


def test_what_traceml_leaves_is_kept(launcher: list[str], tmp_path: Path) -> None:
    launcher[0] = (
        "import pathlib, sys\n"
        "left = pathlib.Path(sys.argv[1]); left.mkdir(parents=True)\n"
        "(left / 'final_summary.json').write_text('{}')\n"
        "pathlib.Path(sys.argv[sys.argv.index('--out') + 1]).write_text('{}')\n"
        "import os; print(os.environ['OMP_NUM_THREADS'])\n"
    )

    assert run(tmp_path / "t") == tmp_path / "t" / SUMMARY
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [SUMMARY, OURS, "traceml.log"]
    assert (tmp_path / "t" / "traceml.log").read_text().strip() == "1"


@pytest.mark.parametrize(
    ("code", "timeout", "why"),
    [
        ("import sys; print('it broke'); sys.exit(3)", 30, r"exit code 3\nlog: .*\nit broke"),
        ("pass", 30, f"it left no {SUMMARY} and no {OURS}"),
        ("import time; time.sleep(60)", 0.5, "no end after 0 s"),
    ],
)
def test_what_went_wrong_is_said_with_the_log(
    launcher: list[str], tmp_path: Path, code: str, timeout: float, why: str
) -> None:
    launcher[0] = code
    (tmp_path / SUMMARY).write_text("{}", encoding="utf-8")  # of an earlier run

    with pytest.raises(ValueError, match=why):
        run(tmp_path, timeout)
    assert not (tmp_path / SUMMARY).exists()


def test_traceml_records_the_updates_after_the_warm_up_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    window = Window(warmup=2, wanted=2)
    window.switch(on=False)
    recorded, ended = [], []
    for number in range(1, 6):
        recorded.append(SWITCH not in os.environ)
        ended.append(window.add({"forward": float(number)}))
    window.switch(on=True)

    assert recorded == [False, False, True, True, False]
    assert ended == [False, False, False, True, True]
    assert window.seconds == [{"forward": 3.0}, {"forward": 4.0}]
