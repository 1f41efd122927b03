from __future__ import annotations

import pytest
from factories import a_signal, parts
from investigated import FIT, a_run, fit_signals

from perf.diagnosis import Budget
from perf.findings import Runs, budgets


def test_a_signal_over_runs_is_of_those_that_finished_and_have_it() -> None:
    records = [a_run(FIT, [a_signal("fit_step", value, "wall", "ms")], run) for run, value in enumerate((3, 1, 2))]
    records.append(a_run(FIT, [a_signal("fit_step", 9, "wall", "ms")], 3, status="failed"))
    found = Runs(FIT, records).spread("fit_step")

    assert found is not None
    assert (list(found.values), found.median, found.n, found.unit) == ([3, 1, 2], 2, 3, "ms")
    assert Runs(FIT, records).spread("getitem") is None


def test_parts_are_over_the_runs_that_have_them() -> None:
    runs = Runs(
        FIT,
        [a_run(FIT, [a_signal("x", 3, parts=parts(**some))], i) for i, some in enumerate(({"a": 1, "b": 2}, {"a": 3}))],
    )

    assert {name: list(spread.values) for name, spread in runs.parts("x").items()} == {"a": [1, 3], "b": [2]}
    assert runs.where("x") == {"a": ["rfdetr/a.py:1"], "b": ["rfdetr/b.py:1"]}


def test_a_missing_signal_is_explained_in_the_words_of_the_runs() -> None:
    failed = a_run(
        FIT, [], 0, status="failed", error="Traceback (most recent call last):\n  x\nRuntimeError: no batch\n"
    )
    blind = a_run(FIT, [], 0, notes=["the profiler saw no kernel of the GPU (no CUPTI?)", "memory not measured: X"])

    assert Runs(FIT).missing("fit_step") == "nano-b4-fit was not run"
    assert Runs(FIT, [failed]).missing("fit_step") == ("no run of nano-b4-fit finished; run 0: RuntimeError: no batch")
    assert Runs(FIT, [blind]).missing("fit_gpu_busy") == "the profiler saw no kernel of the GPU (no CUPTI?)"
    assert Runs(FIT, [blind]).missing("phase_peak_memory") == "memory not measured: X"
    assert Runs(FIT, [blind]).missing("logging_cost") == "the records of nano-b4-fit have no logging_cost"


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("rejects /tmp/tmp12/data/photos with x='y'", "rejects photos with x='y'"),
        ("at '/home/me/env/lib/python3.11/site-packages/rfdetr/a.py:3'", "at 'rfdetr/a.py:3'"),
        ("320 samples/s, rfdetr/b.py:1, https://x.org/a/b", "320 samples/s, rfdetr/b.py:1, https://x.org/a/b"),
    ],
)
def test_notes_name_no_folder_of_the_machine(note: str, told: str) -> None:
    assert Runs(FIT, [a_run(FIT, [], 0, notes=[note])]).notes == [told]


def test_the_budget_of_a_run_is_what_its_signals_say() -> None:
    [found] = budgets(Runs(FIT, [a_run(FIT, fit_signals(), 0)]))

    assert found == Budget(step=100.0, input_wait=0.4, busy=12.0, idle_waiting=0.3, sync_wait=5.0)
    [bare] = budgets(Runs(FIT, [a_run(FIT, [a_signal("fit_step", 5, "wall", "ms")], 0)]))
    assert bare == Budget(step=5.0)
    assert budgets(Runs(FIT, [a_run(FIT, [], 0)])) == []
