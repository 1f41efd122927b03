"""Source lines: which frames are the user's, and how to name a file the same on every machine."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = ("site-packages", "dist-packages")


@functools.cache
def short_path(filename: str) -> str:
    """Return ``filename`` without what differs between machines: relative to site-packages, package or folder."""
    path = Path(filename)
    for marker in (*_INSTALLED, "src"):
        if marker in path.parts:
            return "/".join(path.parts[len(path.parts) - path.parts[::-1].index(marker) :])
    if "rfdetr" in path.parts:
        return "/".join(path.parts[len(path.parts) - 1 - path.parts[::-1].index("rfdetr") :])
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return path.name


@functools.cache
def is_user_code(filename: str) -> bool:
    """Return whether ``filename`` is rfdetr's or the user's, not a library's, the interpreter's or this package's."""
    if filename.startswith("<"):
        return False
    path = Path(filename)
    if "rfdetr" in path.parts:
        return True
    installed = any(marker in path.parts for marker in _INSTALLED)
    return not (installed or path.is_relative_to(sysconfig.get_path("stdlib")) or path.is_relative_to(_PACKAGE))


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of user code from ``frame`` outwards."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def line_of(frame: FrameType) -> str:
    """Return ``file:line`` of the line that ``frame`` is at."""
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def function_of(frame: FrameType) -> str:
    """Return ``file:qualified name`` of the function that ``frame`` runs; free of line numbers."""
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_code.co_qualname}"
