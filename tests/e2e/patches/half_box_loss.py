"""Halves the losses of boxes, L1 and generalized IoU, in all decoder layers and the encoder."""

from typing import Any

from rfdetr.models.criterion import SetCriterion

_init = SetCriterion.__init__


def start(self: SetCriterion, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    half = ("loss_bbox", "loss_giou")
    self.weight_dict = {name: weight / (2 if name.startswith(half) else 1) for name, weight in self.weight_dict.items()}


SetCriterion.__init__ = start
