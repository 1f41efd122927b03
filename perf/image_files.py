"""Image files: whether each is there, a file, not empty, and whole. Decoded are only those whose ends do not tell."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

MISSING, EMPTY, CUT_SHORT = "missing", "empty", "cut short, or no image that can be read"
NO_FILE, CLOSED = "no file", "not to be read"
_THREADS = 16
# So many are asked for at once: all of COCO 2017's would take a quarter of a gigabyte.
_CHUNK = 2000
_TAIL = 64
_JPEG_END = b"\xff\xd9"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
# rfdetr's own, which it sets when it is imported (datasets/o365.py): what it reads is not to be refused here.
_MOST_PIXELS = 2_000_000_000


class Look(NamedTuple):
    """A file's size in bytes, and what is wrong with it: one of the words above, or nothing."""

    size: int
    problem: str


def look_at(paths: Iterable[Path]) -> Iterator[Look]:
    """Yield what there is to see of each of ``paths``, in their order."""
    left = iter(paths)
    with ThreadPoolExecutor(_THREADS) as pool:
        while chunk := list(itertools.islice(left, _CHUNK)):
            yield from pool.map(_look, chunk)


def opened(path: Path) -> Any:
    """Open an image with Pillow, of as many pixels as rfdetr takes.

    Raises:
        Exception: whatever a decoder raises at what it cannot read.
    """
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS or _MOST_PIXELS, _MOST_PIXELS)
    return Image.open(path)


def _look(path: Path) -> Look:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a device or a pipe might never end
            return Look(0, NO_FILE)
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(max(0, found.st_size - _TAIL))
            tail = file.read(_TAIL)
    except PermissionError:
        return Look(0, CLOSED)
    except (OSError, ValueError):  # the latter of a name that no file can have
        return Look(0, MISSING)
    if not found.st_size:
        return Look(0, EMPTY)
    return Look(found.st_size, "" if _ends_well(head, tail, found.st_size) or _decodes(path) else CUT_SHORT)


def _ends_well(head: bytes, tail: bytes, size: int) -> bool:
    """Return whether a file ends as its format does; of formats that do not tell, nothing is known."""
    if head.startswith(b"\xff\xd8"):
        return tail.rstrip(b"\0\r\n ").endswith(_JPEG_END)
    if head.startswith(b"\x89PNG"):
        return tail.endswith(_PNG_END)
    return head.startswith(b"BM") and 0 < int.from_bytes(head[2:6], "little") <= size


def _decodes(path: Path) -> bool:
    """Return whether all of an image is there.

    Cameras write more behind a JPEG's end marker, and some formats have none.
    """
    try:
        with opened(path) as image:
            image.load()
    except Exception:  # each decoder has exceptions of its own
        return False
    return True
