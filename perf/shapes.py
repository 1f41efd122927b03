"""The generated data set: simple shapes on noise, in the COCO layout that Roboflow exports.

The class is the kind of shape, so that a detector can learn it in minutes. Random numbers come from
:mod:`random` and files are encoded here, so that one spec gives the same bytes with any NumPy, Pillow or zlib.
"""

from __future__ import annotations

import binascii
import dataclasses
import json
import math
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf.record import file_digest

# Raise it whenever the same spec would give other bytes.
VERSION = 1
KINDS = ("rectangle", "ellipse", "triangle")
# Width and height in px at scale 1: eight aspect ratios from 2:3 to 2:1.
SIZES = ((160, 120), (120, 160), (144, 144), (192, 108), (96, 144), (200, 100), (144, 128), (110, 160))
MANIFEST = "shapes.json"
ANNOTATIONS = "_annotations.coco.json"

# An ellipse's outline; a multiple of four, so that its extreme points are among the corners.
_ELLIPSE_CORNERS = 24
# Noise is dark and shapes are bright: an image tells them apart at any size.
_NOISE_BITS = 6
_TRIES = 8

Point = tuple[float, float]
Polygon = list[Point]


@dataclass(frozen=True)
class ShapesSpec:
    """What a data set consists of; equal specs give equal bytes.

    ``scale`` multiplies every one of :data:`SIZES`; an image holds 1 to ``objects`` shapes.
    """

    images_train: int = 48
    images_valid: int = 8
    seed: int = 0
    scale: int = 1
    objects: int = 4

    def __post_init__(self) -> None:
        if min(self.images_train, self.images_valid, self.scale, self.objects) < 1:
            msg = f"every count of a data set must be at least 1: {self}"
            raise ValueError(msg)

    @property
    def name(self) -> str:
        """A folder's name, another for every spec and version."""
        numbers = (self.images_train, self.images_valid, self.seed, self.scale, self.objects)
        return "-".join(map(str, ("shapes", f"v{VERSION}", *numbers)))


@dataclass(frozen=True)
class Shape:
    """One shape: its kind, and its visible outline in px, (x, y) corners, convex and inside the image."""

    kind: str
    outline: Polygon
    colour: tuple[int, int, int]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """COCO's bbox of the outline: x, y, width, height in px."""
        xs, ys = zip(*self.outline, strict=True)
        return min(xs), min(ys), round(max(xs) - min(xs), 2), round(max(ys) - min(ys), 2)

    @property
    def area(self) -> float:
        """Area within the outline in square px."""
        return round(abs(sum(_cross(a, b) for a, b in _edges(self.outline))) / 2, 2)


