from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from perf.probes.parts import MAX_LINES, Tally
from perf.record import Part

NAMES = st.sampled_from(["cdist", "topk", "stack"])
LINES = st.none() | st.sampled_from(["a.py:1", "a.py:2", "b.py:1"])


def a_tally(*added: tuple[str, str | None, int]) -> Tally:
    tally = Tally()
    for name, line, amount in added:
        tally.add(name, line, amount)
    return tally


def test_an_empty_tally_has_no_parts() -> None:
    assert Tally().total == 0
    assert Tally().parts() == []


def test_parts_are_largest_first_with_their_lines_most_frequent_first() -> None:
    tally = a_tally(("topk", "a.py:1", 1), ("cdist", "a.py:7", 1), ("cdist", "a.py:3", 2), ("cdist", None, 4))

    assert tally.total == 8
    assert tally.parts() == [
        Part(name="cdist", value=7, where=["a.py:3", "a.py:7"]),
        Part(name="topk", value=1, where=["a.py:1"]),
    ]


def test_no_more_lines_are_kept_than_can_be_read() -> None:
    tally = a_tally(*(("cdist", f"a.py:{line:02}", 100 - line) for line in range(MAX_LINES + 5)))

    assert tally.where("cdist") == [f"a.py:{line:02}" for line in range(MAX_LINES)]


def test_asking_for_an_unknown_name_adds_nothing() -> None:
    tally = a_tally(("cdist", "a.py:1", 1))

    assert tally.where("topk") == []
    assert [part.name for part in tally.parts()] == ["cdist"]
    assert list(tally.lines) == ["cdist"]


@given(st.lists(st.tuples(NAMES, LINES, st.integers(1, 9))), st.randoms())
def test_parts_sum_to_the_total_and_do_not_depend_on_the_order(
    added: list[tuple[str, str | None, int]], random: Random
) -> None:
    parts = a_tally(*added).parts()

    assert sum(part.value for part in parts) == sum(amount for _, _, amount in added)
    random.shuffle(added)
    assert a_tally(*added).parts() == parts
