"""Adds 200 host syncs to the criterion."""

from typing import Any

from rfdetr.models.criterion import SetCriterion

TIMES = 200
_forward = SetCriterion.forward


def forward(self: SetCriterion, *args: Any, **kwargs: Any) -> Any:
    losses = _forward(self, *args, **kwargs)
    for _ in range(TIMES):
        losses["loss_bbox"].item()
    return losses


SetCriterion.forward = forward
