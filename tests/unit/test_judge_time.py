"""Judging 10,000 records takes under two seconds, imports aside, and needs no torch."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from factories import CPU_EAGER, a_baseline, a_record, proof

from perf.baselines import Baseline, read_baseline
from perf.compare import compare
from perf.judge import Options, judge
from perf.record import Record, Signal
from perf.session_gates import OneSession
from perf.suites import catalogue
from perf.verdicts import EXIT_CODES

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "baselines/nvidia-h200/torch-2.11/nano-b4-compile.json"
RECORDS, RUNS_A_CASE = 10_000, 125
# Seconds of this process: of wall time a test run beside others takes more.
MOST_SECONDS = 2.0
# Runs of two sides make their own baselines first, of all runs.
MOST_SECONDS_TO_COMPARE = 4.0


def signals_of(stored: Baseline, run: int) -> list[Signal]:
    """Every signal of the stored case with all its parts, as in one of its runs, and the proof that it compiled."""
    own = [
        Signal(name=s.name, kind=s.kind, unit=s.unit, value=s.runs[run % len(s.runs)], parts=s.parts)
        for s in stored.signals
    ]
    proven = {signal.name for signal in proof()}
    return [*(signal for signal in own if signal.name not in proven), *proof()]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    stored = read_baseline(STORED)
    cases = [case for case in catalogue().values() if case.lane == "gpu"]
    runs = [signals_of(stored, run) for run in range(6)]
    return [
        a_record(runs[run % 6], case, run) for case in cases[: RECORDS // RUNS_A_CASE] for run in range(RUNS_A_CASE)
    ]


@pytest.fixture(scope="module")
def baselines(records: list[Record]) -> dict[str, Baseline]:
    few = [record for record in records if record.run < 6]
    return {few[start].case_id: a_baseline(few[start : start + 6]) for start in range(0, len(few), 6)}


def test_ten_thousand_records_against_baselines(records: list[Record], baselines: dict[str, Baseline]) -> None:
    assert len(records) == RECORDS
    started = time.process_time()
    judgement = judge(records, baselines)
    seconds = time.process_time() - started
    assert len(judgement.cases) == len(baselines) == RECORDS // RUNS_A_CASE
    assert not {case.verdict for case in judgement.cases} & {"failed", "not-compiled", "no-baseline"}
    assert seconds < MOST_SECONDS


def test_ten_thousand_records_of_two_sides(records: list[Record]) -> None:
    options = Options(one_session=OneSession())
    started = time.process_time()
    judgement = compare(records[::2], [r.model_copy(update={"run": r.run - 1}) for r in records[1::2]], options)
    seconds = time.process_time() - started
    assert judgement.exit_code in EXIT_CODES.values()
    assert seconds < MOST_SECONDS_TO_COMPARE


def test_judging_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(a_record(case=CPU_EAGER).model_dump_json())
    program = """
import sys
from pathlib import Path
from perf.compare import compare
from perf.judge import Options, judge
from perf.record import read_record
record = read_record(Path(sys.argv[1]))
judge([record], Path("baselines")), compare([record], [record], Options())
print(sorted({"torch", "rfdetr"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "record.json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
