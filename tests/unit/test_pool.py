from __future__ import annotations

from typing import Any

import pytest
from factories import a_record, a_signal, an_environment, parts, runs_of
from hypothesis import given
from hypothesis import strategies as st

from perf.pool import by_case, common_environment, parts_by_name, pooled, pooled_value
from perf.record import Direction, Kind, Part


@pytest.mark.parametrize(
    ("kind", "direction", "expected"),
    [
        ("count-strict", "lower", 9),
        ("count-strict", "higher", 1),
        ("count-volume", "lower", 4),
        ("device", "lower", 3),
        ("wall", "lower", 72**0.25),
    ],
)
def test_the_kind_says_which_value_stands_for_the_runs(kind: Kind, direction: Direction, expected: float) -> None:
    assert pooled_value([9, 1, 2, 4], kind, direction) == pytest.approx(expected)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.sampled_from(["count-strict", "count-volume", "device", "wall"]))
def test_a_pooled_value_lies_among_the_runs(values: list[float], kind: Kind) -> None:
    value = pooled_value(values, kind, "lower")
    assert min(values) <= value * (1 + 1e-12) or value == pytest.approx(min(values))
    assert max(values) >= value * (1 - 1e-12) or value == pytest.approx(max(values))


def test_a_break_of_one_run_is_not_lost_among_runs_of_equal_totals() -> None:
    runs = [a_signal("graph_breaks", 1, parts=parts(a=1)), a_signal("graph_breaks", 1, parts=parts(b=1))]
    assert {part.name: part.value for part in pooled(runs).parts} == {"a": 1, "b": 1}
    assert pooled(runs).value == 1


def test_the_parts_of_a_volume_are_those_of_the_run_that_stands_for_all() -> None:
    runs = [a_signal("aten_ops", value, "count-volume", parts=parts(forward=value)) for value in (7, 5, 6)]
    assert pooled(runs).parts == parts(forward=6)


def test_parts_that_share_a_name_add_up_and_keep_every_line() -> None:
    named = parts_by_name(
        [Part(name="a", value=1, where=["x:1"]), Part(name="a", value=2, where=["y:2", "x:1"])],
    )
    assert named == {"a": Part(name="a", value=3, where=["x:1", "y:2"])}


@pytest.mark.parametrize(
    "other",
    [
        {"transformers": "4.56.0"},
        {"python": "3.12.1"},
        {"rfdetr": "1.11.1"},
        {"rfdetr_commit": "abc"},
        {"torch_minor": "2.13"},
        {"power_limit_w": 500.0},
    ],
)
def test_runs_of_different_settings_are_not_pooled(other: dict[str, Any]) -> None:
    records = [a_record(run=0), a_record(run=1, environment=an_environment(**other))]
    with pytest.raises(ValueError, match=r"run 0 \(session s1\) and nano-cpu-b2 run 1 .* cannot be pooled"):
        common_environment(records)


def test_another_patch_of_python_and_another_host_are_pooled() -> None:
    other = an_environment(python="3.11.12", cpu_model="Xeon", cpu_count=2)
    assert common_environment([a_record(), a_record(run=1, environment=other)]) == an_environment()


def test_one_run_does_not_count_as_two() -> None:
    with pytest.raises(ValueError, match=r"nano-cpu-b2 run 0 \(session s1\) is there twice"):
        by_case([a_record(), a_record()])


def test_records_are_grouped_by_case() -> None:
    records = runs_of(a_signal("aten_ops", 0, "count-volume"), [1, 2])
    assert by_case(records) == {"nano-cpu-b2": records}
