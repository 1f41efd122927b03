from __future__ import annotations

import json
import time
from collections import namedtuple
from pathlib import Path

import pytest

from perf import coco_tree
from perf.coco_tree import check_tree, room

JPEG = b"\xff\xd8\xff\xe0" + bytes(2000) + b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(2000) + b"IEND\xaeB`\x82"
IMAGES = {
    "train2017": {f"{index}.jpg": JPEG for index in range(6)} | {"7.png": PNG},
    "val2017": {"1.jpg": JPEG + b"\n"},
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "annotations").mkdir()
    for name, images in IMAGES.items():
        (tmp_path / name).mkdir()
        for file, data in images.items():
            (tmp_path / name / file).write_bytes(data)
        write_annotations(tmp_path, name, list(images))
    return tmp_path


def write_annotations(root: Path, name: str, files: list[str]) -> None:
    boxes = [
        {"image_id": 0, "category_id": category, "bbox": [1, 1, 2, 2], "area": 4} for category in (*range(1, 9), 90)
    ]
    images = [{"id": number, "file_name": file} for number, file in enumerate(files)]
    document = {"images": images, "annotations": boxes, "categories": []}
    (root / "annotations" / f"instances_{name}.json").write_text(json.dumps(document))


def test_a_whole_tree_is_counted(tree: Path) -> None:
    found = check_tree(tree)

    assert [(split.name, split.images, split.boxes) for split in found.splits] == [
        ("train2017", 7, 9),
        ("val2017", 1, 9),
    ]
    assert found.splits[0].size == 6 * len(JPEG) + len(PNG)
    assert not found.full
    assert "not the full COCO 2017" in found.text


def test_the_full_set_is_known_by_its_numbers(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco_tree, "FULL", {"train2017": 7, "val2017": 1})

    assert check_tree(tree, full=True).full


def test_every_kind_of_problem_is_told_at_once_with_the_first_names(tree: Path) -> None:
    for file in ("0.jpg", "1.jpg", "2.jpg", "3.jpg"):
        (tree / "train2017" / file).unlink()
    (tree / "train2017" / "4.jpg").write_bytes(JPEG[:-2])
    (tree / "train2017" / "7.png").write_bytes(PNG[:900])
    (tree / "val2017" / "1.jpg").write_bytes(b"")

    with pytest.raises(ValueError, match="missing") as caught:
        check_tree(tree)

    train, val = tree / "train2017", tree / "val2017"
    assert str(caught.value).splitlines() == [
        f"{train}: 4 of 7 images missing: 0.jpg, 1.jpg, 2.jpg and 1 more; extract them again",
        f"{train}: 2 of 7 images cut short, or no image that can be read: 4.jpg, 7.png; extract them again",
        f"{val}: 1 of 1 images empty: 1.jpg; extract them again",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"images": [', "not whole, was its download cut short"),
        ('{"images": []}', "not whole"),
        ('{"images": [], "annotations": []}', "lists 0 images and 0 boxes"),
    ],
)
def test_annotations_that_are_cut_short_or_empty_are_told(tree: Path, text: str, told: str) -> None:
    (tree / "annotations" / "instances_val2017.json").write_text(text)

    with pytest.raises(ValueError, match=rf"instances_val2017\.json: .*{told}"):
        check_tree(tree)


def test_boxes_of_other_images_or_classes_are_told(tree: Path) -> None:
    file = tree / "annotations" / "instances_val2017.json"
    file.write_text(file.read_text().replace('"image_id": 0, "category_id": 90', '"image_id": 7, "category_id": 91'))

    with pytest.raises(ValueError, match="val2017") as caught:
        check_tree(tree)

    assert str(caught.value).splitlines() == [
        f"{file}: 1 of 9 boxes are of images that it does not list",
        f"{file}: 1 of 9 boxes have a category outside rfdetr's head for COCO, 0 to 90",
    ]


def test_boxes_on_which_rfdetr_would_stumble_amid_an_epoch_are_told(tree: Path) -> None:
    file = tree / "annotations" / "instances_train2017.json"
    document = json.loads(file.read_text())
    first, second, third, crowd, *_ = document["annotations"]
    del first["bbox"], third["area"], crowd["area"]
    second["bbox"], crowd["iscrowd"] = [1, 2, None, 4], 1
    file.write_text(json.dumps(document))

    with pytest.raises(ValueError, match=r"train2017\.json: 3 of 9 boxes lack an area or a bbox of four numbers"):
        check_tree(tree)


def test_what_is_not_there_is_named(tree: Path, tmp_path: Path) -> None:
    (tree / "annotations" / "instances_train2017.json").unlink()

    with pytest.raises(ValueError, match=r"instances_train2017\.json: missing; COCO 2017's layout"):
        check_tree(tree)
    with pytest.raises(ValueError, match="no such folder; --coco-root takes"):
        check_tree(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="missing"):
        check_tree(tree, full=True)


def test_less_than_all_of_coco_is_refused_where_all_is_asked_for(tree: Path) -> None:
    with pytest.raises(ValueError, match=r"train2017 7 images.*not the full COCO 2017.*leave --full out"):
        check_tree(tree, full=True)


def test_looking_at_many_files_takes_seconds(tree: Path) -> None:
    names = [f"many-{index}.jpg" for index in range(3000)]
    for name in names:
        (tree / "train2017" / name).write_bytes(JPEG)
    write_annotations(tree, "train2017", names)

    started = time.perf_counter()
    check_tree(tree)

    # 123,287 images take 41 times as long: 40 s were 1 s here; it takes a fraction of that.
    assert time.perf_counter() - started < 5


def test_room_is_told_and_too_little_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2 * 10**9))

    told = list(room(tmp_path / "to come", workers=2, batch_bytes=10**8, shared=tmp_path))

    assert told == [
        "disk: 2.0 GB free, checkpoints take up to 1.6 GB",
        "shared memory: 2.0 GB free, 2 workers take up to 0.4 GB",
    ]
    [_, tight] = room(tmp_path, workers=16, batch_bytes=10**8, shared=tmp_path)
    assert tight == "warning: shared memory: 2.0 GB free, 16 workers take up to 3.2 GB"
    assert len(list(room(tmp_path, workers=0, batch_bytes=1, shared=tmp_path))) == 1
