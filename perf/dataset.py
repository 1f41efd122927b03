"""Data sets by path: COCO 2017's layout, Roboflow's export of COCO, YOLO. Read and checked before anything trains.

The images are not decoded: each must be there and whole, those of a YOLO set are opened for their size, and some of
the others to see that it is the listed one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from perf.annotations import Annotation, DataSet, Image, Layout, Split, check, is_box, read_text
from perf.record import Record, reject_duplicates
from perf.yolo import YOLO_FILES, read_yolo

ROBOFLOW_FILE = "_annotations.coco.json"
_LISTS = {"image": "images", "annotation": "annotations", "category": "categories"}
# How exports say that a category is of no other.
_NO_GROUP = {"", "none", "null"}


def read_data_set(root: Path) -> DataSet:
    """Read the data set at ``root`` and check it.

    Raises:
        ValueError: no known layout, an empty split, an image that is missing, not whole or of another size, something
            that is listed twice, a category outside the head, or a box outside its image; names the file and the
            annotation.
    """
    layout = layout_of(root)
    train, valid, categories, groups = _READERS[layout](root)
    known = _classes(train, categories, groups)
    for split in (train, valid):
        check(split, known, layout)
    _check_files(valid)
    return DataSet(root, layout, categories, train, valid, _digest(root, (train, valid)))


class _Read(NamedTuple):
    """What the files of a data set say. ``groups`` are the names of categories that others are of."""

    train: Split
    valid: Split
    categories: dict[int, str]
    groups: frozenset[str] = frozenset()


def workload(name: str, data: DataSet) -> str:
    """Return how a record names the data that it was made with: the ``name`` of the data set, and its digest."""
    return f"{name} {data.digest[:12]}"


def check_unchanged(root: Path, records: Iterable[Record]) -> None:
    """Check that a session that goes on finds the data set at ``root`` as its finished ``records`` found it.

    Raises:
        ValueError: it changed; names a run that learned from other data.
    """
    data = read_data_set(root)
    for record in records:
        then, now = record.environment.workload or "", workload(record.case.data, data)
        if record.status == "finished" and record.case.takes_data and then and not then.startswith(now):
            run = f"{record.case_id} run {record.run}"
            msg = f"{root}: the data set changed since {run}: {then}, and {now} now; start a new session"
            raise ValueError(msg)


def folder_name(root: Path) -> str:
    """Return the name of the folder of a data set, as a case's id can hold it: lower case, digits, hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", root.resolve().name.lower()).strip("-") or "data"


def layout_of(root: Path) -> Layout:
    """Return the layout of the data set at ``root``, told by its annotation files.

    Raises:
        ValueError: none of the known ones; says what each would need.
    """
    if not root.is_dir():
        msg = f"{root}: no such folder; --data takes the folder of a data set"
        raise ValueError(msg)
    if (root / "train" / ROBOFLOW_FILE).is_file():
        return "roboflow"
    if (root / "annotations" / "instances_train2017.json").is_file():
        return "coco"
    if any((root / name).is_file() for name in YOLO_FILES):
        return "yolo"
    msg = (
        f"{root}: no data set that is known: train/{ROBOFLOW_FILE} (Roboflow), annotations/instances_train2017.json "
        f"(COCO 2017) and data.yaml (YOLO) are all missing"
    )
    raise ValueError(msg)


def _read_roboflow(root: Path) -> _Read:
    return _read_pair([(name, root / name / ROBOFLOW_FILE, root / name) for name in ("train", "valid")])


def _classes(train: Split, categories: dict[int, str], groups: frozenset[str]) -> dict[int, str]:
    """Return those of ``categories`` that rfdetr takes for classes.

    From 1.9.4 on at the latest it drops of a Roboflow export what only groups others: one of ``groups`` with no box in
    ``train`` (datasets/coco.py, filter_parent_categories); where that leaves none, it keeps all.
    """
    marked = {found.category for found in train.annotations}
    kept = {number: name for number, name in categories.items() if name not in groups or number in marked}
    return kept or categories


def _read_coco(root: Path) -> _Read:
    names = ("train2017", "val2017")
    splits = [(name, root / "annotations" / f"instances_{name}.json", root / name) for name in names]
    return _read_pair(splits)._replace(groups=frozenset())  # rfdetr takes COCO's own categories as they are


