from __future__ import annotations

import pytest
from factories import a_record, a_signal

from perf.case import Case, Precision
from perf.cells import Cell
from perf.levers import Lever, case_of
from perf.recommend import (
    Change,
    advise,
    best_loader_rates,
    check,
    model_arguments,
    payback,
    train_arguments,
    workers_for,
)
from perf.report.sweep import check_text


def cell(
    rate: float,
    batch: int = 4,
    lever: Lever = "eager",
    precision: Precision = "bf16",
    *,
    memory: float | None = 0.1,
    first_step: float | None = 2.0,
    busy: float | None = 0.1,
    config: str = "nano",
) -> Cell:
    case = case_of(config, "gpu", precision, lever, batch)
    return Cell(case, "measured", rate=rate, runs=1, memory=memory, first_step=first_step, busy=busy)


@pytest.mark.parametrize(
    ("cells", "fastest", "smallest"),
    [
        ([cell(100)], 4, 4),
        ([cell(100), cell(200, 8), cell(203, 16)], 16, 8),
        ([cell(100), cell(200, 8), cell(210, 16)], 16, 16),
        # Of two that are equally fast the smaller batch.
        ([cell(200, 8), cell(200, 16)], 8, 8),
        # What leaves too little memory is not recommended, however fast.
        ([cell(100), cell(300, 128, memory=0.91)], 4, 4),
        ([cell(100), cell(300, 128, memory=0.9)], 128, 128),
        ([cell(100, memory=None), cell(90, 2)], 4, 4),
        # Nor what rfdetr has no keyword for, nor what did not do as it was asked.
        ([cell(100), cell(300, 8, "reduce-overhead")], 4, 4),
        ([cell(100), cell(300, 8, "graphs")._replace(outcome="fell back")], 4, 4),
    ],
)
def test_the_fastest_with_headroom_and_the_smallest_batch_near_it(
    cells: list[Cell], fastest: int, smallest: int
) -> None:
    [advice] = advise(cells, headroom=0.1)

    assert advice.fastest
    assert advice.smallest
    assert (advice.fastest.case.batch_size, advice.smallest.case.batch_size) == (fastest, smallest)


def test_nothing_is_recommended_where_nothing_was_measured() -> None:
    [advice] = advise([Cell(cell(1).case, "out of memory", asked=2.0**20)])

    assert advice.fastest is None
    assert (advice.payback, list(advice.changes), advice.workers) == (None, [], None)


def test_each_config_has_its_own_advice() -> None:
    found = advise([cell(100), cell(50, config="medium")])

    assert [(one.config, one.fastest and one.fastest.rate) for one in found] == [("nano", 100), ("medium", 50)]


def test_compile_pays_back_when_the_epochs_have_saved_what_its_first_step_cost() -> None:
    eager, compiled = cell(100, first_step=2), cell(125, lever="compile", first_step=22)

    found = payback(compiled, [eager, compiled], images=10_000)

    # 100 s an epoch against 80 s: 20 s saved an epoch, 20 s more for the first step.
    assert found
    assert found.epochs == pytest.approx(1.0)


def test_compile_that_is_no_faster_never_pays_back_and_without_its_twin_nothing_is_told() -> None:
    eager, slow = cell(100), cell(99, lever="compile", first_step=60)

    found = payback(slow, [eager, slow], 10_000)

    assert found
    assert found.epochs is None
    assert payback(cell(500, 64, "compile"), [eager], 10_000) is None
    assert payback(eager, [eager, cell(500, 64, "compile")], 10_000) is None


def test_payback_is_told_of_the_fastest_compiled_pair_where_eager_is_recommended() -> None:
    cells = [cell(100), cell(99, lever="compile"), cell(200, 8), cell(150, 8, "compile")]

    found = payback(cells[2], cells, 10_000)

    assert found
    assert found.cell.case.batch_size == 8


