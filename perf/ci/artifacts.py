"""Artifacts: files that code of a pull request may have written. Nothing of them is read before it was admitted.

An archive is unpacked here and not by a tool that trusts it: no path leaves the folder, no link is made, no file is
larger than it may be, whatever its header says.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from perf.expected import FILE_NAME
from perf.run_order import CRASH, MANIFEST

PREFIX = "rfdetr-perf-"
JOB, COMMENT = "job.json", "comment.json"
# What is taken out of an archive; the rest stays where it is.
_WANTED = (".record.json", CRASH, ".recompiles.log")
_NAMED = (FILE_NAME, MANIFEST, JOB, COMMENT)
CHUNK = 1 << 16


class Limits(NamedTuple):
    """The most that an artifact may hold. A record is 0.1 to 0.3 MB, and a session has some dozens."""

    archive: int = 64_000_000
    file: int = 16_000_000
    whole: int = 256_000_000
    files: int = 5_000
    name: int = 200


LIMITS = Limits()


def unpack(archive: Path, folder: Path, limits: Limits = LIMITS) -> None:
    """Unpack what is wanted of ``archive`` into the new ``folder``.

    Raises:
        ValueError: it is no whole archive, or holds what it must not; says what. Nothing of it is to be used then.
    """
    size = archive.stat().st_size
    if size > limits.archive:
        msg = f"the artifact is {size} bytes large, and {limits.archive} are read at most"
        raise ValueError(msg)
    folder.mkdir(parents=True)
    try:
        with zipfile.ZipFile(archive) as files:
            _unpack(files, folder, limits)
    except ValueError:
        raise
    except Exception as error:  # a damaged archive makes zipfile and its decompressors raise whatever they like
        msg = f"the artifact is no whole archive: {type(error).__name__}: {error}"
        raise ValueError(msg) from error


def _unpack(files: zipfile.ZipFile, folder: Path, limits: Limits) -> None:
    entries = files.infolist()
    if len(entries) > limits.files:
        msg = f"the artifact has {len(entries)} files, and {limits.files} are read at most"
        raise ValueError(msg)
    left = limits.whole
    for entry in entries:
        place = _place(entry, limits)
        if entry.is_dir() or not is_wanted(place.name):
            continue
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.open(entry) as source, path.open("xb") as out:
            left -= _copy(source, out, min(left, limits.file), entry.filename)


def _place(entry: zipfile.ZipInfo, limits: Limits) -> PurePosixPath:
    """Return where an entry goes below the folder.

    Raises:
        ValueError: outside of it, or it is not a plain file that GitHub's upload would make.
    """
    name = entry.filename
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or "\\" in name or ":" in name or not name.isprintable():
        msg = f"the artifact has a file at {name!r}, outside of its folder"
        raise ValueError(msg)
    if len(name) > limits.name:
        msg = f"the artifact has a file with a name of {len(name)} characters"
        raise ValueError(msg)
    # What GitHub's own upload uses; the others take as much memory as their header says.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        msg = f"the artifact has {name!r}, compressed by method {entry.compress_type}, and deflate is the one read"
        raise ValueError(msg)
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        msg = f"the artifact has {name!r}, which is a link or another file that is not plain"
        raise ValueError(msg)
    return place


def _copy(source: IO[bytes], out: IO[bytes], limit: int, name: str) -> int:
    copied = 0
    while chunk := source.read(CHUNK):
        copied += len(chunk)
        if copied > limit:
            msg = f"the artifact has {name!r} with more than the {limit} bytes that are read at most"
            raise ValueError(msg)
        out.write(chunk)
    return copied


def is_wanted(name: str) -> bool:
    """Return whether a file of this name is one that is read."""
    return name in _NAMED or name.endswith(_WANTED)


def admit(folder: Path, limits: Limits = LIMITS) -> None:
    """Check a folder that somebody else has unpacked, by what the file system says and without reading a byte.

    Raises:
        ValueError: a file in it must not be read; names it.
    """
    left, count = limits.whole, 0
    for path in _files(folder):
        status = path.lstat()
        told = path.relative_to(folder)
        if not stat.S_ISREG(status.st_mode):
            msg = f"{told}: a link or another file that is not plain"
            raise ValueError(msg)
        count, left = count + 1, left - status.st_size
        if status.st_size > limits.file or left < 0 or count > limits.files:
            msg = f"{told}: {status.st_size} bytes; {limits.file} are read at most, and {limits.whole} of all files"
            raise ValueError(msg)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that would be read, and every link; no link is followed."""
    for parent, folders, names in os.walk(folder, followlinks=False):
        here = Path(parent)
        yield from (here / name for name in folders if (here / name).is_symlink())
        yield from (here / name for name in sorted(names) if is_wanted(name) or (here / name).is_symlink())
