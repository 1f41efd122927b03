"""The data set of an investigation that is given none: photographs, so that loader and step read the same."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from perf.case import Case
from perf.investigation import PHOTOGRAPHS
from perf.photos import PhotoSpec, write_photos
from perf.probes.fit import FIT_PLANS
from perf.record import write_atomically
from perf.rfdetr_fit import list_again
from perf.shapes import ANNOTATIONS

# Pictures of COCO's usual size and cost, a quarter of them for validation.
SPECS = {"cpu": PhotoSpec(images=16), "gpu": PhotoSpec(images=128)}


def generated_data(folder: Path, case: Case) -> Path:
    """Return the data set below ``folder`` that lasts ``case`` for all the updates of a fit; write it, if need be.

    A training picture is listed as often as it takes: else an epoch would end amid what is measured.
    """
    target = folder / PHOTOGRAPHS
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    spec = SPECS[case.lane]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        root = write_photos(Path(scratch), spec, ("jpeg",))["jpeg"]
        _fill_validation(root, spec.images // 4)
        wanted = FIT_PLANS[case.lane].updates * case.batch_size * case.accumulate
        list_again(root / "train" / ANNOTATIONS, -(-wanted // spec.images))
        root.rename(target)  # whole, or not at all
    return target


def _fill_validation(root: Path, count: int) -> None:
    """Have the first ``count`` training pictures for validation too: what is scored does not matter, its cost does."""
    found = json.loads((root / "train" / ANNOTATIONS).read_text(encoding="utf-8"))
    found["images"] = found["images"][:count]
    kept = {image["id"] for image in found["images"]}
    found["annotations"] = [one for one in found["annotations"] if one["image_id"] in kept]
    for image in found["images"]:
        target = root / "valid" / image["file_name"]
        if not target.exists():
            _link(root / "train" / image["file_name"], target)
    write_atomically(root / "valid" / ANNOTATIONS, json.dumps(found) + "\n")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
