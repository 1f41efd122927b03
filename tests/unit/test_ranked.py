from __future__ import annotations

from collections.abc import Sequence

import pytest
from factories import a_record, a_signal, an_environment, parts

from perf.ranked import different_machines, merged, rate
from perf.record import Part, Signal

BREAKS = a_signal("graph_breaks", 2, parts=parts(decoder=2))


def signal(name: str, *ranks: Signal) -> Signal:
    [found] = [found for found in merged([[own] for own in ranks]) if found.name == name]
    return found


def own_times(*ranks: Sequence[float]) -> list[list[Signal]]:
    return [[a_signal("own_time", sorted(t)[len(t) // 2], "info", "ms", samples=list(t))] for t in ranks]


def test_counts_are_added_up_and_their_parts_say_whose_they_are() -> None:
    found = signal("graph_breaks", BREAKS, BREAKS)

    assert found.value == 4
    assert [(part.name, part.value) for part in found.parts] == [("rank 0: decoder", 2), ("rank 1: decoder", 2)]
    assert found.parts[1].where == ["rfdetr/decoder.py:1"]


def test_a_count_without_parts_is_split_by_rank_too() -> None:
    found = signal("graphs", a_signal("graphs", 7), a_signal("graphs", 8))
    assert [(part.name, part.value) for part in found.parts] == [("rank 0", 7), ("rank 1", 8)]


def test_the_worst_rank_stands_for_what_is_no_count() -> None:
    slow, fast = (a_signal("step_time", ms, "wall", "ms", samples=[ms]) for ms in (9.0, 5.0))
    found = signal("step_time", fast, slow)
    assert (found.value, found.samples) == (9, [9])
    assert [(part.name, part.value) for part in found.parts] == [("rank 0", 5), ("rank 1", 9)]

    frames = [a_signal("model_frames", value, "info", direction="higher") for value in (1, 0)]
    assert signal("model_frames", *frames).value == 0  # rank 1 ran eager, and so the case did not compile


def test_what_is_hidden_is_told_of_the_rank_whose_time_is_told() -> None:
    ranks = [
        [
            a_signal("collective_time", ms, "info", "ms"),
            a_signal("collective_overlap", share, "info", direction="higher"),
        ]
        for ms, share in ((4.0, 2.0), (6.0, 8.0))
    ]
    found = {one.name: one.value for one in merged(ranks)}
    assert (found["collective_time"], found["collective_overlap"]) == (6, 8)


def test_what_a_time_consists_of_is_kept_of_each_rank() -> None:
    busy = [a_signal("gpu_busy", ms, "device", "ms", parts=[Part(name="forward", value=ms)]) for ms in (2.0, 3.0)]
    found = signal("gpu_busy", *busy)
    assert found.value == 3
    assert [part.name for part in found.parts] == ["rank 0", "rank 1", "rank 0: forward", "rank 1: forward"]


def test_ranks_that_did_the_same_work_differ_in_nothing() -> None:
    found = signal("rank_mismatches", BREAKS, BREAKS, BREAKS)
    assert (found.value, found.kind, found.parts) == (0, "count-strict", [])


def test_a_rank_that_recompiles_alone_is_named() -> None:
    none, one = a_signal("recompiles", 0), a_signal("recompiles", 1, parts=[Part(name="f: dtype", value=1)])

    for ranks, odd in (((none, one), 1), ((one, none), 0), ((none, none, one), 2), ((one, none, none), 0)):
        found = signal("rank_mismatches", *ranks)
        assert [part.name for part in found.parts] == [f"rank {odd}: recompiles f: dtype: 1, the others 0"]


def test_a_rank_that_does_less_than_most_is_named() -> None:
    none = a_signal("graph_breaks", 0)
    found = signal("rank_mismatches", BREAKS, none, BREAKS)
    assert [part.name for part in found.parts] == ["rank 1: graph_breaks decoder: 0, the others 2"]


def test_other_graphs_of_as_many_nodes_are_a_mismatch() -> None:
    one, other = (a_signal("graph_nodes", 5, "info", parts=[Part(name=name, value=5)]) for name in ("a1", "b2"))
    assert [part.name for part in signal("rank_mismatches", one, other).parts] == [
        "rank 0: graph_nodes a1: 5, the others 0",
        "rank 1: graph_nodes b2: 5, the others 0",
    ]


def test_calls_may_differ_since_rank_0_alone_logs() -> None:
    calls = [a_signal("python_calls", value, "count-volume") for value in (110, 100)]
    assert signal("rank_mismatches", *calls).value == 0


@pytest.mark.parametrize(
    ("ranks", "slow"),
    [
        (([10, 11, 10], [10, 10, 12]), []),
        (([10, 11, 10], [17, 18, 16]), ["rank 1"]),
        (([10, 11, 10], [17, 11, 16]), []),  # not in every step
        (([17, 18], [10, 10]), []),  # too few steps to tell
        (([10, 11, 10], [10, 10, 11], [30, 30, 30], [10, 10, 10]), ["rank 2"]),
    ],
)
def test_a_rank_is_slow_that_takes_longer_by_itself_in_every_step(
    ranks: Sequence[Sequence[float]], slow: list[str]
) -> None:
    found = {found.name: found for found in merged(own_times(*ranks))}
    assert [part.name for part in found["slow_ranks"].parts] == slow
    assert found["slow_ranks"].value == len(slow)


def test_imbalance_is_told_of_every_rank() -> None:
    found = {found.name: found for found in merged(own_times([10, 10, 10], [15, 15, 15]))}
    assert found["rank_imbalance"].value == pytest.approx(50)
    assert [part.value for part in found["rank_imbalance"].parts] == pytest.approx([-100 / 3, 50])


def test_one_rank_has_nobody_to_be_held_against() -> None:
    assert {found.name for found in merged(own_times([10, 10, 10]))} == {"own_time", "rank_mismatches"}


def test_a_rank_on_another_gpu_is_named() -> None:
    here = a_record()
    there = a_record(environment=an_environment(device="nvidia-h200"))
    assert different_machines([here, here]) == []
    assert different_machines([here, there]) == ["rank 1: device nvidia-h200, rank 0 cpu"]


def test_the_rate_is_of_all_ranks_together() -> None:
    found = rate(a_signal("step_time", 500, "wall", "ms", samples=[400, 500]), images=8)
    assert (found.value, found.samples, found.direction, found.unit) == (16, [20, 16], "higher", "images/s")