def test_payback_is_told_of_a_pair_with_the_headroom_where_one_has_it() -> None:
    small = [cell(100), cell(99, lever="compile")]
    full = [cell(200, 128, memory=0.95), cell(300, 128, "compile", memory=0.92)]

    def told(cells: list[Cell], headroom: float = 0.1) -> int | None:
        [advice] = advise(cells, headroom=headroom)
        return advice.payback and advice.payback.cell.case.batch_size

    assert told([*small, *full]) == 4
    assert told([*small, *full], headroom=0.05) == 128
    assert told([small[0], *full]) == 128


def test_payback_is_that_of_the_recommended_lever_where_a_pair_has_it() -> None:
    cells = [cell(100), cell(125, lever="compile", first_step=22), cell(130, lever="both", first_step=90)]

    found = payback(cell(500, 96, "compile"), cells, 10_000)

    assert found
    assert found.cell.lever == "compile"
    assert found.epochs == pytest.approx(1.0)


def test_payback_is_that_of_another_pair_where_the_recommended_cell_has_no_twin_and_never_of_reduce_overhead() -> None:
    cells = [cell(100), cell(125, lever="compile", first_step=22), cell(500, 96, "compile")]
    cells.append(cell(150, lever="reduce-overhead"))

    found = payback(cells[2], cells, 10_000)

    assert found
    assert (found.cell.lever, found.cell.case.batch_size) == ("compile", 4)
    assert payback(cells[0], [cells[0], cells[3]], 10_000) is None


def changed(cells: list[Cell], loader: dict[int, float] | None = None) -> list[tuple[str, float]]:
    [advice] = advise(cells, loader={"nano": loader or {}})
    return [(one.what, round(one.gain, 2)) for one in advice.changes]


def test_what_to_change_first_is_what_gains_most_over_rfdetr_s_defaults_by_itself() -> None:
    cells = [cell(100), cell(300, 64), cell(140, lever="compile"), cell(102, lever="graphs"), cell(500, 64, "both")]

    assert changed(cells) == [("batch_size=64", 3.0), ("compile=True", 1.4)]


def test_what_nobody_can_set_and_what_leaves_no_memory_is_no_change_to_make() -> None:
    cells = [cell(100), cell(200, lever="reduce-overhead"), cell(300, 64), cell(400, 128, memory=0.95)]

    assert changed(cells) == [("batch_size=64", 3.0)]


def test_workers_come_first_where_the_loader_cannot_feed_the_default_step() -> None:
    cells = [cell(100), cell(300, 64)]

    assert changed(cells, {2: 50.0, 8: 200.0}) == [("num_workers=8", 2.0), ("batch_size=64", 3.0)]
    assert changed(cells, {2: 150.0}) == [("batch_size=64", 3.0)]
    # Nor where it was measured with the default alone: that more of them yield more nobody knows.
    assert changed(cells, {2: 50.0}) == [("batch_size=64", 3.0)]
    # 5 % are within what one loader's seconds differ by.
    assert changed(cells, {2: 95.0, 8: 200.0}) == [("batch_size=64", 3.0)]


def test_nothing_is_worth_changing_where_all_is_within_5_percent() -> None:
    assert changed([cell(100), cell(104, 8), cell(104, lever="compile")]) == []


@pytest.mark.parametrize(
    ("rate", "loader", "workers"),
    [
        (100, {0: 500.0}, None),
        (100, {}, None),
        (100, {2: 150.0, 8: 600.0}, 2),
        (300, {2: 150.0, 8: 600.0}, 8),
        (300, {2: 150.0, 4: 310.0, 8: 600.0}, 8),
        # None of those measured feeds it: no other number is made up.
        (900, {2: 150.0, 8: 600.0, 16: 600.0}, 8),
    ],
)
def test_workers_are_the_fewest_measured_that_feed_it_else_those_that_yield_most(
    rate: float, loader: dict[int, float], workers: int | None
) -> None:
    assert workers_for(rate, loader) == workers


