from __future__ import annotations

import pytest

from perf.diagnosis import Budget, Kind, Shares, diagnose, kind_of, shares


@pytest.mark.parametrize(
    ("budget", "workers", "kind"),
    [
        # The H200's Nano: the GPU has little to do, so that the host cannot have waited for it for long.
        (Budget(100, 0.5, busy=12), 2, "host-bound"),
        (Budget(100, 0.5, busy=12, sync_wait=11), 2, "host-bound"),
        # A timer on syncs that says more than the GPU computed cannot make the host idle.
        (Budget(100, 0.5, busy=12, sync_wait=60), 2, "host-bound"),
        (Budget(100, 0.5, busy=91, sync_wait=80), 2, "GPU-bound"),
        # While the GPU computes, a wait for input costs nothing.
        (Budget(100, 40, busy=85), 2, "GPU-bound"),
        (Budget(100, 30, busy=30), 2, "input-bound"),
        (Budget(100, 30, busy=30, idle_waiting=4, sync_wait=3), 2, "mixed"),
        # Under the profiler the host is so slow that the loader keeps up: without it the GPU, busy for 12, still idled.
        (Budget(100, 30, busy=12, idle_waiting=0, sync_wait=3), 2, "input-bound"),
        # The same wait without workers is a part of the loop's own work, unless it is most of it.
        (Budget(100, 30, busy=10, sync_wait=0), 0, "mixed"),
        (Budget(100, 60, busy=10), 0, "input-bound"),
        # Host and GPU take turns: the GPU idles for 60 %, and the host waits for the other 40.
        (Budget(100, 0, busy=40, sync_wait=40), 2, "sync-bound"),
        (Budget(100, 0, busy=40, sync_wait=5), 2, "host-bound"),
        (Budget(100, 0, busy=40), 2, "unknown"),
        (Budget(100, 9, busy=70, sync_wait=15), 2, "mixed"),
        # Kernels side by side on two streams.
        (Budget(100, 0, busy=130), 2, "GPU-bound"),
    ],
)
def test_what_sets_the_pace(budget: Budget, workers: int, kind: Kind) -> None:
    found = diagnose([budget], workers)

    assert found.kind == kind
    assert found.sentence.endswith(".")
    assert (found.agree, found.runs) == (1, 1)


def test_the_thresholds_are_inclusive() -> None:
    assert kind_of(Shares(input=0.0, busy=0.8, waited=None, host=0.2), 2) == "GPU-bound"
    assert kind_of(Shares(input=0.1, busy=0.1, waited=None, host=0.8), 2) == "input-bound"
    assert kind_of(Shares(input=0.0, busy=0.2, waited=None, host=0.8), 2) == "host-bound"


def test_shares_of_a_step_never_exceed_it() -> None:
    found = shares(Budget(100, 50, busy=80, sync_wait=95))

    assert found is not None
    assert (found.busy, found.waited, found.host) == (0.8, 0.8, 0.0)
    assert found.input == pytest.approx(0.2)


def test_the_ceiling_of_a_host_bound_step_is_what_the_gpu_leaves() -> None:
    found = diagnose([Budget(100, 0, busy=12.5, sync_wait=5)], 2)

    assert (
        found.ceilings[0].text
        == "GPU busy for 12.5 % of a step: at most 8.0x from removing all host time, as measured here."
    )
    assert {one.removed: pytest.approx(one.times, rel=1e-6) for one in found.ceilings} == {
        "removing all host time": 8.0,
        "never waiting in a synchronizing call": 1 / 0.95,
    }


def test_ceilings_that_tell_nothing_more_are_left_out() -> None:
    apart = diagnose([Budget(100, 9, busy=11, sync_wait=5)], 2)
    alike = diagnose([Budget(141, 0.12, busy=16.8, sync_wait=1.3)], 2)

    assert [(one.removed, round(one.times, 2)) for one in apart.ceilings] == [
        ("removing all host time", 5.0),
        ("never waiting for input", 1.1),
        ("never waiting in a synchronizing call", 1.05),
        ("keeping the GPU busy all the time", 9.09),
    ]
    # On an H200, where the others were 1.00x, 1.01x and 8.4x.
    assert [(one.removed, round(one.times, 1)) for one in alike.ceilings] == [("removing all host time", 8.3)]


def test_the_diagnosis_and_its_ceiling_are_one_sentence_with_the_share_in_it_once() -> None:
    assert diagnose([Budget(100, 2, busy=85)], 2).told == (
        "GPU-bound: the GPU is busy for 85 % of a step: at most 1.18x from keeping the GPU busy all the time, "
        "as measured here."
    )
    assert diagnose([], 2).told == "Unknown: no run of the training loop finished."


def test_the_ceiling_of_an_input_bound_step_is_without_the_wait_alone() -> None:
    found = diagnose([Budget(100, 50, busy=12)], 2)

    assert (
        found.ceilings[0].text
        == "Waiting for input 50 % of a step: at most 2.0x from never waiting for input, as measured here."
    )


def test_runs_that_come_to_another_answer_are_counted() -> None:
    runs = [Budget(100, 0, busy=79, sync_wait=10), Budget(100, 0, busy=81), Budget(100, 0, busy=82)]
    found = diagnose(runs, 2)

    assert (found.kind, found.agree, found.runs) == ("GPU-bound", 2, 3)
    assert found.evidence[0] == "GPU busy: 81 % (79 % to 82 %, 3 runs) of a step"
    assert found.evidence[-1] == "host waiting for the GPU in synchronizing calls: not measured"


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        ([], "Unknown: no run of the training loop finished."),
        ([Budget(100, 30)], "Unknown: how long the GPU is busy was not measured in every run."),
        ([Budget(100, busy=30)], "Unknown: how long the loop waits for input was not measured in every run."),
        ([Budget(0, 0, busy=0)], "Unknown: how long a step takes was not measured in every run."),
    ],
)
def test_what_was_not_measured_is_named(budgets: list[Budget], why: str) -> None:
    found = diagnose(budgets, 2)

    assert (found.kind, found.sentence, found.ceilings) == ("unknown", why, [])


def test_without_busy_a_wait_for_input_is_told_but_decides_nothing() -> None:
    assert diagnose([Budget(100, 30)], 2).evidence == [
        "waiting for input: 30 % (1 run) of a step; whether the GPU was idle meanwhile is not known"
    ]


def test_a_cpu_tells_of_input_only() -> None:
    waiting = diagnose([Budget(100, 25)], 2, has_gpu=False)
    working = diagnose([Budget(100, 2)], 2, has_gpu=False)

    assert waiting.kind == "input-bound"
    assert (
        waiting.ceilings[0].text
        == "Waiting for input 25 % of a step: at most 1.33x from never waiting for input, as measured here."
    )
    assert working.kind == "unknown"
    assert "there is no GPU, so that host and GPU cannot be told apart" in working.sentence
    assert diagnose([Budget(100)], 2, has_gpu=False).kind == "unknown"
