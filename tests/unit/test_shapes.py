from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf import shapes
from perf.shapes import ANNOTATIONS, KINDS, MANIFEST, SIZES, Shape, ShapesSpec, clip, mask_of, place, png, write_shapes

SMALL = ShapesSpec(images_train=8, images_valid=2)
# Of all files. Another digest is another data set: raise shapes.VERSION with it.
DIGEST = "9c192ebbe3bbfd755532a8072c112999290ee10ed6046e151ecacaf03d661818"


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def document(folder: Path, split: str = "train") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / split / ANNOTATIONS).read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shapes(tmp_path_factory.mktemp("shapes"), SMALL)


def test_one_spec_gives_the_same_bytes_and_another_seed_others(written: Path, tmp_path: Path) -> None:
    again = write_shapes(tmp_path, SMALL)
    other = write_shapes(tmp_path, ShapesSpec(images_train=8, images_valid=2, seed=1))

    assert files(again) == files(written)
    assert other != again
    assert files(other).keys() == files(again).keys()
    assert not any(files(other)[name] == data for name, data in files(again).items() if name.endswith(".png"))


def test_the_bytes_of_this_version_are_known(written: Path) -> None:
    manifest = json.loads((written / MANIFEST).read_text(encoding="utf-8"))

    assert manifest["version"] == shapes.VERSION == 1
    assert hashlib.sha256("".join(manifest["files"].values()).encode()).hexdigest() == DIGEST


def test_train_and_valid_differ(written: Path) -> None:
    assert (written / "train/00000.png").read_bytes() != (written / "valid/00000.png").read_bytes()


def test_every_split_is_coco_as_roboflow_exports_it(written: Path) -> None:
    for split, count in (("train", 8), ("valid", 2)):
        found = document(written, split)
        assert [image["file_name"] for image in found["images"]] == [f"{k:05d}.png" for k in range(count)]
        assert [category["id"] for category in found["categories"]] == [0, 1, 2, 3]
        assert [category["name"] for category in found["categories"]] == ["shapes", *KINDS]
        assert [annotation["id"] for annotation in found["annotations"]] == list(range(len(found["annotations"])))
        assert {annotation["image_id"] for annotation in found["annotations"]} == set(range(count))
        assert {annotation["iscrowd"] for annotation in found["annotations"]} == {0}


def test_there_are_eight_sizes_of_eight_aspect_ratios_and_files_have_them(written: Path, tmp_path: Path) -> None:
    assert len({width / height for width, height in SIZES}) == len(SIZES) == 8
    scaled = write_shapes(tmp_path, ShapesSpec(images_train=8, images_valid=1, scale=2))
    for folder, scale in ((written, 1), (scaled, 2)):
        for image, size in zip(document(folder)["images"], SIZES, strict=True):
            with PIL.Image.open(folder / "train" / image["file_name"]) as opened:
                assert opened.size == (image["width"], image["height"]) == (size[0] * scale, size[1] * scale)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
def test_boxes_and_areas_are_those_of_the_masks_that_coco_tools_make(written: Path) -> None:
    from pycocotools.coco import COCO

    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(written / "train" / ANNOTATIONS))
    assert len(coco.anns) > 8
    for annotation in coco.anns.values():
        mask = coco.annToMask(annotation)
        rows, columns = np.nonzero(mask)
        x, y, width, height = annotation["bbox"]
        near = [x, y, x + width, y + height]
        assert near == pytest.approx([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], abs=1.5)
        assert mask.sum() == pytest.approx(annotation["area"], rel=0.1, abs=4)


def test_shapes_are_bright_where_their_masks_are_and_nowhere_else(written: Path) -> None:
    found = document(written)
    for image in found["images"]:
        pixels = np.asarray(PIL.Image.open(written / "train" / image["file_name"]))
        mask = np.zeros(pixels.shape[:2], dtype=bool)
        for annotation in found["annotations"]:
            if annotation["image_id"] == image["id"]:
                flat = annotation["segmentation"][0]
                mask |= mask_of(list(zip(flat[::2], flat[1::2], strict=True)), image["width"], image["height"])
        assert pixels[mask].min() >= 112
        assert pixels[~mask].max() < 64


