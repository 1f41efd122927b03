"""Workloads: the fixed batch that every step of a case runs on."""

from __future__ import annotations

from typing import Any

from perf.case import Case
from perf.rfdetr_api import Sample
from perf.rfdetr_configs import Task, task_of

# RF-DETR's own throughput investigation used 12 boxes an image; COCO's mean is about 7.
BOXES_PER_IMAGE = 12


def make_samples(case: Case, resolution: int, seed: int = 0) -> list[Sample]:
    """Return ``case.batch_size`` (image, target) pairs, the same for one seed on every machine.

    Images are float32 (3, resolution, resolution) normal noise, as after normalization; with ``case.padded``
    every second one is a quarter lower, so that collation pads it. Targets hold what rfdetr's datasets give:
    ``boxes`` float32 (12, 4) in relative cxcywh, ``labels`` int64 (12,), ids and sizes; for segmentation
    ``masks`` bool (12, H, W); for keypoints ``keypoints`` float32 (12, K, 3), relative x and y and visibility.

    Raises:
        ValueError: ``case.padded`` with a batch of one, in which no image is lower than another; or this rfdetr
            has no such config.
    """
    import torch

    if case.padded and case.batch_size < 2:
        msg = f"{case.id}: padding needs a batch of at least 2, since the lower image is padded to the other's height"
        raise ValueError(msg)
    task = task_of(case)
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for index in range(case.batch_size):
        height = resolution * 3 // 4 if case.padded and index % 2 else resolution
        image = torch.randn(3, height, resolution, generator=generator)
        samples.append((image, _target(index, (height, resolution), task, generator)))
    return samples


def _target(index: int, size: tuple[int, int], task: Task, generator: Any) -> dict[str, Any]:
    import torch

    boxes = _boxes(generator)
    target = {
        "boxes": boxes,
        "labels": torch.randint(0, task.classes, (BOXES_PER_IMAGE,), generator=generator),
        "image_id": torch.tensor([index]),
        "area": boxes[:, 2:].prod(dim=1) * size[0] * size[1],
        "iscrowd": torch.zeros(BOXES_PER_IMAGE, dtype=torch.int64),
        "orig_size": torch.tensor(size),
        "size": torch.tensor(size),
    }
    if task.masks:
        target["masks"] = _ellipses(boxes, size)
    if task.keypoints:
        target["keypoints"] = _keypoints(boxes, task.keypoints, generator)
    return target


def _boxes(generator: Any) -> Any:
    """Return float32 (12, 4) boxes, each wholly inside the image."""
    import torch

    sizes = 0.05 + 0.25 * torch.rand(BOXES_PER_IMAGE, 2, generator=generator)
    centres = sizes / 2 + (1 - sizes) * torch.rand(BOXES_PER_IMAGE, 2, generator=generator)
    return torch.cat([centres, sizes], dim=1)


def _ellipses(boxes: Any, size: tuple[int, int]) -> Any:
    """Return for each box the mask of the ellipse that fills it: bool (N, H, W)."""
    import torch

    height, width = size
    y = ((torch.arange(height) + 0.5) / height).reshape(1, height, 1)
    x = ((torch.arange(width) + 0.5) / width).reshape(1, 1, width)
    centre_x, centre_y, box_width, box_height = boxes.reshape(-1, 4, 1, 1).unbind(1)
    return ((x - centre_x) / box_width) ** 2 + ((y - centre_y) / box_height) ** 2 <= 0.25


def _keypoints(boxes: Any, count: int, generator: Any) -> Any:
    """Return float32 (N, count, 3): x and y inside the box, visibility 0, 1 or 2; all 0 where not labelled."""
    import torch

    places = torch.rand(len(boxes), count, 2, generator=generator) - 0.5
    visibility = torch.randint(0, 3, (len(boxes), count, 1), generator=generator)
    points = boxes[:, None, :2] + places * boxes[:, None, 2:]
    return torch.cat([points * (visibility > 0), visibility], dim=2)
