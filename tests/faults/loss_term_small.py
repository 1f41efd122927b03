"""Drops one term of the loss, generalized IoU of the encoder's boxes."""

from typing import Any

from rfdetr.models.criterion import SetCriterion

_init = SetCriterion.__init__


def start(self: SetCriterion, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    self.weight_dict = {name: weight for name, weight in self.weight_dict.items() if name != "loss_giou_enc"}


SetCriterion.__init__ = start