def test_a_shape_across_the_border_keeps_only_what_is_seen() -> None:
    square = [(-10.0, -10.0), (10.0, -10.0), (10.0, 10.0), (-10.0, 10.0)]
    corner = Shape("rectangle", clip(square, 50, 40), (1, 2, 3))

    assert corner.box == (0, 0, 10, 10)
    assert corner.area == 100
    assert mask_of(corner.outline, 50, 40).sum() == 100
    assert clip([(x + 100, y) for x, y in square], 50, 40) == []


def test_some_shapes_are_cut_by_the_border() -> None:
    draw = random.Random(0)
    placed = [shape for _ in range(50) for shape in place(draw, 100, 80, 3)]
    cut = [s for s in placed if s.box[0] == 0 or s.box[1] == 0 or s.box[0] + s.box[2] == 100]

    assert 10 < len(cut) < len(placed)
    assert {shape.kind for shape in placed} == set(KINDS)


@given(seed=st.integers(0, 2**32), width=st.integers(32, 400), height=st.integers(32, 400), count=st.integers(1, 6))
def test_placed_shapes_lie_inside_the_image_apart_from_each_other(
    seed: int, width: int, height: int, count: int
) -> None:
    placed = place(random.Random(seed), width, height, count)

    assert 1 <= len(placed) <= count
    for shape in placed:
        x, y, w, h = shape.box
        assert x >= 0
        assert y >= 0
        assert x + w <= width + 1e-9
        assert y + h <= height + 1e-9
        assert shape.area > 0
        assert len(shape.outline) >= 3
    assert np.sum([mask_of(shape.outline, width, height) for shape in placed], axis=0).max() == 1


def test_a_png_larger_than_one_stored_block_is_read_back() -> None:
    pixels = np.arange(200 * 150 * 3, dtype=np.uint32).astype(np.uint8).reshape(150, 200, 3)
    with PIL.Image.open(io.BytesIO(png(pixels))) as opened:
        opened.load()
        assert (np.asarray(opened) == pixels).all()


def test_a_set_that_is_there_is_used_again(written: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in written.rglob("*")}

    assert write_shapes(written.parent, SMALL) == written
    assert {path: path.stat().st_mtime_ns for path in written.rglob("*")} == before


@pytest.mark.parametrize("damage", ["changed", "missing", "added", "manifest"])
def test_a_damaged_set_is_written_anew(tmp_path: Path, damage: str) -> None:
    target = write_shapes(tmp_path, SMALL)
    good = files(target)
    if damage == "changed":
        (target / "train/00003.png").write_bytes(b"half")
    elif damage == "missing":
        (target / "valid/00001.png").unlink()
    elif damage == "added":
        (target / "train/00099.png").write_bytes(b"")
    else:
        (target / MANIFEST).write_text("{", encoding="utf-8")

    assert write_shapes(tmp_path, SMALL) == target
    assert files(target) == good
    assert [path.name for path in tmp_path.iterdir()] == [SMALL.name]


def test_an_interrupted_writing_leaves_no_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def interrupted(pixels: Any) -> bytes:
        written.append(1)
        if len(written) == 3:
            raise KeyboardInterrupt
        return png(pixels)

    monkeypatch.setattr(shapes, "png", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_shapes(tmp_path, SMALL)
    assert list(tmp_path.iterdir()) == []


def test_a_set_that_another_process_finishes_first_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = shapes._put

    def late(made: Path, target: Path) -> None:
        monkeypatch.setattr(shapes, "_put", put)
        write_shapes(target.parent, SMALL)
        put(made, target)

    monkeypatch.setattr(shapes, "_put", late)
    target = write_shapes(tmp_path, SMALL)

    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert len(document(target)["images"]) == 8


@pytest.mark.parametrize("field", ["images_train", "images_valid", "scale", "objects"])
def test_a_spec_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=rf"at least 1: .*{field}=0"):
        ShapesSpec(**{field: 0})


def test_every_field_of_a_spec_is_in_its_name() -> None:
    base = ShapesSpec()
    others = {ShapesSpec(**{name: 77}).name for name in vars(base)}

    assert len(others | {base.name}) == len(vars(base)) + 1