def _read_yolo(root: Path) -> _Read:
    return _Read(*read_yolo(root))


def _read_pair(splits: list[tuple[str, Path, Path]]) -> _Read:
    (train, categories, groups), (valid, others, _) = (_read_json(*split) for split in splits)
    for number, name in others.items():
        if categories.get(number, name) != name:
            msg = f"{valid.file}: category {number} is {name!r}, and {categories[number]!r} in {train.file}"
            raise ValueError(msg)
    return _Read(train, valid, categories, groups)


def _read_json(name: str, file: Path, folder: Path) -> tuple[Split, dict[int, str], frozenset[str]]:
    document = _parsed(file)
    try:
        for what in ("image", "annotation", "category"):
            reject_duplicates((str(entry["id"]) for entry in document[_LISTS[what]]), what)
        images = [_image(entry, folder) for entry in document["images"]]
        annotations = [_annotation(entry) for entry in document["annotations"]]
        categories = {_id(entry, "id", "category"): entry["name"] for entry in document["categories"]}
        groups = frozenset(parent for entry in document["categories"] if (parent := _group(entry)) != entry["name"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        msg = f"{file}: not as COCO has it: {type(error).__name__}: {error}"
        raise ValueError(msg) from error
    return Split(name, file, images, annotations), categories, groups - _NO_GROUP


def _group(category: dict[str, Any]) -> str:
    return str(category.get("supercategory") or "")


def _parsed(file: Path) -> Any:
    text = read_text(file)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{file}: cannot be read: {error}"
        raise ValueError(msg) from error


def _image(entry: dict[str, Any], folder: Path) -> Image:
    number = _id(entry, "id", "image")
    where = f"image {number}"
    return Image(number, folder / entry["file_name"], _number(entry, "width", where), _number(entry, "height", where))


def _id(entry: dict[str, Any], name: str, of: str) -> int:
    found = entry[name]
    if not isinstance(found, int) or isinstance(found, bool):
        msg = f"{name} {found!r} of {of} {entry['id']!r} is no whole number"
        raise TypeError(msg)
    return found


def _number(entry: dict[str, Any], name: str, where: str) -> float:
    found = entry.get(name)
    if not isinstance(found, int | float):
        msg = f"{name} {found!r} of {where} is no number"
        raise TypeError(msg)
    return found


def _annotation(entry: dict[str, Any]) -> Annotation:
    where, crowd = f"annotation {_id(entry, 'id', 'annotation')}", bool(entry.get("iscrowd", 0))
    _number(entry, "area", where)  # rfdetr reads it, and ends without where it is not there
    image, category = (_id(entry, name, "annotation") for name in ("image_id", "category_id"))
    return Annotation(image, category, _box(entry, where), where, crowd)


def _box(entry: dict[str, Any], where: str) -> tuple[float, float, float, float]:
    found = entry.get("bbox")
    if not is_box(found):
        msg = f"bbox {found!r} of {where} is no list of four numbers"
        raise TypeError(msg)
    x, y, width, height = map(float, found)
    return x, y, width, height


_READERS: dict[Layout, Callable[[Path], _Read]] = {
    "roboflow": _read_roboflow,
    "coco": _read_coco,
    "yolo": _read_yolo,
}


def _check_files(split: Split) -> None:
    """Raise ValueError where two images are one file: what is detected there could be of either.

    A training may well see an image twice, so this is of what is scored.
    """
    seen: dict[Path, Image] = {}
    for image in split.images:
        first = seen.setdefault(image.path.resolve(), image)
        if first is not image:
            msg = f"{split.file}: images {first.id} and {image.id} are one file, {image.path}; list it once"
            raise ValueError(msg)


def _digest(root: Path, splits: Iterable[Split]) -> str:
    digest = hashlib.sha256()
    for split in splits:
        for image in split.images:
            path = image.path.relative_to(root) if image.path.is_relative_to(root) else image.path
            digest.update(
                f"{path} {image.width} {image.height} {image.path.stat().st_size}\n".encode(errors="surrogateescape")
            )
        for found in split.annotations:
            digest.update(f"{found.image} {found.category} {found.box} {found.crowd}\n".encode())
    return digest.hexdigest()
