from __future__ import annotations

from pathlib import Path

import pytest
from investigated import traceml_files

from perf.record import Part
from perf.traceml import OURS, SUMMARY, compared, mean_parts, read_same_steps, read_summary


def rows(tmp_path: Path, **told: float) -> dict[str, bool | None]:
    traceml_files(tmp_path, **told)
    found = compared(read_summary(tmp_path / SUMMARY), read_same_steps(tmp_path / OURS))
    assert all(row.boundary for row in found if row.agrees is False)
    return {row.name: row.agrees for row in found}


@pytest.mark.parametrize(("step", "agrees"), [(100.0, True), (95.1, True), (94.9, False), (105.1, False)])
def test_steps_agree_within_five_percent(tmp_path: Path, step: float, agrees: bool) -> None:
    assert rows(tmp_path, step=step)["step"] is agrees


# 0.4 ms by our clock in a step of 100: a hundredth of the step is close enough.
@pytest.mark.parametrize(("wait", "agrees"), [(0.4, True), (1.3, True), (1.5, False)])
def test_a_small_wait_agrees_within_a_hundredth_of_the_step(tmp_path: Path, wait: float, agrees: bool) -> None:
    assert rows(tmp_path, wait=wait)["input wait"] is agrees


def test_what_only_one_measures_is_not_held_against_it(tmp_path: Path) -> None:
    found = rows(tmp_path)

    assert [name for name, agrees in found.items() if agrees is None] == [
        "host to device",
        "forward",
        "backward",
        "optimizer",
        "residual",
    ]


def test_phases_are_put_together_as_the_other_has_them(tmp_path: Path) -> None:
    traceml_files(tmp_path)
    found = {row.name: row.ours for row in compared(read_summary(tmp_path / SUMMARY), read_same_steps(tmp_path / OURS))}

    assert found["optimizer"] == 6.0  # with EMA
    assert found["residual"] == 23.0  # criterion, matching, logging, other


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step_time": {"global": {"average": null}}}'])
def test_what_is_no_summary_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SUMMARY).write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=SUMMARY):
        read_summary(tmp_path / SUMMARY)


def test_phases_are_means_over_updates_and_a_phase_that_was_not_there_took_no_time() -> None:
    assert mean_parts([{"a": 0.001}, {"a": 0.003, "b": 0.002}]) == [
        Part(name="a", value=2.0),
        Part(name="b", value=1.0),
    ]
