from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tiny import one_thread

from perf.case import Case
from perf.probes import compilation, parity
from perf.probes.parity import Comparison, Difference, Pair, Tie, differences, identify
from perf.record import Signal
from perf.rfdetr_api import Stepper, build, fit, steered
from perf.rfdetr_parity import Choices, Taken, take_step
from perf.workload import make_samples

pytestmark = pytest.mark.filterwarnings("default")
CASE = Case(config="nano", lane="cpu", batch_size=2, compile=True, backend="eager", measure="parity")
Graph = Any


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
    compilation.reset()


def a_step(**changes: Any) -> Taken:
    gradients = {"head.weight": torch.tensor([3.0, 4.0]), "backbone.0.encoder.bias": torch.tensor([12.0])}
    losses = {"loss_ce": 1.0, "loss_ce_enc": 1.0, "loss_bbox": 2.0, "loss": 4.0}
    weights = {"loss_ce": 1.0, "loss_ce_enc": 1.0, "loss_bbox": 1.0}
    return replace(Taken(losses=losses, weights=weights, gradients=gradients), **changes)


def a_pair(error: float = 1e-6) -> Pair:
    """An eager step, and one a precision up that is a relative ``error`` off in everything."""
    low = a_step()
    losses = {key: value * (1 + error) for key, value in low.losses.items()}
    gradients = {key: value.double() * (1 + error) for key, value in low.gradients.items()}
    return Pair(low, a_step(losses=losses, gradients=gradients))


def off(taken: Taken, pair: Pair | None = None) -> dict[str, float]:
    return {key: found.ratio for key, found in differences(taken, pair or a_pair()).items() if not found.agrees}


def test_the_same_step_differs_in_nothing_and_every_key_has_a_tolerance() -> None:
    found = differences(a_step(), a_pair())

    assert {difference.size for difference in found.values()} == {0.0}
    assert [*found] == [
        *["loss_ce", "loss_ce_enc", "loss_bbox", "loss", "grad_norm"],
        *["gradient of head", "gradient of backbone.encoder"],
    ]
    relative = [difference.tolerance / difference.scale for difference in found.values()]
    assert relative == pytest.approx([parity.FACTOR * 1e-6] * 5 + [1e-3] * 2, rel=0.1)


@pytest.mark.parametrize(("relative", "agrees"), [(7e-6, True), (9e-6, False)])
def test_a_loss_is_off_beyond_the_factor_times_the_steps_own_error(relative: float, agrees: bool) -> None:
    taken = a_step(losses={**a_step().losses, "loss_ce": 1 + relative})

    assert (off(taken) == {}) is agrees
    assert off(taken).keys() <= {"loss_ce"}


def test_an_error_that_is_small_by_luck_counts_as_the_usual_one_of_that_loss() -> None:
    pair = a_pair()
    for key in ("loss_ce", "loss"):
        pair.high.losses[key] = pair.low.losses[key]
    pair.high.losses["loss_bbox"] = 2 * (1 + 1e-3)

    found = differences(a_step(), pair)
    assert found["loss_ce"].tolerance == pytest.approx(8e-6 * math.sqrt(1 / 2), rel=1e-3)
    assert found["loss_bbox"].tolerance == pytest.approx(2 * 8e-3, rel=1e-3)
    assert found["loss"].tolerance == pytest.approx(2 * 8e-3, rel=1e-3)


def test_two_precisions_that_agree_leave_a_few_units_in_the_last_place() -> None:
    found = differences(a_step(), a_pair(0.0))

    relative = [difference.tolerance / difference.scale for difference in found.values()]
    assert relative == pytest.approx([4 * 2.0**-23] * 5 + [2.0**-11.5] * 2)


def test_a_turned_gradient_of_the_same_norm_is_off() -> None:
    gradients = {**a_step().gradients, "head.weight": torch.tensor([4.0, 3.0])}

    assert off(a_step(gradients=gradients)).keys() == {"gradient of head"}


