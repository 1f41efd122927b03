from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from perf.dataset import read_data_set
from perf.photos import FORMATS, Format, PhotoSpec, photo, write_photos

SPEC = PhotoSpec(images=3, width=96, height=64)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[Format, Path]:
    return write_photos(tmp_path_factory.mktemp("photos"), SPEC)


def opened(path: Path) -> tuple[str, NDArray[np.int64]]:
    with Image.open(path) as image:
        return str(image.format), np.asarray(image, dtype=np.int64)


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_is_a_data_set_of_files_of_that_format(kind: Format, roots: dict[Format, Path]) -> None:
    found = read_data_set(roots[kind])

    assert (found.layout, len(found.train.images), len(found.valid.images)) == ("roboflow", 3, 1)
    pictures = [opened(image.path) for image in found.train.images]
    assert {(told, pixels.shape) for told, pixels in pictures} == {(kind.upper(), (64, 96, 3))}
    numbers = [entry["id"] for entry in json.loads(found.train.file.read_text())["annotations"]]
    assert len(set(numbers)) == len(numbers) == len(found.train.annotations) > 3


def test_all_formats_hold_the_same_pictures_and_boxes(roots: dict[Format, Path]) -> None:
    sets = {kind: read_data_set(root) for kind, root in roots.items()}
    pixels = {kind: np.stack([opened(image.path)[1] for image in found.train.images]) for kind, found in sets.items()}

    assert len({str(found.train.annotations) for found in sets.values()}) == 1
    assert np.array_equal(pixels["png"], pixels["bmp"])
    assert np.abs(pixels["jpeg"] - pixels["png"]).mean() < 8
    assert pixels["png"].std() > 20


def test_one_seed_gives_one_picture() -> None:
    assert np.array_equal(photo(40, 30, seed=1), photo(40, 30, seed=1))
    assert not np.array_equal(photo(40, 30, seed=1), photo(40, 30, seed=2))


def test_a_picture_is_as_dear_to_compress_as_a_photograph(tmp_path: Path) -> None:
    [root] = write_photos(tmp_path, PhotoSpec(images=2), ["jpeg"]).values()

    # COCO's training images: 18 GB for 118 thousand.
    sizes = [path.stat().st_size for path in (root / "train").glob("*.jpg")]
    assert len(sizes) == 2
    assert 100e3 < min(sizes) <= max(sizes) < 220e3
