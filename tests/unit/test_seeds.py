from __future__ import annotations

import datetime
import statistics
from collections.abc import Sequence

import pytest
from factories import CPU_EAGER, a_record, a_signal

from perf.case import Case
from perf.record import Record
from perf.seeds import MARGINS, lessons, passes, text

TRAINING = Case(config="nano", lane="cpu", batch_size=4, workers=0, measure="convergence")
SEEDS = (0.80, 0.82, 0.79, 0.81, 0.805)
BEGAN = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)


def trained(values: Sequence[float], case: Case = TRAINING) -> list[Record]:
    end = BEGAN + datetime.timedelta(seconds=60)
    return [
        a_record([a_signal("map", value, "quality", direction="higher")], case, run, started=BEGAN, finished=end)
        for run, value in enumerate(values)
    ]


def test_seeds_teach_their_spread_the_floor_and_what_a_margin_costs() -> None:
    [lesson] = lessons([*trained(SEEDS), *trained([1.0], CPU_EAGER)])

    assert (lesson.case_id, lesson.runs, lesson.seconds) == (TRAINING.id, list(SEEDS), 60)
    assert lesson.sd == statistics.stdev(SEEDS)
    assert 0.7 < lesson.floor < 0.75
    known = [needed for needed in lesson.needed.values() if needed is not None]
    assert known == sorted(known, reverse=True)
    assert tuple(lesson.needed) == MARGINS


def test_one_seed_of_two_sessions_is_no_spread() -> None:
    twice = [*trained(SEEDS), *(one.model_copy(update={"session": "s2"}) for one in trained(SEEDS[:1]))]

    with pytest.raises(
        ValueError, match=rf"{TRAINING.id} run 0 \(session s2\): the same seed was trained in session s1"
    ):
        lessons(twice)


def test_one_seed_teaches_nothing() -> None:
    with pytest.raises(ValueError, match="two finished trainings or more"):
        lessons(trained([0.8]))


def test_simulated_sessions_pass_where_the_margin_is_wide_and_not_where_it_is_narrow() -> None:
    assert passes(SEEDS, 6, 0.05) == 20
    assert passes(SEEDS, 6, 0.0001) < 10
    assert passes(SEEDS, 6, 0.02) == passes(SEEDS, 6, 0.02)


def test_the_text_says_all_of_it() -> None:
    said = text(lessons(trained(SEEDS)), pairs=6)

    assert said.startswith(f"{TRAINING.id}: 5 seeds, mAP 0.8050, sd 0.0112 (0.8000, 0.8200, 0.7900, 0.8100, 0.8050)")
    assert "a training took 60 s (median)" in said
    assert "margin 0.05: 3 pairs (6 trainings, 360 s one after another); 20 of 20 simulated sessions" in said


def test_too_wide_a_spread_is_said() -> None:
    assert "margin 0.005: too many seeds" in text(lessons(trained([0.2, 0.9])), pairs=6)
