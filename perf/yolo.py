"""Data sets of YOLO: a data.yaml, and a text file of labels an image, found where rfdetr finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perf.annotations import Annotation, Image, Split, read_text, size_of

YOLO_FILES = ("data.yaml", "data.yml")
YOLO_IMAGES = frozenset({".bmp", ".dng", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"})


def read_yolo(root: Path) -> tuple[Split, Split, dict[int, str]]:
    """Return both splits of the data set at ``root``, and its classes; raise ValueError where a file is not so."""
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

    text = read_text(file)
    try:
        found = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
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
    there = folder.iterdir() if folder.is_dir() else []
    paths = sorted(path for path in there if path.suffix.lower() in YOLO_IMAGES and path.is_file())
    images = [_sized(number, path) for number, path in enumerate(paths)]
    annotations = [found for image in images for found in _yolo_boxes(image)]
    return Split(name, folder, images, annotations)


def _sized(number: int, path: Path) -> Image:
    return Image(number, path, *size_of(path))


def labels_of(image: Path) -> Path:
    """Return the label file of a YOLO image: ``images`` becomes ``labels`` where it comes last in the path."""
    places = list(_beside(image.parent))
    folder = next((place for place in places if place.is_dir()), next(iter(places), image.parent))
    return folder / f"{image.stem}.txt"


def _yolo_boxes(image: Image) -> Iterable[Annotation]:
    file = labels_of(image.path)
    lines = read_text(file).split("\n") if file.exists() else []
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
