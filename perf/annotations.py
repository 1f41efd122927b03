"""Images and their boxes as a data set lists them, and what must hold before anything trains on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn, TypeGuard

from perf.image_files import look_at, opened

Layout = Literal["coco", "roboflow", "yolo"]
# rfdetr leaves its head as it is for COCO's own layout, whose category ids are its labels: 90 is its default.
COCO_HEAD = 90
# Annotators round; rfdetr clips a box to the image.
TOLERANCE_PX = 1.0
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
        """Number of classes of the head, which stored baselines were trained with.

        rfdetr would leave out what only groups others, as the generated set has one: a class that no box is of.
        """
        return COCO_HEAD if self.layout == "coco" else len(self.categories)


def check(split: Split, categories: dict[int, str], layout: Layout) -> None:
    """Raise ValueError where a split is empty, an image not whole or of another size, or a box of no image or class."""
    if not split.images or not split.annotations:
        _refuse_empty(split, "images" if not split.images else "annotations")
    for image, look in zip(split.images, look_at(image.path for image in split.images), strict=True):
        if look.problem:  # found while training, nobody would say which file it was
            msg = f"{split.file}: image {image.id}: {image.path} is {look.problem}"
            raise ValueError(msg)
    if layout != "yolo":  # whose sizes are those of the files
        _check_sizes(split)
    images = {image.id: image for image in split.images}
    for annotation in split.annotations:
        _check_annotation(annotation, images, split, categories, layout)
    if not any(not found.crowd and min(found.box[2:]) > 0 for found in split.annotations):
        _refuse_empty(split, "box but those of crowds and those without an area")


def _refuse_empty(split: Split, what: str) -> NoReturn:
    msg = f"{split.file}: the split {split.name} is empty: no {what}"
    raise ValueError(msg)


def is_box(found: object) -> TypeGuard[list[float]]:
    """Return whether ``found`` is what COCO has for a box: a list of four numbers."""
    return isinstance(found, list) and len(found) == 4 and all(isinstance(one, int | float) for one in found)


def size_of(path: Path) -> tuple[int, int]:
    """Return width and height in px of an image file, by its head alone."""
    try:
        with opened(path) as image:
            width, height = image.size
    except Exception as error:  # each decoder has exceptions of its own
        msg = f"{path}: no image that can be read: {error}"
        raise ValueError(msg) from error
    return width, height


def read_text(file: Path) -> str:
    """Return the text of an annotation file, or raise ValueError that names it."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        msg = f"{file}: cannot be read: {error}"
        raise ValueError(msg) from error


def _check_sizes(split: Split) -> None:
    """Raise ValueError where an image's size is not its file's: rfdetr clips boxes to the one that it reads."""
    for image in split.images[:: max(1, len(split.images) // MOST_OPENED)]:
        width, height = size_of(image.path)
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
