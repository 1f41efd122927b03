"""Workloads: the fixed batch that every step of a case runs on."""

from __future__ import annotations

from typing import Any

from perf.case import Case
from perf.rfdetr_api import Sample

# RF-DETR's own throughput investigation used 12 boxes an image; COCO's mean is about 7.
BOXES_PER_IMAGE = 12


def make_samples(case: Case, resolution: int, num_classes: int = 80, seed: int = 0) -> list[Sample]:
    """Return ``case.batch_size`` (image, target) pairs, the same for one seed on every machine.

    Images are float32 (3, resolution, resolution) normal noise, as after normalization; with ``case.padded``
    every second one is a quarter lower, so that collation pads it. Targets hold ``boxes`` float32 (12, 4) in
    relative cxcywh, ``labels`` int64 (12,), and the ids and sizes that rfdetr's datasets give.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    samples = []
    for index in range(case.batch_size):
        height = resolution * 3 // 4 if case.padded and index % 2 else resolution
        image = torch.randn(3, height, resolution, generator=generator)
        samples.append((image, _target(index, height, resolution, num_classes, generator)))
    return samples


def _target(index: int, height: int, width: int, num_classes: int, generator: Any) -> dict[str, Any]:
    import torch

    # Centres and sizes such that every box lies inside the image.
    sizes = 0.05 + 0.25 * torch.rand(BOXES_PER_IMAGE, 2, generator=generator)
    centres = sizes / 2 + (1 - sizes) * torch.rand(BOXES_PER_IMAGE, 2, generator=generator)
    boxes = torch.cat([centres, sizes], dim=1)
    return {
        "boxes": boxes,
        "labels": torch.randint(0, num_classes, (BOXES_PER_IMAGE,), generator=generator),
        "image_id": torch.tensor([index]),
        "area": sizes.prod(dim=1) * height * width,
        "iscrowd": torch.zeros(BOXES_PER_IMAGE, dtype=torch.int64),
        "orig_size": torch.tensor([height, width]),
        "size": torch.tensor([height, width]),
    }
