from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from perf.case import Case
from perf.probes import compilation, parity
from perf.probes.input_pipeline import one_thread
from perf.probes.parity import Comparison, identify
from perf.probes.parity_differences import Difference, Pair, differences
from perf.probes.parity_ties import TOP_K, Tie
from perf.record import Signal
from perf.rfdetr_api import Stepper, build, fit
from perf.rfdetr_parity import Choices, Taken, take_step
from perf.rfdetr_steering import steered
from perf.workload import make_samples

pytestmark = pytest.mark.filterwarnings("default")
CASE = Case(config="nano", lane="cpu", batch_size=2, compile=True, backend="eager", measure="parity")
Graph = Any


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
    compilation.reset()


def test_a_tolerance_as_large_as_the_value_proves_nothing_and_is_told() -> None:
    free = {"blunt": Difference(0.5, 2.0, 1.0), "sharp": Difference(0.5, 0.9, 1.0), "zero": Difference(0.0, 0.0, 0.0)}
    found = {signal.name: signal for signal in Comparison(free, {}, []).signals()}
    assert [part.name for part in found["parity_unresolved"].parts] == ["blunt"]


def test_what_ties_explain_is_told_and_not_counted() -> None:
    free = {"loss_ce": Difference(2.0, 1.0, 1.0), "loss": Difference(3.0, 1.0, 1.0), "fine": Difference(0.5, 1.0, 1.0)}
    tie = Tie(TOP_K, 2, 100, gap=0.3e-7, limit=1e-6, unit=1e-7)
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


def test_a_capture_that_changes_nothing_is_at_parity_and_proven_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def watched(*args: Any) -> Taken:
        seen.add((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return take_step(*args)

    monkeypatch.setattr(parity, "take_step", watched)
    torch.set_float32_matmul_precision("high")
    found = measured(tmp_path)

    assert seen == {("highest", False)}  # no TF32 in float32's parity
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
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
