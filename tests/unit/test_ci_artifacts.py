from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from perf.ci.artifacts import LIMITS, Limits, admit, unpack
from perf.run_order import CRASH

NAME = "s/head/nano-b4/run-0.record.json"
SMALL = Limits(archive=100_000, file=1_000, whole=2_500, files=3)


def an_archive(folder: Path, *files: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_what_is_read_is_unpacked_and_nothing_else(tmp_path: Path) -> None:
    crash = NAME.replace(".record.json", CRASH)
    files = [(NAME, b"{}"), (crash, b"0"), ("s/ab.json", b"1"), ("job.json", b"2"), ("evil.sh", b"3")]
    unpack(an_archive(tmp_path, *files), tmp_path / "out")
    assert left(tmp_path / "out") == sorted(["job.json", "s/ab.json", NAME, crash])


def a_link(name: str) -> zipfile.ZipInfo:
    link = zipfile.ZipInfo(name)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return link


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../../x.record.json", "outside of its folder"),
        ("/etc/x.record.json", "outside of its folder"),
        ("a/../../x.record.json", "outside of its folder"),
        ("a\\..\\x.record.json", "outside of its folder"),
        ("C:x.record.json", "outside of its folder"),
        ("a\n::error::x.record.json", "outside of its folder"),
        ("x/" * 200 + "x.record.json", "a name of 413 characters"),
        (a_link("x.record.json"), "a link"),
        (a_link("not-even-wanted"), "a link"),
    ],
    ids=range(9),
)
def test_no_file_leaves_the_folder(tmp_path: Path, name: str | zipfile.ZipInfo, why: str) -> None:
    archive = an_archive(tmp_path, (name, b"/etc/passwd"))
    with pytest.raises(ValueError, match=why):
        unpack(archive, tmp_path / "out")
    assert left(tmp_path) == ["a.zip"]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([("a.record.json", b"x" * 1001)], "more than the 1000 bytes"),
        ([(f"{i}.record.json", b"x" * 900) for i in range(3)], "more than the 700 bytes"),
        ([(f"{i}.record.json", b"") for i in range(4)], "4 files"),
        ([("a.record.json", os.urandom(200_000))], "bytes large, and 100000 are read"),
        ([("a.record.json", b"x"), ("a.record.json", b"y")], "no whole archive"),
    ],
    ids=["file", "whole", "files", "archive", "twice"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_too_large_is_refused(tmp_path: Path, files: list[tuple[str, bytes]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack(an_archive(tmp_path, *files), tmp_path / "out", SMALL)


def test_a_header_that_lies_of_the_size_is_not_believed(tmp_path: Path) -> None:
    archive = an_archive(tmp_path, ("a.record.json", b"x" * 5_000))
    raw = archive.read_bytes().replace((5_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    archive.write_bytes(raw)
    with pytest.raises(ValueError, match=r"no whole archive|more than"):
        unpack(archive, tmp_path / "out", SMALL)


@pytest.mark.parametrize("keep", [0, 10, 60, -30])
def test_a_truncated_archive_is_said_to_be_one(tmp_path: Path, keep: int) -> None:
    archive = an_archive(tmp_path, (NAME, os.urandom(500)))
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(ValueError, match="no whole archive"):
        unpack(archive, tmp_path / "out")


def test_a_broken_file_within_an_archive_is_found(tmp_path: Path) -> None:
    archive = an_archive(tmp_path, (NAME, b"abc" * 3_000))
    raw = bytearray(archive.read_bytes())
    raw[len(NAME) + 34] ^= 0xFF
    archive.write_bytes(bytes(raw))
    with pytest.raises(ValueError, match="no whole archive"):
        unpack(archive, tmp_path / "out")


def test_a_folder_is_looked_at_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "fine.record.json").write_text("{}", encoding="utf-8")
    (tmp_path / "other.bin").write_bytes(b"")
    os.truncate(tmp_path / "other.bin", 10**9)
    admit(tmp_path)
    (tmp_path / "huge.record.json").touch()
    os.truncate(tmp_path / "huge.record.json", 10**9)
    with pytest.raises(ValueError, match=rf"huge\.record\.json: 1000000000 bytes; {LIMITS.file} are read"):
        admit(tmp_path)


@pytest.mark.parametrize("name", ["x.record.json", "readme.txt"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match=f"{name}: a link"):
        admit(tmp_path / "in")


def test_a_linked_folder_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "deeper").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="deeper: a link"):
        admit(tmp_path / "in")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_only_what_githubs_own_upload_makes_is_decompressed(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr(NAME, b"{}")
    with pytest.raises(ValueError, match=f"compressed by method {method}, and deflate is the one read"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_a_damaged_archive_is_refused_however_zipfile_fails(tmp_path: Path) -> None:
    whole = an_archive(tmp_path, (NAME, b"{}" * 500), ("job.json", b"{}")).read_bytes()
    outcomes = set()
    for place in range(len(whole)):
        for byte in (0, 0x55, 0xFF):
            (tmp_path / "b.zip").write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            try:
                unpack(tmp_path / "b.zip", tmp_path / f"out-{place}-{byte}")
                outcomes.add("read")
            except ValueError:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}
