"""A COCO 2017 tree on disk: checked in seconds, so that nothing is found missing hours into a training.

The tree holds ``train2017/``, ``val2017/`` and ``annotations/instances_{train,val}2017.json``. Of each image that is
listed, the file has to be there, not empty, and end as its format does; no image is decoded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perf.annotations import COCO_HEAD, is_box
from perf.image_files import CLOSED, CUT_SHORT, EMPTY, MISSING, NO_FILE, look_at

FULL = {"train2017": 118_287, "val2017": 5_000}
_EXAMPLES = 3
_SHARED = Path("/dev/shm")
# rfdetr keeps the last checkpoint, one an interval and the best weights: weights, their average and the optimizer's two
# moments take 16 bytes a parameter, and the largest shipped detector but the deprecated one has 34 million.
CHECKPOINT_BYTES = 3 * 16 * 34_000_000


class Split(NamedTuple):
    """One split: how many images its annotations list, how many boxes, and how many bytes the files are."""

    name: str
    images: int
    boxes: int
    size: int


class Tree(NamedTuple):
    """A checked tree."""

    root: Path
    splits: Sequence[Split]

    @property
    def full(self) -> bool:
        """Whether it is all of COCO 2017."""
        return {split.name: split.images for split in self.splits} == FULL

    @property
    def text(self) -> str:
        """What is in it, in a line."""
        told = ", ".join(f"{split.name} {split.images} images, {split.boxes} boxes" for split in self.splits)
        return f"{told}: {'the full COCO 2017' if self.full else 'not the full COCO 2017 (118287 and 5000 images)'}"


def check_tree(root: Path, full: bool = False) -> Tree:
    """Return what is in the tree at ``root``.

    Raises:
        ValueError: a folder or a file is missing, cut short or empty, or with ``full`` the tree is not all of COCO
            2017; one line for each kind of problem, with how many and the first of them.
    """
    if not root.is_dir():
        msg = f"{root}: no such folder; --coco-root takes the folder that holds train2017, val2017 and annotations"
        raise ValueError(msg)
    problems: list[str] = []
    splits = [split for name in FULL if (split := _check_split(root, name, problems))]
    tree = Tree(root, splits)
    if full and not problems and not tree.full:
        problems.append(f"{root}: {tree.text}; download what is missing, or leave --full out")
    if problems:
        raise ValueError("\n".join(problems))
    return tree


def _check_split(root: Path, name: str, problems: list[str]) -> Split | None:
    file, folder = root / "annotations" / f"instances_{name}.json", root / name
    missing = [str(path) for path in (file, folder) if not path.exists()]
    if missing:
        problems.append(f"{', '.join(missing)}: missing; COCO 2017's layout has it")
        return None
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        names = [str(image["file_name"]) for image in document["images"]]
        images = {image["id"] for image in document["images"]}
        boxes = [(int(one["image_id"]), int(one["category_id"])) for one in document["annotations"]]
        unusable = sum(not _usable(one) for one in document["annotations"])
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{file}: not whole, was its download cut short? ({type(error).__name__}: {error})")
        return None
    if not names or not boxes:
        problems.append(f"{file}: lists {len(names)} images and {len(boxes)} boxes; both are needed")
        return None
    if unusable:
        problems.append(f"{file}: {unusable} of {len(boxes)} boxes lack an area or a bbox of four numbers")
    problems += _wrong_boxes(file, boxes, images)
    sizes, wrong = _check_files(folder, names)
    problems += [_told(folder, kind, found, len(names)) for kind, found in wrong.items() if found]
    return Split(name, len(names), len(boxes), sizes)


def _usable(annotation: dict[str, Any]) -> bool:
    """Return whether rfdetr can train on a box: it asks for the area too, and for nothing of a crowd."""
    area = annotation.get("area")
    return bool(annotation.get("iscrowd")) or (is_box(annotation.get("bbox")) and isinstance(area, int | float))


def _wrong_boxes(file: Path, boxes: Sequence[tuple[int, int]], images: set[int]) -> Iterator[str]:
    """Yield a line for boxes of images that are not listed, and one for those of classes that rfdetr's head has not."""
    if lost := sum(image not in images for image, _ in boxes):
        yield f"{file}: {lost} of {len(boxes)} boxes are of images that it does not list"
    if beyond := sum(not 0 <= category <= COCO_HEAD for _, category in boxes):
        yield f"{file}: {beyond} of {len(boxes)} boxes have a category outside rfdetr's head for COCO, 0 to {COCO_HEAD}"


def _told(folder: Path, kind: str, found: Sequence[str], total: int) -> str:
    more = f" and {len(found) - _EXAMPLES} more" if len(found) > _EXAMPLES else ""
    shown = ", ".join(found[:_EXAMPLES])
    return f"{folder}: {len(found)} of {total} images {kind}: {shown}{more}; extract them again"


def _check_files(folder: Path, names: Sequence[str]) -> tuple[int, dict[str, list[str]]]:
    """Return the bytes of the files, and the names of those that are missing, empty or cut short."""
    wrong: dict[str, list[str]] = {MISSING: [], EMPTY: [], CUT_SHORT: [], NO_FILE: [], CLOSED: []}
    total = 0
    for name, (size, problem) in zip(names, look_at(folder / name for name in names), strict=True):
        total += size
        if problem:
            wrong[problem].append(name)
    return total, wrong


def room(output: Path, workers: int, batch_bytes: int, shared: Path = _SHARED) -> Iterator[str]:
    """Yield what there is of disk and shared memory, a line each; one that does not suffice begins with ``warning``.

    ``batch_bytes`` is a batch of images as the workers hand it over: two of each worker wait in shared memory.
    """
    free = shutil.disk_usage(_existing(output)).free
    yield _room("disk", free, CHECKPOINT_BYTES, "checkpoints")
    if shared.is_dir() and workers:
        yield _room("shared memory", shutil.disk_usage(shared).free, 2 * workers * batch_bytes, f"{workers} workers")


def _room(what: str, free: int, needed: int, of: str) -> str:
    line = f"{what}: {free / 1e9:.1f} GB free, {of} take up to {needed / 1e9:.1f} GB"
    return f"warning: {line}" if free < needed else line


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.resolve().parents) if one.exists())
