"""The generated data set in the layouts that users have, for the end-to-end tests of training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from perf.case import Case
from perf.recipe import recipe_of, write_data
from perf.shapes import ANNOTATIONS

SPLITS = {"train": "train2017", "valid": "val2017"}


def write_coco(folder: Path, case: Case) -> Path:
    """Write the data that ``case`` trains on as COCO 2017 has it."""
    made = write_data(folder / "made", recipe_of(case))
    target = folder / "coco"
    (target / "annotations").mkdir(parents=True)
    for split, name in SPLITS.items():
        shutil.copytree(made / split, target / name, ignore=shutil.ignore_patterns(ANNOTATIONS))
        shutil.copyfile(made / split / ANNOTATIONS, target / "annotations" / f"instances_{name}.json")
    return target


def write_yolo(folder: Path, case: Case) -> Path:
    """Write the data that ``case`` trains on as YOLO has it: classes from 0, boxes as shares of the image."""
    made = write_data(folder / "made", recipe_of(case))
    target = folder / "yolo"
    for split in SPLITS:
        document = json.loads((made / split / ANNOTATIONS).read_text(encoding="utf-8"))
        shutil.copytree(made / split, target / split / "images", ignore=shutil.ignore_patterns(ANNOTATIONS))
        (target / split / "labels").mkdir()
        for image in document["images"]:
            lines = [_line(found, image) for found in document["annotations"] if found["image_id"] == image["id"]]
            file = target / split / "labels" / Path(image["file_name"]).with_suffix(".txt").name
            file.write_text("\n".join(lines), encoding="utf-8")
    names = [category["name"] for category in document["categories"][1:]]
    (target / "data.yaml").write_text(json.dumps({"names": names}), encoding="utf-8")
    return target


def _line(found: dict[str, Any], image: dict[str, Any]) -> str:
    x, y, width, height = found["bbox"]
    wide, high = image["width"], image["height"]
    shares = ((x + width / 2) / wide, (y + height / 2) / high, width / wide, height / high)
    return " ".join(map(str, (found["category_id"] - 1, *shares)))
