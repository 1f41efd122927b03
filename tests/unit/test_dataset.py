from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from small_data import SPLITS, annotations_of, document, write_coco, write_yolo, wrong

from perf.annotations import DataSet
from perf.dataset import ROBOFLOW_FILE, _classes, _read_roboflow, folder_name, layout_of, read_data_set

BCCD = Path(__file__).resolve().parents[3] / "shared" / "data" / "bccd"


@pytest.mark.parametrize("layout", ["roboflow", "coco"])
def test_a_coco_document_is_read(tmp_path: Path, layout: str) -> None:
    found = read_data_set(write_coco(tmp_path, layout))

    assert (found.layout, found.categories) == (layout, {1: "cell", 2: "platelet"})
    assert found.classes == (90 if layout == "coco" else 2)  # rfdetr leaves its head as it is for COCO's own layout
    [image], [box] = found.valid.images, found.valid.annotations
    assert (image.id, image.path.name, image.width, image.height) == (7, "a.png", 64, 48)
    assert (box.image, box.category, box.box, box.where) == (7, 1, (1, 2, 10, 20), "annotation 40")


@pytest.mark.parametrize("layout", ["roboflow", "coco"])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"images": [], "annotations": []}, "the split {split} is empty: no images"),
        ({"annotations": []}, "the split {split} is empty: no annotations"),
        (
            {"annotations": [{"id": 40, "image_id": 7, "category_id": 1, "bbox": [1, 2, 0, 0], "area": 0}]},
            "the split {split} is empty: no box but those of crowds and those without an area",
        ),
        (
            {"annotations": [{"id": 40, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 12}]},
            "annotation 40: category 3 is none of the categories [1, 2]",
        ),
        (
            {"images": [{"id": 8, "file_name": "a.png", "width": 64, "height": 48}]},
            "annotation 40: image 7 is not in the list of images",
        ),
        (
            {"images": [{"id": 7, "file_name": "gone.png", "width": 64, "height": 48}]},
            "image 7: {root}/{split}/gone.png is missing",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file(
    tmp_path: Path, layout: str, which: int, broken: dict[str, Any], said: str
) -> None:
    split = SPLITS[layout][which]
    root = write_coco(tmp_path, layout, **{split: document((1, 2, 10, 20), **broken)})

    message = wrong(root)

    assert message.startswith(f"{annotations_of(root, layout, split)}: ")
    assert said.format(split=split, root=root) in message


@pytest.mark.parametrize("layout", ["roboflow", "coco"])
@pytest.mark.parametrize("which", [0, 1])
def test_an_image_that_was_cut_short_is_named_before_anything_trains(tmp_path: Path, layout: str, which: int) -> None:
    split = SPLITS[layout][which]
    root = write_coco(tmp_path, layout, **{split: document((1, 2, 10, 20))})
    image = root / split / "a.png"
    image.write_bytes(image.read_bytes()[:-20])

    assert f": image 7: {image} is cut short" in wrong(root)


LISTED = {"id": 7, "file_name": "a.png", "width": 64, "height": 48}
MARKED = {"id": 40, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 12}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"area": None}, "area None of annotation 40 is no number"),
        ({"image_id": [7]}, "image_id [7] of annotation 40 is no whole number"),
        ({"category_id": "1"}, "category_id '1' of annotation 40 is no whole number"),
        ({"id": True}, "id True of annotation True is no whole number"),
        ({"bbox": "1234"}, "bbox '1234' of annotation 40 is no list of four numbers"),
        ({"bbox": [1, 2, 3]}, "bbox [1, 2, 3] of annotation 40 is no list of four numbers"),
        ({"bbox": None}, "bbox None of annotation 40 is no list of four numbers"),
        ({"bbox": [10**400, 1, 1, 1]}, "OverflowError"),
    ],
)
def test_what_is_of_another_type_than_rfdetr_reads_is_named_with_its_annotation(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    root = write_coco(tmp_path, "roboflow", train=document(annotations=[{**MARKED, **changed}]))
    message = wrong(root)
    assert message.startswith(f"{annotations_of(root, 'roboflow', 'train')}: not as COCO has it: ")
    assert said in message


GROUPED = [
    {"id": 1, "name": "cells", "supercategory": "none"},
    {"id": 2, "name": "cell", "supercategory": "cells"},
    {"id": 3, "name": "dust", "supercategory": "dust"},
]


@pytest.mark.filterwarnings("default")  # of what rfdetr imports
@pytest.mark.parametrize(("marked", "classes"), [([2, 3], [2, 3]), ([1, 2], [1, 2, 3])])
def test_what_only_groups_others_is_no_class_of_a_roboflow_export(
    tmp_path: Path, marked: list[int], classes: list[int]
) -> None:
    from rfdetr.datasets.coco import filter_parent_categories

    boxes = [{**MARKED, "id": number, "category_id": number} for number in marked]
    split = document(annotations=boxes, categories=GROUPED)
    data = read_data_set(write_coco(tmp_path, "roboflow", train=split, valid=split))

    theirs = filter_parent_categories(GROUPED, set(marked))
    known = _classes(data.train, data.categories, _read_roboflow(tmp_path).groups)
    assert sorted(known) == classes == [one["id"] for one in theirs]


def test_a_box_of_what_only_groups_others_in_train_is_named(tmp_path: Path) -> None:
    train = document(annotations=[{**MARKED, "category_id": 2}], categories=GROUPED)
    valid = document(annotations=[{**MARKED, "category_id": 1}], categories=GROUPED)
    message = wrong(write_coco(tmp_path, "roboflow", train=train, valid=valid))
    assert "annotation 40: category 1 is none of the categories [2, 3]" in message


def test_annotations_nested_too_deep_are_named(tmp_path: Path) -> None:
    root = write_coco(tmp_path, "roboflow")
    file = annotations_of(root, "roboflow", "train")
    file.write_text("[" * 100_000)
    assert wrong(root).startswith(f"{file}: cannot be read: ")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"images": [LISTED, LISTED]}, "duplicate image '7'"),
        ({"annotations": [MARKED, {**MARKED, "bbox": [9, 2, 3, 4]}]}, "duplicate annotation '40'"),
        ({"categories": [{"id": 1, "name": "cell"}, {"id": 1, "name": "dust"}]}, "duplicate category '1'"),
        ({"images": [{**LISTED, "width": "64"}]}, "width '64' of image 7 is no number"),
        ({"images": [{**LISTED, "height": None}]}, "height None of image 7 is no number"),
        (
            {"images": [{**LISTED, "width": 640, "height": 480}]},
            "image 7 is listed with 640 x 480 px, and {root}/{split}/a.png has 64 x 48",
        ),
    ],
)
def test_what_is_listed_twice_or_is_not_its_file_is_named(
    tmp_path: Path, which: int, broken: dict[str, Any], said: str
) -> None:
    split = SPLITS["roboflow"][which]
    root = write_coco(tmp_path, "roboflow", **{split: document((1, 2, 10, 20), **broken)})

    message = wrong(root)

    assert message.startswith(f"{annotations_of(root, 'roboflow', split)}: ")
    assert said.format(split=split, root=root) in message


