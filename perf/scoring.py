"""Scores by pycocotools, of detections against the annotation file itself: nothing of rfdetr's evaluator is in it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from perf.annotations import Annotation, DataSet, Image, Split


class Detection(NamedTuple):
    """One detection: the image's id in its split, category id, x, y, width, height in px, score (0 to 1)."""

    image: int
    category: int
    box: tuple[float, float, float, float]
    score: float


class Scores(NamedTuple):
    """Average precision (0 to 1): the mean over IoU 0.50 to 0.95 that is called mAP, and those at 0.50 and 0.75."""

    map: float
    ap50: float
    ap75: float


def score(data: DataSet, split: Split, detections: Sequence[Detection], most: int) -> Scores:
    """Return the scores of ``detections`` on a split, at most ``most`` of them an image; 0 where there is none."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if not detections:
        return Scores(0.0, 0.0, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools tells its progress
        truth = COCO()
        truth.dataset = truth_of(data, split)
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(_results(detections)), "bbox")
        evaluation.params.maxDets = [1, 10, most]
        evaluation.evaluate()
        evaluation.accumulate()
    # (IoU thresholds, recalls, categories, areas, most detections); the first area is any, the last number is ``most``.
    precision = evaluation.eval["precision"][..., 0, -1]
    return Scores(*(_mean(part) for part in (precision, precision[0], precision[5])))


def truth_of(data: DataSet, split: Split) -> dict[str, Any]:
    """Return the split as a COCO document: boxes as rfdetr has them, within their image, none without an area."""
    images = {image.id: image for image in split.images}
    clipped = (_clipped(found, images[found.image]) for found in split.annotations)
    boxes = [found for found in clipped if min(found.box[2:]) > 0]
    return {
        "info": {},
        "images": [{"id": image.id, "width": image.width, "height": image.height} for image in split.images],
        "categories": [{"id": number, "name": name} for number, name in data.categories.items()],
        "annotations": [_entry(number, found) for number, found in enumerate(boxes, 1)],  # pycocotools takes 0 for none
    }


def _clipped(found: Annotation, image: Image) -> Annotation:
    """Return the annotation with its box clipped to its image, unless it is of a crowd: rfdetr does not clip those."""
    if found.crowd:
        return found
    x, y, width, height = found.box
    left, top, right, bottom = max(x, 0.0), max(y, 0.0), min(x + width, image.width), min(y + height, image.height)
    inside = left == x and top == y and (right, bottom) == (x + width, y + height)
    return found if inside else replace(found, box=(left, top, right - left, bottom - top))


def _entry(number: int, found: Annotation) -> dict[str, Any]:
    return {
        "id": number,
        "image_id": found.image,
        "category_id": found.category,
        "bbox": list(found.box),
        "area": found.box[2] * found.box[3],
        "iscrowd": int(found.crowd),
    }


def _results(detections: Sequence[Detection]) -> list[dict[str, Any]]:
    return [
        {"image_id": one.image, "category_id": one.category, "bbox": list(one.box), "score": one.score}
        for one in detections
    ]


def _mean(precision: Any) -> float:
    known = precision[precision > -1]  # -1: a category that the split has no box of
    return float(np.mean(known)) if known.size else 0.0
