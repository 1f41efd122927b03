"""Adds one Python call to the forward pass: the wrapper itself."""

from typing import Any

from rfdetr.models.lwdetr import LWDETR

_forward = LWDETR.forward


def forward(self: LWDETR, *args: Any, **kwargs: Any) -> Any:
    return _forward(self, *args, **kwargs)


LWDETR.forward = forward
