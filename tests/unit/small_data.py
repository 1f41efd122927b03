"""Small data sets of each layout, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from perf.dataset import ROBOFLOW_FILE, read_data_set

SPLITS = {"roboflow": ("train", "valid"), "coco": ("train2017", "val2017"), "yolo": ("train", "valid")}


def annotations_of(root: Path, layout: str, split: str) -> Path:
    return root / split / ROBOFLOW_FILE if layout == "roboflow" else root / "annotations" / f"instances_{split}.json"


def document(*boxes: tuple[float, ...], **changes: Any) -> dict[str, Any]:
    return {
        "images": [{"id": 7, "file_name": "a.png", "width": 64, "height": 48}],
        "categories": [{"id": 1, "name": "cell"}, {"id": 2, "name": "platelet"}],
        "annotations": [
            {"id": 40 + number, "image_id": 7, "category_id": 1, "bbox": list(box), "area": 12, "iscrowd": 0}
            for number, box in enumerate(boxes)
        ],
        **changes,
    }


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48)).save(path)


def write_coco(root: Path, layout: str, **splits: dict[str, Any]) -> Path:
    for split in SPLITS[layout]:
        picture(root / split / "a.png")
        file = annotations_of(root, layout, split)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(splits.get(split, document((1, 2, 10, 20)))), encoding="utf-8")
    return root


def write_yolo(root: Path, labels: str = "0 0.5 0.5 0.25 0.5\n", data: str = "names: [cell, platelet]\n") -> Path:
    for split in SPLITS["yolo"]:
        picture(root / split / "images" / "a.png")
        (root / split / "labels").mkdir()
        (root / split / "labels" / "a.txt").write_text(labels, encoding="utf-8")
    (root / "data.yaml").write_text(data, encoding="utf-8")
    return root


def wrong(root: Path) -> str:
    with pytest.raises(ValueError, match=r":") as error:
        read_data_set(root)
    return str(error.value)
