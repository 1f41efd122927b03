from __future__ import annotations

import pytest
from factories import H200, an_environment

from perf.cells import Cell
from perf.levers import Lever, Machine, case_of
from perf.recommend import advise
from perf.report.recommendations import document
from perf.report.sweep import advice_text, cells_table, plan_text, rows
from perf.sweep_files import Stored
from perf.sweep_plan import Grid, foreseen
from perf.sweep_time import Estimate


def cell(rate: float, batch: int, lever: Lever = "eager", memory: float = 0.2, **changes: object) -> Cell:
    case = case_of("nano", "gpu", "bf16", lever, batch)
    found = Cell(case, "measured", rate=rate, runs=1, memory=memory, first_step=2.0, record=f"s/{case.id}")
    return found._replace(**changes)  # type: ignore[arg-type]


CELLS = [
    cell(100, 4),
    cell(300, 64),
    cell(320, 128, memory=0.95),
    cell(400, 64, "compile", first_step=90.0),
    cell(450, 128, "compile", memory=0.97),
    cell(900, 64, "reduce-overhead"),
    Cell(case_of("nano", "gpu", "bf16", "eager", 256), "out of memory", asked=2.0**30),
]


def test_each_lever_has_a_row_with_the_headroom_and_the_recommended_cell_is_one() -> None:
    found = {(row[4], row[5]): (row[2], row[9]) for row in rows(advise(CELLS), H200)}

    assert found == {
        ("no", "no"): ("64", "measured: s/nano-b64-bf16-throughput"),
        ("yes", "no"): ("64", "measured, recommended: s/nano-b64-bf16-compile-throughput"),
        ("no", "yes"): ("-", "not measured"),
        ("yes", "yes"): ("-", "not measured"),
        ("reduce-overhead", "by Inductor"): (
            "64",
            "measured: s/nano-b64-bf16-compile-reduce-overhead-throughput",
        ),
    }


def test_a_lever_that_was_measured_without_headroom_only_is_shown_nonetheless() -> None:
    [advice] = advise([cell(100, 4), cell(200, 64, "graphs", memory=0.95)])

    assert [one.case.batch_size for one in advice.levers] == [4, 64]


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        ({}, "workers: the loader was not measured here with nano; give"),
        ({2: 100.0, 8: 500.0}, "workers: 8 yield 500 images/s\n"),
        ({2: 100.0, 8: 300.0}, "workers: 8 yield 300 images/s: input is the limit, with any number that was measured"),
    ],
)
def test_workers_are_told_as_they_were_measured(loader: dict[int, float], told: str) -> None:
    [advice] = advise(CELLS, loader={"nano": loader})

    assert told in advice_text(advice, "H200", 10_000, 0.1) + "\n"


@pytest.mark.parametrize(("first", "told"), [(90.0, "after 11 epochs of 10000"), (9.0, "after 0.84 epochs of 10000")])
def test_payback_is_told_in_epochs(first: float, told: str) -> None:
    [advice] = advise([cell(300, 64), cell(400, 64, "compile", first_step=first)], images=10_000)

    assert told in advice_text(advice, "H200", 10_000, 0.1)


BY_ITSELF = "no batch size or lever by itself is 5 % faster than batch 4, bf16, eager"
NOT_MEASURED = "what to change first: not measured (it needs eager at batch 4 beside other batch sizes or levers)"
OTHER_BATCH = "each against batch 64, bf16, eager: no eager cell of batch 4 was measured"


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([cell(100, 4), cell(104, 8)], BY_ITSELF),
        # Each little by itself, and much together.
        ([cell(100, 4), cell(102, 4, "compile"), cell(103, 64), cell(150, 64, "compile")], BY_ITSELF),
        # What was held against nothing is not said to be worth nothing.
        ([cell(100, 4)], NOT_MEASURED),
        ([cell(300, 64, "compile")], NOT_MEASURED),
        ([cell(100, 4), cell(300, 64, "compile")], NOT_MEASURED),
        ([cell(100, 64), cell(130, 64, "compile")], OTHER_BATCH),
    ],
)
def test_what_to_change_is_told_of_what_was_compared(cells: list[Cell], told: str) -> None:
    [advice] = advise(cells)

    assert f"  {told}\n" in advice_text(advice, "H200", 10_000, 0.1)


def test_changes_against_rfdetr_s_default_batch_name_it_not() -> None:
    told = advice_text(advise(CELLS)[0], "H200", 10_000, 0.1)

    assert "change first: batch_size=64, 3.00 times as fast\n  workers" in told


def test_a_lever_that_nobody_can_set_is_not_said_to_leave_no_memory() -> None:
    [advice] = advise([cell(900, 64, "reduce-overhead")])

    assert advice_text(advice, "H200", 10_000, 0.1).endswith(
        "nothing to recommend: no cell was measured that keeps 10 % of the memory free and that rfdetr has keywords for"
    )


def test_advice_of_the_reduced_model_says_that_it_is() -> None:
    reduced = Cell(case_of("nano", "cpu", "fp32", "eager", 4), "measured", rate=3, runs=1)
    [advice] = advise([reduced])

    assert advice_text(advice, "EPYC", 10, 0.1).startswith("nano on EPYC, a reduced model: it says nothing of the real")


def test_the_document_has_every_cell_and_names_its_device_and_configs() -> None:
    plain = [{**one._asdict(), "case": one.case.model_dump(exclude_defaults=True)} for one in CELLS]
    sweep = Stored(environment=H200, cells=plain, unsupported={"nano-b1-fp8-throughput": "no engine"})

    told = document([(sweep, advise(sweep.found))], 10_000, 0.1)

    assert "\n## NVIDIA H200: nano\n" in told
    assert "model = RFDETRNano(compile=True)\nmodel.train(\n    dataset_dir=...,\n    batch_size=64,\n" in told
    assert "out of memory, asked for 1024 MiB" in told
    assert "unsupported here: nano fp8 eager: no engine" in told
    assert an_environment().rfdetr_source in told


def test_cells_that_were_not_run_say_why() -> None:
    case = case_of("nano", "gpu", "bf16", "graphs", 8)

    assert "not run: takes about 30 s, 9 s of the budget left" in cells_table(
        [Cell(case, "not run", "takes about 30 s, 9 s of the budget left")], {}
    )


def test_the_plan_tells_what_it_takes_at_most() -> None:
    grid = Grid(configs=("nano",), lane="gpu", precisions=("bf16",), levers=("eager", "compile"), batch_sizes=(4, 8))
    cases = foreseen(grid, Machine("gpu", (1, 11)), {}, telling=False)

    known = Estimate("gpu", {"eager": [30.0]})
    assert plan_text(cases, 0, Estimate("gpu", {}), 2, None, refined=True).splitlines() == [
        "plan: 4 cells at most",
        "  eager: 2 cells, bf16, batch 4, 8: 3 min",
        "  compile: 2 cells, bf16, batch 4, 8: 5 min",
        "  at most 8 min (by rule of thumb: nothing was measured here yet); a series ends where memory runs out",
        "  up to two sizes a series between two doublings come on top, where its rate saturates",
    ]
    assert plan_text(cases, 1, known, 2, 90.0, refined=False).splitlines() == [
        "plan: about 4 cells, 1 measured already",
        "  eager: 2 cells, bf16, batch 4, 8: 2 min",
        "  compile: 2 cells, bf16, batch 4, 8: 4 min",
        "  about 6 min (as cells took so far); a series ends where memory runs out",
        "  budget 90 s: the most telling cells first (docs/sweep.md), each only if it fits",
    ]
