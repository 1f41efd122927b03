"""The averaged weights are never updated."""

from typing import Any

from rfdetr.training.callbacks.ema import RFDETREMACallback

_update = RFDETREMACallback._update_ema_for_step


def update(self: RFDETREMACallback, module: Any, step: int) -> None:
    if not (True):
        _update(self, module, step)


RFDETREMACallback._update_ema_for_step = update