@pytest.mark.parametrize("name", ["a.png", "b.png"])
def test_a_file_that_would_be_scored_as_two_images_is_named_and_may_be_trained_on_twice(
    tmp_path: Path, name: str
) -> None:
    twice = document((1, 2, 3, 4), images=[LISTED, {**LISTED, "id": 8, "file_name": name}])
    root = write_coco(tmp_path, "roboflow", train=twice)
    for split in ("train", "valid"):
        (root / split / "b.png").symlink_to("a.png")

    assert len(read_data_set(root).train.images) == 2
    annotations_of(root, "roboflow", "valid").write_text(json.dumps(twice), encoding="utf-8")
    assert f"images 7 and 8 are one file, {root}/valid/{name}" in wrong(root)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", " is empty"), (b"no image", " is cut short, or no image that can be read")]
)
def test_a_listed_image_that_is_none_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    file = write_coco(tmp_path, "roboflow") / "train" / "a.png"
    file.write_bytes(content)

    assert f"{file}{said}" in wrong(tmp_path)


@pytest.mark.parametrize("place", range(4))
def test_a_box_with_no_number_is_named(tmp_path: Path, place: int) -> None:
    box = [1.0, 2.0, 3.0, 4.0]
    box[place] = float("nan")

    assert "annotation 40: box " in wrong(write_coco(tmp_path / "coco", "roboflow", train=document(tuple(box))))
    words = ["0.5"] * 4
    words[place] = "nan"
    assert "line 1: box " in wrong(write_yolo(tmp_path / "yolo", f"0 {' '.join(words)}"))


