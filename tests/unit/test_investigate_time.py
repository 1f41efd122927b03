from __future__ import annotations

import pytest
from factories import CPU_COMPILED, a_record, a_signal

from perf.investigate_time import Room
from perf.record import Record


def compiled(misses: int) -> Record:
    first, missed = a_signal("first_step", 160, "info", "s"), a_signal("inductor_cache_misses", misses, "info")
    return a_record([first, missed], CPU_COMPILED)


def test_without_a_budget_there_is_always_room() -> None:
    room = Room(None)
    room.take("a", 1e9)
    assert room.has("a")


def test_a_first_round_always_has_room_and_another_what_the_last_one_took() -> None:
    room = Room(100)
    room.take("a", 60)
    assert not room.has("a")
    assert room.has("b")
    room.take("b", 20)
    assert room.has("b")  # 20 s are left


def test_what_is_no_round_takes_room_too() -> None:
    room = Room(100)
    room.take("a", 40)
    assert room.has("a")
    room.spend(25)
    assert not room.has("a")


@pytest.mark.parametrize(("misses", "again"), [(16, True), (0, False)])
def test_a_cold_compile_does_not_count(misses: int, again: bool) -> None:
    room = Room(100)
    room.take("a", 210, [compiled(misses)])
    assert room.has("a") == again


def test_with_a_candidate_both_sides_may_compile_cold() -> None:
    room = Room(100)
    room.take("a", 2 * 210, [compiled(16), compiled(16)])
    assert room.has("a") is False  # two runs of 50 s took all of it
    room = Room(250)
    room.take("a", 2 * 210, [compiled(16), None, compiled(16)])
    assert room.has("a")
