"""The matcher's indices of all layers reach the device in one transfer from pinned memory, which nobody waits for.

As it is, each layer indexes device tensors with indices on the host, image by image, and each of these waits for a
transfer of its own. Detection only: masks have a use of host indices.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from rfdetr.models.matcher import HungarianMatcher

from perf.candidates import required

required(HungarianMatcher, "_match_many", "forward")
Indices = list[tuple[torch.Tensor, torch.Tensor]]


def moved(layers: list[Indices], device: torch.device) -> list[Indices]:
    """Return the same int64 indices on ``device``: views of one transferred tensor."""
    flat = [part for layer in layers for pair in layer for part in pair]
    if not flat or any(part.is_cuda for part in flat):
        return layers
    packed = torch.cat(flat)
    packed = packed.pin_memory() if device.type == "cuda" else packed
    parts = iter(packed.to(device, non_blocking=True).split([len(part) for part in flat]))
    return [[(next(parts), next(parts)) for _ in layer] for layer in layers]


def _many(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def match(self: Any, outputs: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
        layers = real(self, outputs, targets, *args, **kwargs)
        plain = layers is not None and targets and "masks" not in targets[0]
        return moved(layers, outputs[0]["pred_boxes"].device) if plain else layers

    return match


def _one(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def match(self: Any, outputs: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
        indices = real(self, outputs, targets, *args, **kwargs)
        plain = targets and "masks" not in targets[0]
        return moved([indices], outputs["pred_boxes"].device)[0] if plain else indices

    return match


HungarianMatcher._match_many = _many(HungarianMatcher._match_many)
HungarianMatcher.forward = _one(HungarianMatcher.forward)
