from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_data import write_yolo, wrong

from perf.dataset import read_data_set
from perf.yolo import labels_of


def test_a_yolo_set_is_read_boxes_and_polygons(tmp_path: Path) -> None:
    found = read_data_set(write_yolo(tmp_path, "0 0.5 0.5 0.25 0.5\n\n1 0.25 0.25 0.5 0.25 0.5 0.75\n"))

    assert (found.layout, found.categories, found.classes) == ("yolo", {0: "cell", 1: "platelet"}, 2)
    first, second = found.train.annotations
    assert (first.category, first.box) == (0, (24, 12, 16, 24))
    assert (second.category, second.box) == (1, (16, 12, 16, 24))


@pytest.mark.parametrize(
    "where", ["train: train/images\nval: valid/images\n", "train: ../train/images\nval: ../valid/images\n"]
)
def test_a_yolo_set_says_where_its_splits_are(tmp_path: Path, where: str) -> None:
    found = read_data_set(write_yolo(tmp_path, data=f"names: {{0: cell}}\n{where}"))

    assert found.valid.images[0].path == tmp_path / "valid" / "images" / "a.png"


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("", "valid/images"),  # though there is val/images
        ("val: gone\nvalid: val/images\n", "valid/images"),
        ("val: ../val/images\n", "valid/images"),
        ("val: flat\n", "valid/images"),  # no labels beside it
        ("val: val/images\n", "val/images"),
        ("val: val\n", "val/images"),
    ],
)
def test_of_several_places_it_is_the_one_that_rfdetr_reads(tmp_path: Path, where: str, read: str) -> None:
    root = write_yolo(tmp_path, data=f"names: [cell, platelet]\n{where}")
    shutil.copytree(root / "valid", root / "val")
    shutil.copytree(root / "valid" / "images", root / "flat")
    shutil.copy(root / "valid" / "labels" / "a.txt", root / "flat")

    assert read_data_set(root).valid.images[0].path == root / read / "a.png"


def test_labels_lie_beside_the_images() -> None:
    assert labels_of(Path("/images/set/images/train/a.jpg")) == Path("/images/set/labels/train/a.txt")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("2 0.5 0.5 0.1 0.1", "line 1: category 2 is none of the categories [0, 1]"),
        ("0 0.5 0.5 0.1 0.1\n0 0.9 0.5 0.5 0.1", "line 2: box 41.6, 21.6, 32, 4.8 is outside its image a.png"),
        ("0 0.5 0.5 0.1", "line 1: no box of YOLO (class x y width height, or a polygon): 3 numbers"),
        ("cell 0.5 0.5 0.1 0.1", "line 1: no box of YOLO"),
        ("", "the split train is empty: no annotations"),
    ],
)
def test_a_wrong_yolo_label_is_named_with_its_line(tmp_path: Path, labels: str, said: str) -> None:
    assert said in wrong(write_yolo(tmp_path, labels))


def test_a_yolo_image_that_is_none_is_named(tmp_path: Path) -> None:
    root = write_yolo(tmp_path)
    (root / "valid" / "images" / "b.jpg").write_text("no image")

    assert wrong(root).startswith(f"{root}/valid/images/b.jpg: no image that can be read")


def test_an_empty_yolo_split_is_named(tmp_path: Path) -> None:
    root = write_yolo(tmp_path)
    shutil.rmtree(root / "valid")

    assert "the split valid is empty: no images" in wrong(root)


def test_a_yolo_label_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = write_yolo(tmp_path) / "train" / "labels" / "a.txt"
    file.write_bytes(b"0 0.5 0.5 0.1 0.1 \xe9")

    assert wrong(tmp_path).startswith(f"{file}: cannot be read")


@pytest.mark.parametrize(
    "text", ["names: 3\n", "- a\n", "names: [a\n", "names: {a: cell}\n", "names: {0: cell, 2: platelet}\n"]
)
def test_a_yolo_file_without_names_is_named(tmp_path: Path, text: str) -> None:
    assert wrong(write_yolo(tmp_path, data=text)).startswith(f"{tmp_path}/data.yaml: ")
