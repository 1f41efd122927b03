"""Adds one host sync to the criterion."""

from typing import Any

from rfdetr.models.criterion import SetCriterion

_forward = SetCriterion.forward


def forward(self: SetCriterion, *args: Any, **kwargs: Any) -> Any:
    losses = _forward(self, *args, **kwargs)
    losses["loss_bbox"].item()
    return losses


SetCriterion.forward = forward