def test_loader_rates_are_read_from_signals_of_samples_per_second() -> None:
    signals = [a_signal("loader_rate_w8", 640, "wall", "samples/s"), a_signal("getitem", 6, "wall", "ms")]

    assert best_loader_rates([a_record(signals), a_record(signals, status="failed")]) == {"nano": {8: 640}}


def test_what_a_loader_of_another_config_yields_is_not_taken_for_this_one_s() -> None:
    found = advise([cell(100), cell(50, config="medium")], loader={"nano": {2: 50.0, 8: 640.0}})

    assert [(one.config, one.workers) for one in found] == [("nano", 8), ("medium", None)]


@pytest.mark.parametrize(
    ("partial", "holds", "share"),
    [
        ([cell(95, 8)], True, 0.98),  # 95 in its own session, 98 in the exhaustive one
        ([cell(200, 4)], False, 0.5),
        ([cell(100, 16)], True, 1.0),
        ([cell(99, 12)], True, 0.99),  # a size that the exhaustive one has not
    ],
)
def test_a_recommendation_is_held_against_the_best_of_an_exhaustive_sweep(
    partial: list[Cell], holds: bool, share: float
) -> None:
    exhaustive = [cell(50, 4), cell(98, 8), cell(100, 16), cell(400, 32, memory=0.99)]

    [found] = check(partial, exhaustive)

    assert found.holds == holds
    assert found.share == pytest.approx(share)


def test_a_recommendation_that_does_not_work_in_the_exhaustive_sweep_does_not_hold() -> None:
    partial, exhaustive = [cell(200, 8, "graphs")], [cell(100), cell(150, 8, "graphs")._replace(outcome="fell back")]

    assert [found.share for found in check(partial, exhaustive)] == [0]


def test_a_config_of_which_nothing_is_recommended_does_not_hold_beside_one_that_does() -> None:
    lost = cell(50, config="medium")._replace(outcome="raised")
    exhaustive = [cell(100), cell(50, config="medium")]

    found = check([cell(100), lost], exhaustive)

    assert [(one.recommended, one.holds) for one in found] == [(cell(100), True), (None, False)]
    assert check_text(found).endswith(
        "medium: nothing is recommended, which has 0.0 % of the best rate (batch 4, bf16, eager): NOT within 2 %"
    )
    # What was not swept at all is not held against anything.
    assert len(check([cell(100)], exhaustive)) == 1


@pytest.mark.parametrize(
    ("case", "model", "train"),
    [
        (
            case_of("nano", "gpu", "bf16", "both", 64),
            {"compile": True, "cuda_graphs": True},
            {"batch_size": 64, "grad_accum_steps": 1, "amp_dtype": "bf16", "num_workers": 8, "multi_scale": False},
        ),
        (
            case_of("nano", "gpu", "fp32", "eager", 4),
            {},
            {"batch_size": 4, "grad_accum_steps": 1, "amp_dtype": None, "num_workers": 8, "multi_scale": False},
        ),
    ],
)
def test_the_keywords_are_those_of_rfdetr(case: Case, model: dict[str, object], train: dict[str, object]) -> None:
    assert model_arguments(case) == model
    assert train_arguments(case, 8) == train


@pytest.mark.filterwarnings("default")  # random weights are random
def test_rfdetr_takes_the_keywords() -> None:
    config = pytest.importorskip("rfdetr.config")
    case = case_of("nano", "gpu", "fp8", "graphs", 64)

    model = config.RFDETRNanoConfig(**model_arguments(case), pretrain_weights=None)
    train = config.TrainConfig(**train_arguments(case, 3), dataset_dir=".", output_dir=".")

    assert model.cuda_graphs
    assert (train.batch_size, train.amp_dtype, train.num_workers) == (64, "fp8", 3)


def test_a_change_names_its_cells() -> None:
    [advice] = advise([cell(100), cell(300, 64)])

    assert list(advice.changes) == [Change("batch_size=64", 3.0, advice.cells[0], advice.cells[1])]
