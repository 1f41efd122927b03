"""The averaged weights are updated in every other step."""

from typing import Any

from rfdetr.training.callbacks.ema import RFDETREMACallback

_update = RFDETREMACallback._update_ema_for_step


def update(self: RFDETREMACallback, module: Any, step: int) -> None:
    if step % 2 == 0:
        _update(self, module, step)


RFDETREMACallback._update_ema_for_step = update
