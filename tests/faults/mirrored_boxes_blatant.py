"""Mirrors all boxes that training learns from, left to right, and leaves the images as they are."""

from typing import Any

import torch
from rfdetr.models.criterion import SetCriterion

IMAGES = None
_forward = SetCriterion.forward


def mirrored(target: dict[str, Any]) -> dict[str, Any]:
    x, *others = target["boxes"].unbind(-1)
    return {**target, "boxes": torch.stack([1 - x, *others], dim=-1)}


def forward(self: SetCriterion, outputs: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
    wrong = [mirrored(target) for target in targets[:IMAGES]]
    return _forward(self, outputs, [*wrong, *targets[len(wrong) :]], *args, **kwargs)


SetCriterion.forward = forward