def write_shapes(folder: Path, spec: ShapesSpec) -> Path:
    """Write the data set of ``spec`` below ``folder`` and return its own folder, which has ``train`` and ``valid``.

    One that is there, whole and unchanged, is used again. It is written elsewhere and then renamed, so that neither
    an interruption nor another process at the same work leaves half a set under its name.
    """
    target = folder / spec.name
    if _is_whole(target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=f".{spec.name}."))
    try:
        _write(scratch / spec.name, spec)
        _put(scratch / spec.name, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _put(made: Path, target: Path) -> None:
    if target.exists() and not _is_whole(target):
        shutil.rmtree(target)
    try:
        made.rename(target)
    except OSError:
        # Another process was first; its set has the same bytes.
        if not _is_whole(target):
            raise


def _is_whole(target: Path) -> bool:
    """Return whether the set has exactly the files, with exactly the bytes, that its manifest lists."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(manifest.get("files") == _digests(target))


def _digests(target: Path) -> dict[str, str]:
    paths = sorted(path for path in target.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(target).as_posix(): file_digest(path) for path in paths}


def _write(target: Path, spec: ShapesSpec) -> None:
    for split, images in (("train", spec.images_train), ("valid", spec.images_valid)):
        _write_split(target / split, images, random.Random(f"{split} {spec.seed}"), spec)
    _write_json(target / MANIFEST, {"version": VERSION, "spec": dataclasses.asdict(spec), "files": _digests(target)})


def _write_split(folder: Path, count: int, draw: random.Random, spec: ShapesSpec) -> None:
    folder.mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(count):
        width, height = (side * spec.scale for side in SIZES[index % len(SIZES)])
        name = f"{index:05d}.png"
        shapes = place(draw, width, height, draw.randint(1, spec.objects))
        (folder / name).write_bytes(png(paint(draw, width, height, shapes)))
        images.append({"id": index, "license": 1, "file_name": name, "height": height, "width": width})
        annotations += [annotation(len(annotations) + k, index, shape) for k, shape in enumerate(shapes)]
    _write_json(folder / ANNOTATIONS, {**header(), "images": images, "annotations": annotations})


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8", newline="\n")


def header() -> dict[str, Any]:
    """Return what a COCO file says before its images and annotations: the classes, as Roboflow lists them."""
    # Roboflow puts a category without annotations before the classes and names it as their supercategory.
    root = {"id": 0, "name": "shapes", "supercategory": "none"}
    classes = [{"id": k, "name": kind, "supercategory": "shapes"} for k, kind in enumerate(KINDS, start=1)]
    return {
        "info": {"version": str(VERSION), "description": "generated shapes of rfdetr-perf"},
        "licenses": [{"id": 1, "url": "", "name": "Apache-2.0"}],
        "categories": [root, *classes],
    }


def annotation(number: int, image: int, shape: Shape) -> dict[str, Any]:
    """Return the COCO annotation of ``shape``: one polygon, in px."""
    return {
        "id": number,
        "image_id": image,
        "category_id": KINDS.index(shape.kind) + 1,
        "bbox": list(shape.box),
        "area": shape.area,
        "segmentation": [[coordinate for corner in shape.outline for coordinate in corner]],
        "iscrowd": 0,
    }


def place(draw: random.Random, width: int, height: int, count: int) -> list[Shape]:
    """Return 1 to ``count`` shapes whose boxes do not touch; some are cut by the border, none by more than half a side.

    ``width`` and ``height`` are the image's, in px.
    """
    shapes: list[Shape] = []
    for _ in range(count):
        for _ in range(_TRIES):
            shape = _shape(draw, width, height)
            if not any(_touch(shape.box, other.box) for other in shapes):
                shapes.append(shape)
                break
    return shapes


def _shape(draw: random.Random, width: int, height: int) -> Shape:
    kind = draw.choice(KINDS)
    colour = (draw.randint(112, 255), draw.randint(112, 255), draw.randint(112, 255))
    short = min(width, height)
    half_x, half_y = (short * draw.uniform(0.1, 0.25) for _ in "xy")
    # The centre is inside, so at least a quarter of the shape's box is.
    x, y = width * draw.random(), height * draw.random()
    whole = [(round(x + half_x * u, 2), round(y + half_y * v, 2)) for u, v in _unit_outline(kind)]
    return Shape(kind, clip(whole, width, height), colour)


def _unit_outline(kind: str) -> Polygon:
    """Return the corners of a shape that fills -1 ... 1 in both axes, in one sense of rotation."""
    if kind == "rectangle":
        return [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    if kind == "triangle":
        return [(0, -1), (1, 1), (-1, 1)]
    angles = (2 * math.pi * k / _ELLIPSE_CORNERS for k in range(_ELLIPSE_CORNERS))
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def _touch(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return all(a[k] <= b[k] + b[k + 2] and b[k] <= a[k] + a[k + 2] for k in (0, 1))


def clip(polygon: Polygon, width: float, height: float) -> Polygon:
    """Return the part of a convex polygon inside an image of ``width`` x ``height`` px; empty where none is."""
    for axis, sign, bound in ((0, 1, 0.0), (0, -1, -width), (1, 1, 0.0), (1, -1, -height)):
        polygon = list(_keep_side(polygon, axis, sign, bound))
    # A corner on the border is both kept and cut to; it is one corner.
    return list(dict.fromkeys(polygon))


def _keep_side(polygon: Polygon, axis: int, sign: int, bound: float) -> Iterator[Point]:
    """Yield the polygon's part where ``sign * coordinate >= bound``."""
    for a, b in _edges(polygon):
        before, after = sign * a[axis] - bound, sign * b[axis] - bound
        if before >= 0:
            yield a
        if (before >= 0) != (after >= 0):
            share = before / (before - after)
            cut = [round(a[k] + share * (b[k] - a[k]), 2) for k in (0, 1)]
            cut[axis] = sign * bound
            yield cut[0], cut[1]


def _edges(polygon: Polygon) -> Iterator[tuple[Point, Point]]:
    return zip(polygon, polygon[1:] + polygon[:1], strict=True)


def _cross(a: Point, b: Point) -> float:
    return a[0] * b[1] - a[1] * b[0]


def mask_of(outline: Polygon, width: int, height: int) -> NDArray[np.bool_]:
    """Return bool (height, width): the pixels whose centres lie within a convex ``outline``."""
    x = np.arange(width)[None, :] + 0.5
    y = np.arange(height)[:, None] + 0.5
    inside = np.ones((height, width), dtype=np.bool_)
    for a, b in _edges(outline):
        inside &= (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]) >= 0
    return inside


def paint(draw: random.Random, width: int, height: int, shapes: list[Shape]) -> NDArray[np.uint8]:
    """Return uint8 (height, width, 3): noise with ``shapes`` on it."""
    noise = np.frombuffer(draw.randbytes(width * height * 3), dtype=np.uint8)
    pixels: NDArray[np.uint8] = np.right_shift(noise, 8 - _NOISE_BITS, dtype=np.uint8).reshape(height, width, 3)
    for shape in shapes:
        pixels[mask_of(shape.outline, width, height)] = shape.colour
    return pixels


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return uint8 (height, width, 3) ``pixels`` as an uncompressed PNG file: what zlib makes differs by version."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + width * 3), dtype=np.uint8)  # each row begins with its filter, 0 for none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", _stored(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", binascii.crc32(kind + data))


def _stored(data: bytes) -> bytes:
    """Return ``data`` as a zlib stream of stored blocks (RFC 1950 and 1951)."""
    most = 0xFFFF
    blocks = [data[start : start + most] for start in range(0, len(data), most)]
    stored = b"".join(
        struct.pack("<BHH", index == len(blocks) - 1, len(block), len(block) ^ most) + block
        for index, block in enumerate(blocks)
    )
    return b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(data))