def test_a_missing_gradient_is_off_and_one_of_zeros_is_not() -> None:
    gradients = a_step().gradients
    zeros = {**gradients, "unused": torch.zeros(2)}
    missing = {"head.weight": gradients["head.weight"]}

    assert off(a_step(gradients=zeros)) == {}
    assert off(a_step(gradients=missing)).keys() == {"grad_norm", "gradient of backbone.encoder"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_on_one_side_is_off(value: float) -> None:
    losses = {**a_step().losses, "loss_ce": value}
    gradients = {**a_step().gradients, "head.weight": torch.tensor([3.0, value])}

    assert off(a_step(losses=losses)) == {"loss_ce": parity.NO_NUMBER}
    assert off(a_step(gradients=gradients)).keys() == {"grad_norm", "gradient of head"}
    assert off(a_step(), Pair(a_step(losses=losses), a_pair().high)) == {"loss_ce": parity.NO_NUMBER}


def test_a_key_on_one_side_only_is_off() -> None:
    losses = a_step().losses
    more = {**losses, "loss_new": 1.0}
    less = {key: value for key, value in losses.items() if key != "loss_bbox"}

    assert off(a_step(losses=more)) == {"loss_new": parity.NO_NUMBER}
    assert off(a_step(losses=less)) == {"loss_bbox": parity.NO_NUMBER}


def test_no_signal_holds_a_value_that_is_no_number() -> None:
    losses = {"loss_ce": math.nan, "loss_bbox": math.inf, "loss": math.nan}
    free = differences(a_step(losses=losses), Pair(a_step(losses={"loss": -math.inf}, weights={}), a_step()))

    found = {signal.name: signal for signal in Comparison(free, {}, []).signals()}
    assert found["parity_mismatches"].value == 3
    assert found["parity_difference"].value == parity.NO_NUMBER


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_number_on_both_sides_is_no_agreement(value: float) -> None:
    losses = {**a_step().losses, "loss_ce": value}
    gradients = {**a_step().gradients, "head.weight": torch.tensor([3.0, value])}
    step = a_step(losses=losses, gradients=gradients)
    assert off(step, Pair(step, step)).keys() == {"loss_ce", "grad_norm", "gradient of head"}


def test_a_tolerance_as_large_as_the_value_proves_nothing_and_is_told() -> None:
    free = {"blunt": Difference(0.5, 2.0, 1.0), "sharp": Difference(0.5, 0.9, 1.0), "zero": Difference(0.0, 0.0, 0.0)}
    found = {signal.name: signal for signal in Comparison(free, {}, []).signals()}
    assert [part.name for part in found["parity_unresolved"].parts] == ["blunt"]


def test_what_ties_explain_is_told_and_not_counted() -> None:
    free = {"loss_ce": Difference(2.0, 1.0, 1.0), "loss": Difference(3.0, 1.0, 1.0), "fine": Difference(0.5, 1.0, 1.0)}
    tie = Tie(parity.TOP_K, 2, 100, gap=0.3e-7, limit=1e-6, unit=1e-7)
    verdict = Comparison(free, {"loss_ce": f"explained by top-k ({tie})", "fine": "explained by top-k"}, [tie])

    found = {signal.name: signal for signal in verdict.signals()}
    assert {name: signal.value for name, signal in found.items()} == {
        "parity_mismatches": 1,
        "parity_ties": 1,
        "parity_unresolved": 1,
        "parity_choices": 2,
        "parity_difference": 3,
        "parity_tolerance": 1,
    }
    assert [part.name for part in found["parity_mismatches"].parts] == ["loss"]
    [told] = found["parity_ties"].parts
    assert told.name == "loss_ce: explained by top-k (2 of 100 queries differ, gap 0.3 ulp)"
    [choices] = found["parity_choices"].parts
    assert choices.name == "top-k: 2 of 100 queries differ, gap 0.3 ulp, a tie"


def test_queries_are_known_by_their_outputs_despite_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(2, 3, 40, 8, generator=generator, dtype=torch.float64)
    tokens = torch.stack([torch.randperm(40, generator=generator)[:10] for _ in range(6)]).reshape(2, 3, 10)
    rows = table.gather(2, tokens.unsqueeze(-1).expand(-1, -1, -1, 8))

    assert torch.equal(identify(rows * (1 + 1e-3), table, torch.full((8,), 1e-3)), tokens)


def selecting(scores: list[float], error: float, picked: list[int]) -> Tie:
    """Return the tie between the two best of ``scores`` and the ``picked`` ones."""
    low = torch.tensor(scores).reshape(1, 1, -1)
    own = low.topk(2).indices
    reference = Pair(Taken(scores=low, own=Choices(own)), Taken(scores=low.double() + error))
    held = Taken(chosen=Choices(torch.tensor(picked).reshape(1, 1, -1)))
    return parity._selection_tie(Pair(held, held), reference, 2.0**-23)


def test_a_top_k_tie_is_as_near_as_rounding_errors_allow() -> None:
    near, error = [1.0, 0.5, 0.5 - 1e-6, 0.1], 1e-7
    same, swapped, far = (selecting(near, error, picked) for picked in ([0, 1], [0, 2], [0, 3]))

    assert (same.differ, same.is_tie) == (0, True)
    assert (swapped.differ, swapped.is_tie) == (1, True)
    assert swapped.gap == pytest.approx(1e-6, rel=0.1)
    assert (far.differ, far.is_tie) == (1, False)


def matching(cost: list[list[float]], error: float, rows: list[int]) -> Tie:
    """Return the tie between the diagonal assignment and the one of ``rows``, for the second of two groups."""
    costs = [torch.eye(3, dtype=torch.float64)[:, :2], torch.tensor(cost, dtype=torch.float64)]
    own, chosen = (
        Choices(assigned=[[(torch.tensor([0, 1, 3 + a, 3 + b]), torch.tensor([0, 1, 0, 1]))]])
        for a, b in ([0, 1], rows)
    )
    low = Taken(groups=2, costs=costs, own=own, chosen=chosen)
    pair = Pair(low, Taken(costs=[one + error for one in costs]))
    return parity._matching_tie(pair, pair, 2.0**-23)


def test_a_matching_tie_costs_no_more_than_rounding_errors_allow() -> None:
    cost = [[0.1, 0.9], [0.9, 0.2], [0.1 + 1e-6, 0.9]]
    same, swapped, far = (matching(cost, 1e-7, rows) for rows in ([0, 1], [2, 1], [0, 2]))

    assert (same.differ, same.total, same.is_tie) == (0, 4, True)
    assert (swapped.differ, swapped.is_tie) == (1, True)
    assert swapped.gap == pytest.approx(1e-6, rel=0.1)
    assert (far.differ, far.is_tie) == (1, False)


def test_costs_that_were_not_seen_prove_no_tie() -> None:
    assigned = [[(torch.tensor([0, 1]), torch.tensor([0, 1]))]]
    other = [[(torch.tensor([0, 2]), torch.tensor([0, 1]))]]
    low = Taken(own=Choices(assigned=assigned), chosen=Choices(assigned=other))

    assert not parity._matching_tie(Pair(low, Taken()), Pair(low, Taken()), 2.0**-23).is_tie


def test_a_point_tie_is_as_near_as_rounding_errors_allow() -> None:
    def points(own: list[float], chosen: list[float]) -> Tie:
        places = [torch.zeros(1, 2, 2), torch.ones(1, 2, 2)]
        values = [torch.tensor([side], dtype=torch.float64) for side in (own, chosen)]
        low = Taken(own=Choices(points=places[:1]), chosen=Choices(points=places[1:]))
        low.uncertainties = [(values[0], values[1])]
        high = Taken(uncertainties=[(values[0], values[1] + 1e-7)])
        return parity._point_tie(Pair(low, high), Pair(low, high), 2.0**-23)

    assert points([0.1, 0.2], [0.2, 0.1 + 1e-6]).is_tie
    assert not points([0.1, 0.2], [0.2, 0.1 + 1e-4]).is_tie


class OneMatch:
    """An eager side whose loss is 1 with the first query matched, 2 with the second, which costs ``gap`` more."""

    spacing = 2.0**-23

    def __init__(self, gap: float) -> None:
        self.cost = torch.tensor([[0.5], [0.5 + gap]], dtype=torch.float64)

    def step(self, query: int) -> Taken:
        own, chosen = (Choices(assigned=[[(torch.tensor([row]), torch.tensor([0]))]]) for row in (0, query))
        return Taken(losses={"loss": 1.0 + query}, own=own, chosen=chosen, costs=[self.cost])

    def eager(self, hold: Choices | None = None) -> Pair:
        low = self.step(int(hold.assigned[0][0][0]) if hold and hold.assigned else 0)
        return Pair(low, replace(low, costs=[self.cost + 1e-8]))


@pytest.mark.parametrize(("gap", "loss", "explained"), [(1e-7, 2.0, True), (1e-3, 2.0, False), (1e-7, 2.1, False)])
def test_a_matching_tie_explains_what_follows_from_it_and_nothing_else(
    gap: float, loss: float, explained: bool
) -> None:
    sides: Any = OneMatch(gap)
    reference, taken = sides.eager(), replace(sides.step(1), losses={"loss": loss})

    verdict = parity.explain(differences(taken, reference), taken, reference, sides)
    found = {signal.name: signal for signal in verdict.signals()}
    assert (found["parity_mismatches"].value, found["parity_ties"].value) == ((0, 1) if explained else (1, 0))
    assert found["parity_choices"].value == 1
    if explained:
        assert (
            "loss: explained by matching ties (1 of 1 matched pairs differ, gap" in found["parity_ties"].parts[0].name
        )


def measured(
    tmp_path: Path, case: Case = CASE, change: Callable[[Graph], None] | None = None, prepare: Any = None
) -> dict[str, Signal]:
    """Return the parity signals of the real reduced model; ``change`` breaks the graph that selects queries."""

    def backend(graph: Graph, inputs: Any) -> Any:
        if change is not None and any(node.target is torch.topk for node in graph.graph.nodes):
            change(graph)
            graph.recompile()
        return graph.forward

    real = torch.compile
    with steered(case):
        compilation.reset()
        with mock.patch(
            "torch.compile", lambda target, dynamic=None, **_: real(target, dynamic=dynamic, backend=backend)
        ):
            built = build(case, tmp_path)
            if prepare is not None:
                prepare(built.module.model)
            found = parity.parity(built, make_samples(case, built.resolution), tmp_path)
    return {signal.name: signal for signal in found}


def keys(signal: Signal) -> set[str]:
    return {part.name.partition(":")[0] for part in signal.parts}


def test_a_capture_that_changes_nothing_is_at_parity_and_proven_compiled(tmp_path: Path) -> None:
    found = measured(tmp_path)

    assert (found["parity_mismatches"].value, found["parity_ties"].value, found["parity_difference"].value) == (0, 0, 0)
    assert found["model_frames"].value == 1
    assert found["frames_failed"].value == 0
    assert {"loss_ce", "loss_giou_enc", "loss", "grad_norm", "gradient of backbone.encoder"} <= keys(
        found["parity_tolerance"]
    )


def wrong_kernel(graph: Graph) -> None:
    """Have the last matrix product come out 0.1 % too large."""
    *_, last = (node for node in graph.graph.nodes if node.target is torch.nn.functional.linear)
    last.target = lambda *args: torch.nn.functional.linear(*args) * 1.001


def test_a_wrong_kernel_is_a_mismatch_that_no_tie_explains(tmp_path: Path) -> None:
    found = measured(tmp_path, change=wrong_kernel)

    assert {"loss", "grad_norm"} <= keys(found["parity_mismatches"])
    assert found["parity_ties"].value == 0


def rotated(scores: Any, count: int, dim: int = -1, **_: Any) -> Any:
    """Select as torch.topk does, but among equal scores the last tokens first."""
    values, indices = scores.flip(dim).topk(count, dim=dim)
    return values, scores.shape[dim] - 1 - indices


def other_ties(graph: Graph) -> None:
    [node] = [node for node in graph.graph.nodes if node.target is torch.topk]
    node.target = rotated


def all_scores_equal(model: Any) -> None:
    """Make the scores of the two-stage selection so small beside their bias that every token has the same."""
    for head in model.transformer.enc_out_class_embed:
        head.weight.data.mul_(1e-30)


def test_another_choice_among_equal_scores_is_explained(tmp_path: Path) -> None:
    found = measured(tmp_path, change=other_ties, prepare=all_scores_equal)

    assert found["parity_mismatches"].value == 0
    assert {"loss", "loss_bbox_enc", "grad_norm"} <= keys(found["parity_ties"])
    assert all("explained by top-k (" in part.name for part in found["parity_ties"].parts)
    [choices] = found["parity_choices"].parts
    assert choices.name.endswith("gap 0 ulp, a tie")


def second_best(scores: Any, count: int, dim: int = -1, **_: Any) -> Any:
    """Select the wrong way: without the best one."""
    values, indices = scores.topk(count + 1, dim=dim)
    return values.narrow(dim, 1, count), indices.narrow(dim, 1, count)


def worse_choice(graph: Graph) -> None:
    [node] = [node for node in graph.graph.nodes if node.target is torch.topk]
    node.target = second_best


def test_a_choice_that_is_no_tie_explains_nothing(tmp_path: Path) -> None:
    found = measured(tmp_path, change=worse_choice)

    assert "loss_bbox_enc" in keys(found["parity_mismatches"])
    assert found["parity_ties"].value == 0
    assert found["parity_choices"].parts[0].name.endswith("no tie")


@pytest.fixture(scope="module")
def held_steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Taken]:
    """Return an eager segmentation step as it is, and held to its own choices and to others."""
    case = Case(config="seg-nano", lane="cpu", batch_size=2)
    built = build(case, tmp_path_factory.mktemp("held"))
    taken: dict[str, Taken] = {}

    def body(stepper: Stepper) -> None:
        free = taken["free"] = take_step(stepper)
        taken["own"] = take_step(stepper, free.chosen)
        selected = free.chosen.selected.clone()
        selected[0, 0, :2] = selected[0, 0, :2].flip(0)
        taken["selected"] = take_step(stepper, Choices(selected))
        assigned = [[(rows, columns.roll(1)) for rows, columns in layer] for layer in free.chosen.assigned]
        taken["assigned"] = take_step(stepper, Choices(assigned=assigned))
        points = [(layer + 0.01).clamp(0, 1) for layer in free.chosen.points]
        taken["points"] = take_step(stepper, replace(free.chosen, points=points))

    fit(built, make_samples(case, built.resolution), body)
    return taken


