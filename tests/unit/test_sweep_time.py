from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from factories import a_record, a_signal

from perf.levers import Lever, case_of
from perf.record import Record
from perf.sweep_time import Estimate, estimate_of, times_of

EAGER = case_of("nano", "gpu", "bf16", "eager", 4)
COMPILED = case_of("nano", "gpu", "bf16", "compile", 4)


@pytest.mark.parametrize(
    ("known", "warm", "lever", "seconds"),
    [
        ({}, True, "eager", 45),
        ({}, True, "compile", 75),
        ({}, False, "compile", 195),
        # Symbolic shapes take twenty minutes where nothing is cached.
        ({}, False, "both", 1208),
        # What eager took here is the base of the others.
        ({"eager": [20.0]}, True, "eager", 20),
        ({"eager": [20.0]}, True, "compile", 50),
        # As long as most took, or the last, if that was longer: larger batches take longer.
        ({"eager": [20.0, 21.0, 40.0]}, True, "eager", 40),
        ({"compile": [170.0, 50.0, 60.0]}, True, "compile", 60),
    ],
)
def test_a_cell_takes_what_those_before_took(
    known: dict[str, list[float]], warm: bool, lever: Lever, seconds: float
) -> None:
    assert Estimate("gpu", known, warm).seconds(case_of("nano", "gpu", "bf16", lever, 4), lever) == seconds


def test_times_are_those_of_records_by_lever_in_the_order_of_time() -> None:
    def taken(run: int, seconds: float, **changes: object) -> Record:
        started = datetime(2026, 1, 1, run, tzinfo=UTC)
        values: dict[str, object] = {"started": started, "finished": started + timedelta(seconds=seconds)}
        return a_record([], COMPILED if run else EAGER, run, **(values | changes))

    records = [taken(2, 30), taken(0, 10), taken(1, 90), taken(3, 1, finished=None)]

    # Five seconds more for starting and ending the process.
    assert times_of(records) == {"eager": [15], "compile": [95, 35]}


@pytest.mark.parametrize(
    ("hits", "misses", "warm", "found"),
    [
        (None, 16, True, False),
        (3, 13, True, False),
        (15, 1, True, True),
        (16, None, True, True),
        (16, None, False, False),
    ],
)
def test_a_cache_that_a_cell_found_empty_is_cold_for_the_levers_to_come(
    hits: float | None, misses: float | None, warm: bool, found: bool
) -> None:
    told = [("hits", hits), ("misses", misses)]
    counts = [a_signal(f"inductor_cache_{what}", value, "info") for what, value in told if value is not None]
    estimate = estimate_of("gpu", [a_record([], EAGER), a_record(counts, COMPILED)], warm=warm)

    assert estimate.warm is found
    both = case_of("nano", "gpu", "bf16", "both", 4)
    assert estimate.seconds(both, "both") == (75 if found else 1208)
