"""Drops a term of the loss, L1 of boxes, everywhere."""

from typing import Any

from rfdetr.models.criterion import SetCriterion

_init = SetCriterion.__init__


def start(self: SetCriterion, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    self.weight_dict = {name: weight for name, weight in self.weight_dict.items() if not name.startswith("loss_bbox")}


SetCriterion.__init__ = start
