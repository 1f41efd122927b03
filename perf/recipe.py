"""Recipes: how a convergence case trains, and on which generated data."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.case import Case, Lane
from perf.shapes import ShapesSpec, write_shapes


@dataclass(frozen=True)
class Recipe:
    """How a case trains: everything else is as rfdetr has it by default.

    ``lr`` is that of both the encoder and the rest, at its peak; it rises for the share ``warmup`` of the ``steps`` and
    then falls to 0 along a cosine. The eval set is scored ``evaluations`` times, at equal distances, last at the end.
    ``overfit``: the eval set of the generated data is its training set. ``model`` and ``train`` are further arguments
    of rfdetr's configs.
    """

    steps: int
    evaluations: int
    lr: float
    warmup: float
    shapes: ShapesSpec
    overfit: bool = False
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it in a line: trainings by another recipe cannot be compared."""
        more = [f"{name} {value}" for name, value in {**self.model, **self.train}.items()]
        told = [f"{self.steps} steps", f"lr {self.lr:g}", f"warm-up {self.warmup:g}", *more]
        return ", ".join(told)

    @property
    def every(self) -> int:
        """After how many steps the eval set is scored; less often where the steps cannot be divided so."""
        return next(self.steps // n for n in range(self.evaluations, 0, -1) if self.steps % n == 0)


# The smallest that learn something real: docs/convergence.md has what was tried.
RECIPES: dict[Lane, Recipe] = {
    "gpu": Recipe(steps=400, evaluations=4, lr=4e-4, warmup=0.05, shapes=ShapesSpec(800, 200)),
    "cpu": Recipe(
        steps=200,
        evaluations=4,
        lr=1.6e-3,
        warmup=0.05,
        shapes=ShapesSpec(4, 1, objects=1),
        overfit=True,
        # As many queries as the image has places for them: 16 patches of 16 px.
        model={"resolution": 64, "positional_encoding_size": 4, "num_queries": 16, "num_select": 16},
        train={"aug_config": {}, "scale_jitter": False},
    ),
}


def recipe_of(case: Case) -> Recipe:
    """Return how ``case`` trains."""
    recipe = RECIPES[case.lane]
    return recipe if case.steps is None else dataclasses.replace(recipe, steps=case.steps)


def write_data(folder: Path, recipe: Recipe) -> Path:
    """Write the generated data set of ``recipe`` below ``folder`` and return its own folder (``train``, ``valid``)."""
    written = write_shapes(folder, recipe.shapes)
    if recipe.overfit:
        shutil.rmtree(written / "valid")
        shutil.copytree(written / "train", written / "valid")
    return written
