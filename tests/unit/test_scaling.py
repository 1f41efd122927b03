from __future__ import annotations

import pytest
from factories import a_record, a_signal, an_environment

from perf.case import Case
from perf.record import Record
from perf.report.scaling import render_scaling
from perf.scaling import alone, scaling

PLAIN = Case(config="nano")
THROUGH, TWO = Case(config="nano", strategy="ddp"), Case(config="nano", devices=2)


def runs(case: Case, *milliseconds: float, busy: float = 10) -> list[Record]:
    signals = [a_signal("gpu_busy", busy, "device", "ms")]
    return [
        a_record([a_signal("step_time", ms, "wall", "ms"), *signals], case, run) for run, ms in enumerate(milliseconds)
    ]


RECORDS = [*runs(TWO, 110, 110), *runs(PLAIN, 100, 100), *runs(THROUGH, 100, 100, busy=10.1)]


def test_a_family_is_one_work_whatever_the_ranks() -> None:
    assert alone(Case(config="nano", compile=True, devices=2, optimize_ddp="off")) == Case(config="nano", compile=True)
    assert alone(THROUGH) == alone(TWO) == PLAIN


def test_efficiency_is_the_rate_a_rank_against_one_process() -> None:
    [[plain, through, two]] = scaling(RECORDS)

    assert [point.case for point in (plain, through, two)] == [PLAIN, THROUGH, TWO]
    assert plain.rate == pytest.approx(40)
    assert two.rate == pytest.approx(8e3 / 110)
    assert through.efficiency
    assert through.busy
    assert two.efficiency
    assert (through.efficiency.ratio, through.busy.ratio) == pytest.approx((1, 1.01))
    assert two.efficiency.ratio == pytest.approx(100 / 110)


def test_the_interval_holds_how_runs_scatter() -> None:
    [[_, two]] = scaling([*runs(PLAIN, 100, 104, 96), *runs(TWO, 110, 114, 106)])
    assert two.efficiency
    assert two.efficiency.low < two.efficiency.ratio < two.efficiency.high


def test_what_ran_on_other_cores_is_told() -> None:
    wide = an_environment(cpu_count=32)
    two = [record.model_copy(update={"environment": wide}) for record in runs(TWO, 110, 110)]
    shown = render_scaling([*runs(PLAIN, 100, 100), *two])
    assert "nano-b4-x2 ran on " in shown
    assert " x32; nano-b4 on " in shown
    shared = [
        record.model_copy(update={"environment": record.environment.model_copy(update={"threads": {"torch": "2"}})})
        for record in runs(TWO, 110, 110)
    ]  # which ranks on the same cores have to
    assert "other cores" not in render_scaling([*runs(PLAIN, 100, 100), *shared])


def test_one_run_gives_a_rate_and_no_interval() -> None:
    [[_, two]] = scaling([*runs(PLAIN, 100), *runs(TWO, 110)])
    assert (two.efficiency, two.busy) == (None, None)
    assert two.rate == pytest.approx(8e3 / 110)


def test_what_cannot_be_held_against_one_process_is_left_out() -> None:
    assert scaling(runs(PLAIN, 100)) == scaling(runs(TWO, 100)) == []
    failed = [record.model_copy(update={"status": "failed"}) for record in runs(PLAIN, 100)]
    assert scaling([*failed, *runs(TWO, 100)]) == []
    assert render_scaling(runs(PLAIN, 100)) == ""


def test_the_table_names_case_rate_and_interval() -> None:
    lines = render_scaling(RECORDS).splitlines()
    assert lines[2] == "| nano-b4 | 1 | 2 | 40 | - | - |"
    assert lines[4] == "| nano-b4-x2 | 2 | 2 | 72.73 | 90.91 % (90.91 to 90.91) | 100.00 % (100.00 to 100.00) |"
