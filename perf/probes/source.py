"""Source lines: which frames are the user's, and how to name a file the same on every machine."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_OWN = Path(__file__).resolve().parents[1]
_SUITE = _OWN.parent / "tests" / "suite"


@functools.cache
def _installed_roots() -> tuple[Path, ...]:
    """Return the folders on the path that hold installed distributions, site-packages above all."""
    return tuple(Path(entry) for entry in sys.path if entry and any(Path(entry).glob("*.dist-info")))


@functools.cache
def _rfdetr_root() -> Path | None:
    """Return the folder of the rfdetr package, wherever it is installed from; None where it is not."""
    spec = importlib.util.find_spec("rfdetr")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _in_rfdetr(path: Path) -> bool:
    root = _rfdetr_root()
    return root is not None and path.is_relative_to(root)


@functools.cache
def short_path(filename: str) -> str:
    """Return ``filename`` without what differs between machines.

    rfdetr's files are named from ``rfdetr/`` on, installed ones relative to their site-packages, others
    relative to the working directory, or else by their bare name.
    """
    path = Path(filename)
    # torch cuts long paths from the left in some of its messages.
    cut = not path.is_absolute() and "rfdetr" in path.parts
    if cut or _in_rfdetr(path):
        return "/".join(path.parts[len(path.parts) - 1 - path.parts[::-1].index("rfdetr") :])
    for root in (*_installed_roots(), Path(sysconfig.get_path("stdlib")), Path.cwd()):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return without_hash(path.name)


@functools.cache
def is_user_code(filename: str) -> bool:
    """Return whether ``filename`` is rfdetr's or the user's, not a library's, the interpreter's or this suite's."""
    if filename.startswith("<"):
        return False
    path = Path(filename)
    if _in_rfdetr(path):
        return True
    not_ours = (*_installed_roots(), Path(sysconfig.get_path("stdlib")), _OWN, _SUITE)
    return not any(path.is_relative_to(root) for root in not_ours)


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
    return f"{short_path(frame.f_code.co_filename)}:{without_line(frame.f_code.co_qualname)}"


def without_hash(name: str) -> str:
    """Return the name of a module that Inductor generated as ``inductor``.

    Inductor names it after a hash of its source, and into that goes where the compiler's headers lie.
    """
    return re.sub(r"\bc[a-z2-7]{51}\b", "inductor", name)


def without_folders(told: str) -> str:
    """Return ``told`` without the folders of this machine that lead to an installed file."""
    # Each path is looked at once: a log may be the pull request's, and one line of slashes 16 MB long.
    return re.sub(r"/[^\s'\"()]*", lambda path: re.sub(r"^/.*?/(site|dist)-packages/", "", path[0]), told)


def without_line(function: str) -> str:
    """Return the name of a function that Dynamo resumes after a graph break without the line number in it."""
    return re.sub(r"torch_dynamo_resume_in_(.*)_at_\d+$", r"\1 (resumed)", function)
