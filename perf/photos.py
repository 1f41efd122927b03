"""Generated photographs: pictures that cost as much to decode as real ones, each written in several image formats.

Noise whose amplitude falls with frequency as that of photographs does, with the shapes of :mod:`perf.shapes` on it.
White noise is dear to decode as JPEG, and flat colour is cheap.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from perf.shapes import ANNOTATIONS, annotation, header, mask_of, place

# Raise it whenever the same spec would give other pictures.
VERSION = 1
Format = Literal["jpeg", "png", "bmp"]
FORMATS: tuple[Format, ...] = get_args(Format)
# COCO 2017 has 118k training images in 18 GB, 152 kB each; of 24 of these at 640 x 480 px a JPEG has 146 kB.
_FALL, _QUALITY = 0.95, 90
_GREY, _CONTRAST, _COLOUR = 118, 55, 0.35
# COCO's mean is about 7 objects an image.
_OBJECTS = 7


@dataclass(frozen=True)
class PhotoSpec:
    """What pictures to write: ``images`` of ``width`` x ``height`` px. One seed gives the same pictures and boxes."""

    images: int = 24
    width: int = 640
    height: int = 480
    seed: int = 0

    @property
    def name(self) -> str:
        """A folder's name."""
        return f"photos-{self.images}-{self.width}x{self.height}-{self.seed}"

    @property
    def text(self) -> str:
        """What they are, in words."""
        return f"{self.images} generated photographs of {self.width} x {self.height} px (version {VERSION})"


def write_photos(folder: Path, spec: PhotoSpec, formats: Iterable[Format] = FORMATS) -> dict[Format, Path]:
    """Write a Roboflow-COCO data set of the same pictures and boxes for each of ``formats``; return their folders.

    Each is below ``folder`` and has ``train``, with all the pictures, and ``valid``, with the first.
    """
    roots = {kind: folder / f"{spec.name}-{kind}" for kind in formats}
    documents = {kind: _Documents(kind) for kind in roots}
    for root in roots.values():
        (root / "train").mkdir(parents=True)
        (root / "valid").mkdir()
    for index in range(spec.images):
        draw = random.Random(f"{spec.seed} {index} {spec.width} {spec.height}")
        shapes = place(draw, spec.width, spec.height, _OBJECTS)
        pixels = photo(spec.width, spec.height, seed=draw.getrandbits(32))
        for shape in shapes:
            pixels[mask_of(shape.outline, spec.width, spec.height)] = shape.colour
        for kind, root in roots.items():
            documents[kind].add(root, index, pixels, shapes)
    for kind, root in roots.items():
        documents[kind].write(root)
    return roots


class _Documents:
    """The annotations of one format's data set in the making, by split."""

    def __init__(self, kind: Format) -> None:
        self.kind = kind
        self.images: dict[str, list[dict[str, Any]]] = {"train": [], "valid": []}
        self.annotations: dict[str, list[dict[str, Any]]] = {"train": [], "valid": []}

    def add(self, root: Path, index: int, pixels: NDArray[np.uint8], shapes: list[Any]) -> None:
        height, width, _ = pixels.shape
        name = f"{index:05d}.{'jpg' if self.kind == 'jpeg' else self.kind}"
        for split in ("train", "valid")[: 2 if index == 0 else 1]:
            save(pixels, root / split / name, self.kind)
            self.images[split].append({"id": index, "license": 1, "file_name": name, "height": height, "width": width})
            marked = self.annotations[split]
            marked += [annotation(len(marked) + k, index, shape) for k, shape in enumerate(shapes)]

    def write(self, root: Path) -> None:
        for split, images in self.images.items():
            document = {**header(), "images": images, "annotations": self.annotations[split]}
            (root / split / ANNOTATIONS).write_text(json.dumps(document) + "\n", encoding="utf-8")


def save(pixels: NDArray[np.uint8], path: Path, kind: Format) -> None:
    """Write uint8 (height, width, 3) ``pixels`` to ``path``."""
    from PIL import Image

    more = {"quality": _QUALITY} if kind == "jpeg" else {}
    Image.fromarray(pixels).save(path, format=kind, **more)


def photo(width: int, height: int, seed: int) -> NDArray[np.uint8]:
    """Return uint8 (height, width, 3): noise with the spectrum of a photograph, in brightness and two colours."""
    draw = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.rfftfreq(width)[None, :], np.fft.fftfreq(height)[:, None])
    frequency[0, 0] = np.inf  # no constant part
    bright, red, blue = (_falling(draw, frequency, width) for _ in range(3))
    channels = (bright + _COLOUR * red, bright - _COLOUR * (red + blue) / 2, bright + _COLOUR * blue)
    mixed = _GREY + _CONTRAST * np.stack(channels, axis=-1)
    return np.clip(mixed, 0, 255).astype(np.uint8)


def _falling(draw: np.random.Generator, frequency: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    height = len(frequency)
    white = np.fft.rfft2(draw.standard_normal((height, width)))
    field: NDArray[np.float64] = np.fft.irfft2(white / frequency**_FALL, (height, width))
    spread = float(field.std())
    return field / spread
