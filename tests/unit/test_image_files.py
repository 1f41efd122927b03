from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from perf.image_files import CUT_SHORT, EMPTY, MISSING, NO_FILE, Look, look_at


def a_picture(path: Path) -> bytes:
    Image.radial_gradient("L").convert("RGB").save(path)
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp"])
def test_a_file_that_ends_too_early_is_cut_short(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    whole = a_picture(path)
    assert list(look_at([path])) == [Look(len(whole), "")]

    path.write_bytes(whole[:-40])
    assert list(look_at([path])) == [Look(len(whole) - 40, CUT_SHORT)]


def test_what_a_camera_writes_behind_a_picture_does_not_cut_it_short(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(a_picture(path) + bytes(5000))
    assert [look.problem for look in look_at([path])] == [""]


def test_files_are_told_in_their_order(tmp_path: Path) -> None:
    gone, empty, text, folder, pipe = (tmp_path / name for name in ("a.jpg", "b.jpg", "c.tiff", "d.jpg", "e.jpg"))
    empty.write_bytes(b"")
    text.write_bytes(b"of a format that is not known")
    folder.mkdir()
    os.mkfifo(pipe)

    paths = [gone, empty, text, folder, pipe, Path("/dev/zero"), tmp_path / "\0.jpg"]
    found = [look.problem for look in look_at(paths)]
    assert found == [MISSING, EMPTY, CUT_SHORT, NO_FILE, NO_FILE, NO_FILE, MISSING]


@pytest.mark.parametrize("kind", ["tiff", "gif", "webp"])
def test_a_format_without_an_end_of_its_own_is_decoded(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    whole = a_picture(path)
    path.write_bytes(whole[: len(whole) // 2])
    assert [look.problem for look in look_at([path])] == [CUT_SHORT]


def test_an_end_in_the_middle_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(a_picture(path)[:-400] + b"IEND" + bytes(range(1, 41)))
    assert [look.problem for look in look_at([path])] == [CUT_SHORT]


def test_a_picture_of_as_many_pixels_as_rfdetr_reads_is_none_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tiff"
    a_picture(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert [look.problem for look in look_at([path])] == [""]


def test_many_are_told_in_their_order(tmp_path: Path) -> None:
    a_picture(tmp_path / "0.png")
    for number in range(1, 2500, 2):
        (tmp_path / f"{number}.png").write_bytes(b"")
    found = [look.problem for look in look_at(tmp_path / f"{number}.png" for number in range(2500))]
    assert found == ["", EMPTY, *([MISSING, EMPTY] * 1249)]