@pytest.mark.parametrize("box", [(60, 2, 10, 20), (-5, 2, 10, 20), (1, 40, 10, 20), (1, -2, 3, 4), (1, 2, -3, 4)])
def test_a_box_outside_its_image_is_named(tmp_path: Path, box: tuple[float, ...]) -> None:
    message = wrong(write_coco(tmp_path, "roboflow", valid=document((1, 2, 3, 4), box)))

    shown = ", ".join(f"{number:g}" for number in box)
    assert message == (
        f"{tmp_path / 'valid' / ROBOFLOW_FILE}: annotation 41: box {shown} is outside its image a.png, 64 x 48 px; "
        "correct it before training"
    )


@pytest.mark.parametrize("box", [(-0.5, 0, 64.9, 48.5), (0, 0, 0, 0)])
def test_rounding_and_empty_boxes_are_let_through_as_rfdetr_does(tmp_path: Path, box: tuple[float, ...]) -> None:
    root = write_coco(tmp_path, "roboflow", train=document(box, (1, 2, 10, 20)))
    assert read_data_set(root).train.annotations[0].box == box


def test_splits_that_name_a_category_differently_are_told(tmp_path: Path) -> None:
    other = document((1, 2, 3, 4), categories=[{"id": 1, "name": "platelet"}])

    assert "category 1 is 'platelet', and 'cell' in" in wrong(write_coco(tmp_path, "roboflow", valid=other))


def test_a_category_beyond_the_head_of_coco_is_named(tmp_path: Path) -> None:
    beyond = document((1, 2, 3, 4), categories=[{"id": 91, "name": "hair brush"}])
    beyond["annotations"][0]["category_id"] = 91

    message = wrong(write_coco(tmp_path, "coco", train2017=beyond))

    assert "annotation 40: category 91 is outside the head, which has 0 to 90" in message


@pytest.mark.parametrize("text", ["{", "[]", '{"images": [{}], "annotations": [], "categories": []}'])
def test_a_document_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    file = write_coco(tmp_path, "roboflow") / "train" / ROBOFLOW_FILE
    file.write_text(text, encoding="utf-8")

    assert wrong(tmp_path).startswith(f"{file}: ")


def test_a_split_without_its_file_is_named(tmp_path: Path) -> None:
    file = write_coco(tmp_path, "roboflow") / "valid" / ROBOFLOW_FILE
    file.unlink()

    assert wrong(tmp_path).startswith(f"{file}: cannot be read")


def test_a_folder_of_no_layout_says_what_each_needs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Roboflow.*COCO 2017.*YOLO"):
        layout_of(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        layout_of(tmp_path / "gone")


def digest(root: Path) -> str:
    return read_data_set(root).digest


def test_the_digest_is_of_the_data_and_not_of_its_place(tmp_path: Path) -> None:
    first, same = write_coco(tmp_path / "a", "roboflow"), write_coco(tmp_path / "b", "roboflow")
    other = write_coco(tmp_path / "c", "roboflow", valid=document((1, 2, 10, 21)))

    assert digest(first) == digest(same) != digest(other)


def test_a_name_that_is_not_utf_8_is_read(tmp_path: Path) -> None:
    root = write_yolo(tmp_path)
    for file in (root / "train" / "images" / "a.png", root / "train" / "labels" / "a.txt"):
        file.rename(file.with_stem(os.fsdecode(b"\xe9")))

    assert len(digest(root)) == 64


def test_a_folder_s_name_fits_an_id() -> None:
    assert folder_name(Path("/data/Blood Cells_v2")) == "blood-cells-v2"
    assert folder_name(Path("/")) == "data"


@pytest.mark.skipif(not BCCD.is_dir(), reason=f"needs the blood cells in {BCCD}")
def test_the_blood_cells_are_read() -> None:
    found: DataSet = read_data_set(BCCD)

    assert (len(found.train.images), len(found.valid.images)) == (205, 87)
    assert list(found.categories.values()) == ["WBC", "RBC", "Platelets"]
