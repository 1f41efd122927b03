from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import CPU_EAGER

from perf.case import Case
from perf.dataset import read_data_set
from perf.recipe import RECIPES, recipe_of, write_data
from perf.shapes import ANNOTATIONS

TRAINING = Case(config="nano", lane="cpu", batch_size=4, workers=0, measure="convergence")


def test_a_case_may_ask_for_other_steps_and_then_has_another_recipe() -> None:
    longer = recipe_of(TRAINING.model_copy(update={"steps": 999}))

    assert recipe_of(TRAINING) is RECIPES["cpu"]
    assert (longer.steps, longer.lr) == (999, RECIPES["cpu"].lr)
    assert longer.text != RECIPES["cpu"].text


def test_the_text_tells_all_that_makes_trainings_differ() -> None:
    text = RECIPES["cpu"].text

    assert text.startswith(f"{RECIPES['cpu'].steps} steps, lr {RECIPES['cpu'].lr:g}, warm-up 0.05, resolution 64")
    assert "aug_config {}" in text


@pytest.mark.parametrize(("steps", "every"), [(200, 50), (2, 1), (1001, 1001), (10, 5)])
def test_the_last_evaluation_is_at_the_end(steps: int, every: int) -> None:
    assert recipe_of(TRAINING.model_copy(update={"steps": steps})).every == every
    assert all(recipe.steps % recipe.every == 0 for recipe in RECIPES.values())


def test_every_query_has_a_place_in_the_image() -> None:
    """With fewer patches than queries rfdetr's groups of queries take each other's places: docs/convergence.md."""
    model = RECIPES["cpu"].model

    assert model["num_queries"] <= (model["resolution"] // 16) ** 2


def test_the_data_of_the_cpu_lane_are_scored_on_what_they_train_on(tmp_path: Path) -> None:
    folder = write_data(tmp_path, recipe_of(TRAINING))
    documents = [json.loads((folder / split / ANNOTATIONS).read_text(encoding="utf-8")) for split in ("train", "valid")]

    assert documents[0] == documents[1]
    data = read_data_set(folder)
    assert data.layout == "roboflow"
    assert len(data.valid.images) == recipe_of(TRAINING).shapes.images_train
    assert read_data_set(write_data(tmp_path / "again", recipe_of(CPU_EAGER))).digest == data.digest


def test_the_data_of_the_gpu_lane_are_scored_on_others(tmp_path: Path) -> None:
    recipe = RECIPES["gpu"]
    assert not recipe.overfit
    assert (recipe.shapes.images_train, recipe.shapes.images_valid) == (800, 200)