def test_a_step_held_to_its_own_choices_is_the_same_step(held_steps: dict[str, Taken]) -> None:
    free, own = held_steps["free"], held_steps["own"]

    assert own.losses == free.losses
    assert differences(own, Pair(free, free))["grad_norm"].agrees
    groups, batch, queries, _ = free.rows.shape
    assert free.own.selected.shape == (groups, batch, queries) == (2, 2, 50)
    assert free.scores.shape[:2] == (groups, batch)
    assert len(free.costs) == len(free.own.assigned) * groups * batch
    assert {cost.shape for cost in free.costs} == {(queries, 12)}


def test_what_is_held_is_what_the_step_goes_on_with(held_steps: dict[str, Taken]) -> None:
    free = held_steps["free"]
    rows = held_steps["selected"].rows
    assert torch.equal(rows[0, 0, :2], free.rows[0, 0, :2].flip(0))
    assert torch.equal(rows[0, 0, 2:], free.rows[0, 0, 2:])

    assigned, points = held_steps["assigned"], held_steps["points"]
    assert torch.equal(assigned.rows, free.rows)
    assert {key for key, value in free.losses.items() if assigned.losses[key] != value} == free.losses.keys()
    assert assigned.losses["loss"] > free.losses["loss"]
    changed = {key for key, value in free.losses.items() if points.losses[key] != value}
    assert changed == {"loss", *(key for key in free.losses if "mask" in key)}
    assert all(torch.equal(own, was) for own, was in zip(points.own.points, free.own.points, strict=True))


def test_a_precision_without_one_above_is_refused() -> None:
    case = Case(config="nano", compile=True, measure="parity")
    with pytest.raises(ValueError, match="no precision to compare transformer-engine with"):
        parity._exact_case(case, "transformer-engine")
