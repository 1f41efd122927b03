"""Data sets by path: COCO 2017's layout, Roboflow's export of COCO, YOLO. Read and checked before anything trains.

The images are not decoded: those of a YOLO set are opened for their size, the others must be there, and some of them
are opened to see that their size is the listed one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perf.record import Record, reject_duplicates

Layout = Literal["coco", "roboflow", "yolo"]
# rfdetr leaves its head as it is for COCO's own layout, whose category ids are its labels: 90 is its default.
COCO_HEAD = 90
# Annotators round; rfdetr clips a box to the image.
TOLERANCE_PX = 1.0
YOLO_FILES = ("data.yaml", "data.yml")
YOLO_IMAGES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
ROBOFLOW_FILE = "_annotations.coco.json"
_LISTS = {"image": "images", "annotation": "annotations", "category": "categories"}
# Of a split; to open all of COCO 2017's would take half a minute in every run, and what resized them resized all.
MOST_OPENED = 1000


@dataclass(frozen=True)
class Image:
    """One image, by its path, with its size in px."""

    id: int
    path: Path
    width: float
    height: float


@dataclass(frozen=True)
class Annotation:
    """One box: x, y of its corner, width, height in px. ``where`` names it in its file."""

    image: int
    category: int
    box: tuple[float, float, float, float]
    where: str
    crowd: bool = False


@dataclass(frozen=True)
class Split:
    """The images and boxes of one split, and the file that lists them."""

    name: str
    file: Path
    images: list[Image]
    annotations: list[Annotation]


@dataclass(frozen=True)
class DataSet:
    """A checked data set. ``categories`` are names by id; ``classes`` is how many the model's head has to tell apart.

    ``digest`` is that of the annotations and of the images' names and sizes in bytes.
    """

    root: Path
    layout: Layout
    categories: dict[int, str]
    train: Split
    valid: Split
    digest: str = field(compare=False)

    @property
    def classes(self) -> int:
        """Number of classes, as rfdetr would set it for this layout."""
        return COCO_HEAD if self.layout == "coco" else len(self.categories)


def read_data_set(root: Path) -> DataSet:
    """Read the data set at ``root`` and check it.

    Raises:
        ValueError: no known layout, an empty split, an image that is missing or has another size, something that is
            listed twice, a category outside the head, or a box outside its image; names the file and the annotation.
    """
    layout = layout_of(root)
    train, valid, categories = _READERS[layout](root)
    for split in (train, valid):
        _check(split, categories, layout)
    _check_files(valid)
    return DataSet(root, layout, categories, train, valid, _digest(root, (train, valid)))


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


def _read_roboflow(root: Path) -> tuple[Split, Split, dict[int, str]]:
    return _read_pair([(name, root / name / ROBOFLOW_FILE, root / name) for name in ("train", "valid")])


def _read_coco(root: Path) -> tuple[Split, Split, dict[int, str]]:
    names = ("train2017", "val2017")
    return _read_pair([(name, root / "annotations" / f"instances_{name}.json", root / name) for name in names])


def _read_pair(splits: list[tuple[str, Path, Path]]) -> tuple[Split, Split, dict[int, str]]:
    (train, categories), (valid, others) = (_read_json(*split) for split in splits)
    for number, name in others.items():
        if categories.get(number, name) != name:
            msg = f"{valid.file}: category {number} is {name!r}, and {categories[number]!r} in {train.file}"
            raise ValueError(msg)
    return train, valid, categories


def _read_json(name: str, file: Path, folder: Path) -> tuple[Split, dict[int, str]]:
    document = _parsed(file)
    try:
        for what in ("image", "annotation", "category"):
            reject_duplicates((str(entry["id"]) for entry in document[_LISTS[what]]), what)
        images = [
            Image(entry["id"], folder / entry["file_name"], _number(entry, "width"), _number(entry, "height"))
            for entry in document["images"]
        ]
        annotations = [_annotation(entry) for entry in document["annotations"]]
        categories = {entry["id"]: entry["name"] for entry in document["categories"]}
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{file}: not as COCO has it: {type(error).__name__}: {error}"
        raise ValueError(msg) from error
    return Split(name, file, images, annotations), categories


def _parsed(file: Path) -> Any:
    text = _text(file)
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"{file}: cannot be read: {error}"
        raise ValueError(msg) from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        msg = f"{file}: cannot be read: {error}"
        raise ValueError(msg) from error


def _number(entry: dict[str, Any], name: str) -> float:
    found = entry[name]
    if not isinstance(found, int | float):
        msg = f"{name} {found!r} of image {entry['id']} is no number"
        raise TypeError(msg)
    return found


def _annotation(entry: dict[str, Any]) -> Annotation:
    x, y, width, height = map(float, entry["bbox"])
    where, crowd = f"annotation {entry['id']}", bool(entry.get("iscrowd", 0))
    return Annotation(entry["image_id"], entry["category_id"], (x, y, width, height), where, crowd)


def _read_yolo(root: Path) -> tuple[Split, Split, dict[int, str]]:
    file = next(root / name for name in YOLO_FILES if (root / name).is_file())
    described = _yaml(file)
    names = described.get("names") or []
    categories = dict(names.items() if isinstance(names, dict) else enumerate(names))
    if sorted(map(str, categories)) != sorted(map(str, range(len(categories)))):
        msg = f"{file}: names are numbered {', '.join(map(str, categories))}; rfdetr needs 0, 1, 2 and so on"
        raise ValueError(msg)
    folders = _yolo_folder(root, described, ("train",)), _yolo_folder(root, described, ("val", "valid"))
    train, valid = (_yolo_split(folder, name) for folder, name in zip(folders, ("train", "valid"), strict=True))
    return train, valid, {int(number): str(name) for number, name in categories.items()}


def _yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        msg = f"{file}: cannot be read: {error}"
        raise ValueError(msg) from error
    if not isinstance(found, dict) or not isinstance(found.get("names"), list | dict):
        msg = f"{file}: no names in it; it needs a list of the classes' names"
        raise ValueError(msg)
    return found


def _yolo_folder(root: Path, described: dict[str, Any], names: tuple[str, ...]) -> Path:
    """Return the folder of a split's images that rfdetr reads: what the data file says, else by name.

    What it says counts only inside ``root`` and with labels beside it; Roboflow writes ``../train/images``.
    """
    base = root / str(described.get("path") or "")
    base = base if base.is_dir() or not base.is_relative_to(root) else root
    told = next((str(described[name]) for name in names if described.get(name) is not None), None)
    found = _labelled(base / told, root) if told is not None else None
    by_name = [root / name / "images" for name in ("train", "valid", "val") if name in names]
    return found or next((path for path in by_name if path.is_dir()), by_name[0])


def _labelled(folder: Path, root: Path) -> Path | None:
    """Return the folder, or the ``images`` in it, if labels lie beside it as rfdetr looks for them; else None."""
    if not folder.is_dir() or not folder.resolve().is_relative_to(root.resolve()):
        return None
    beside = any(path.is_dir() and path.resolve().is_relative_to(root.resolve()) for path in _beside(folder))
    if beside:
        return folder
    return folder / "images" if all((folder / name).is_dir() for name in ("images", "labels")) else None


def _beside(folder: Path) -> Iterator[Path]:
    """Yield the folders whose labels may be of the images in ``folder``, the likeliest first."""
    for place in reversed([place for place, part in enumerate(folder.parts) if part == "images"]):
        yield Path(*folder.parts[:place], "labels", *folder.parts[place + 1 :])


def _yolo_split(folder: Path, name: str) -> Split:
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in YOLO_IMAGES) if folder.is_dir() else []
    images = [_sized(number, path) for number, path in enumerate(paths)]
    annotations = [found for image in images for found in _yolo_boxes(image)]
    return Split(name, folder, images, annotations)


def _sized(number: int, path: Path) -> Image:
    return Image(number, path, *_size_of(path))


def _size_of(path: Path) -> tuple[int, int]:
    """Return width and height in px of an image file, by its head alone."""
    from PIL import Image as Pillow

    try:
        with Pillow.open(path) as image:
            width, height = image.size
    except OSError as error:
        msg = f"{path}: no image that can be read: {error}"
        raise ValueError(msg) from error
    return width, height


def labels_of(image: Path) -> Path:
    """Return the label file of a YOLO image: ``images`` becomes ``labels`` where it comes last in the path."""
    places = list(_beside(image.parent))
    folder = next((place for place in places if place.is_dir()), next(iter(places), image.parent))
    return folder / f"{image.stem}.txt"


def _yolo_boxes(image: Image) -> Iterable[Annotation]:
    file = labels_of(image.path)
    lines = _text(file).splitlines() if file.is_file() else []
    for number, line in enumerate(lines, 1):
        if line.split():
            yield _yolo_box(image, line.split(), f"{file} line {number}")


def _yolo_box(image: Image, words: list[str], where: str) -> Annotation:
    try:
        category, numbers = int(words[0]), [float(word) for word in words[1:]]
        left, top, right, bottom = _edges(numbers)
    except ValueError as error:
        msg = f"{where}: no box of YOLO (class x y width height, or a polygon): {error}"
        raise ValueError(msg) from error
    size = (left * image.width, top * image.height, (right - left) * image.width, (bottom - top) * image.height)
    return Annotation(image.id, category, size, where)


def _edges(numbers: list[float]) -> tuple[float, float, float, float]:
    if len(numbers) == 4:
        x, y, width, height = numbers
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    if len(numbers) < 6 or len(numbers) % 2:
        msg = f"{len(numbers)} numbers"
        raise ValueError(msg)
    xs, ys = numbers[::2], numbers[1::2]
    return min(xs), min(ys), max(xs), max(ys)


_READERS: dict[Layout, Callable[[Path], tuple[Split, Split, dict[int, str]]]] = {
    "roboflow": _read_roboflow,
    "coco": _read_coco,
    "yolo": _read_yolo,
}


def _check(split: Split, categories: dict[int, str], layout: Layout) -> None:
    if not split.images or not split.annotations:
        what = "images" if not split.images else "annotations"
        msg = f"{split.file}: the split {split.name} is empty: no {what}"
        raise ValueError(msg)
    for image in split.images:
        if not image.path.is_file():
            msg = f"{split.file}: image {image.id}: {image.path} is missing"
            raise ValueError(msg)
    if layout != "yolo":  # whose sizes are those of the files
        _check_sizes(split)
    images = {image.id: image for image in split.images}
    for annotation in split.annotations:
        _check_annotation(annotation, images, split, categories, layout)


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


def _check_sizes(split: Split) -> None:
    """Raise ValueError where an image's size is not its file's: rfdetr clips boxes to the one that it reads."""
    for image in split.images[:: max(1, len(split.images) // MOST_OPENED)]:
        width, height = _size_of(image.path)
        if (width, height) != (image.width, image.height):
            listed = f"{image.width:g} x {image.height:g} px"
            msg = f"{split.file}: image {image.id} is listed with {listed}, and {image.path} has {width} x {height}"
            raise ValueError(msg)


def _check_annotation(
    annotation: Annotation, images: dict[int, Image], split: Split, categories: dict[int, str], layout: Layout
) -> None:
    image, problem = images.get(annotation.image), ""
    if annotation.category not in categories:
        problem = f"category {annotation.category} is none of the categories {sorted(categories)}"
    elif layout == "coco" and not 0 <= annotation.category <= COCO_HEAD:
        problem = f"category {annotation.category} is outside the head, which has 0 to {COCO_HEAD}"
    elif image is None:
        problem = f"image {annotation.image} is not in the list of images"
    elif not _inside(annotation.box, image):
        shown = ", ".join(f"{number:g}" for number in annotation.box)
        problem = f"box {shown} is outside its image {image.path.name}, {image.width:g} x {image.height:g} px"
    if problem:
        msg = f"{split.file}: {annotation.where}: {problem}; correct it before training"
        raise ValueError(msg)


def _inside(box: tuple[float, float, float, float], image: Image) -> bool:
    x, y, width, height = box
    least, most = min(x, y), max(x + width - image.width, y + height - image.height)
    return all(map(math.isfinite, box)) and min(width, height) >= 0 and least >= -TOLERANCE_PX and most <= TOLERANCE_PX


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
