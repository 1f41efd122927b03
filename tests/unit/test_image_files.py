from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from perf.image_files import CUT_SHORT, EMPTY, MISSING, Look, look_at


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
    first, second, third = (tmp_path / name for name in ("a.jpg", "b.jpg", "c.tiff"))
    second.write_bytes(b"")
    third.write_bytes(b"of a format that is not known")
    (tmp_path / "folder.jpg").mkdir()

    found = look_at([first, second, third, tmp_path / "folder.jpg"])
    assert [look.problem for look in found] == [MISSING, EMPTY, "", MISSING]
