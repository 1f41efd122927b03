"""Turns: runs beside each other prepare together, and measure one at a time what others on the machine would disturb.

All hold one lock file: shared while they import, build and compile, alone while they measure. The system lets go of a
lock when its process ends, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

# The note of a run that took turns.
BESIDE = "prepared beside other runs of its session, which waited while it measured"

# Long enough for a run that waits to be woken before this one asks for the lock again.
_YIELD_SECONDS = 0.5


class Turn:
    """The place of one process among those that share the lock file at ``path``; without one it is always its turn."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Be one of those that work beside each other; waits for one that measures alone."""
        if self.path is None:
            yield
            return
        with self.path.open("ab") as self._file:
            fcntl.flock(self._file, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """Work while none of the others does: wait until all of them wait too, or have ended."""
        if self._file is None:
            yield
            return
        say("waiting for its turn to measure alone")
        fcntl.flock(self._file, fcntl.LOCK_UN)  # asked for while it holds its share, two would wait for each other
        fcntl.flock(self._file, fcntl.LOCK_EX)
        yield
        # Not after an error or Ctrl-C: what ends must not wait, and its lock goes with it.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        time.sleep(_YIELD_SECONDS)
        fcntl.flock(self._file, fcntl.LOCK_SH)
