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

# The last line of progress of a run that waits: its parent then does not hold the time against it.
WAITS = "waiting for other runs to be ready, or to have measured"

# The note of a run that took turns.
BESIDE = "prepared beside other runs of its session, which waited while it measured"

# Long enough for a run that waits to be woken before this one asks for the lock again.
_YIELD_SECONDS = 0.5


def can_lock(path: Path) -> bool:
    """Return whether files can be locked where ``path`` is; some network file systems refuse."""
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


class Turn:
    """The place of one process among those that share the lock file at ``path``; without one it is always its turn.

    ``say`` is told when it has to wait, and when that is over.
    """

    def __init__(self, path: Path | None, say: Callable[[str], None]) -> None:
        self.path = path
        self._say = say
        self._file: IO[bytes] | None = None

    def join(self) -> None:
        """Be one of those that work beside each other, until closed; waits for one that measures alone."""
        if self.path is not None:
            self._file = self.path.open("a+b")  # NFS shares only what is open for reading, too
            self._lock(self._file, fcntl.LOCK_SH)

    def close(self) -> None:
        """Be none of them any more."""
        if self._file is not None:
            self._file.close()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Work while none of the others does: wait until all of them wait too, or have ended."""
        if self._file is None:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_UN)  # asked for while it holds its share, two would wait for each other
        self._lock(self._file, fcntl.LOCK_EX)
        yield
        # Not after an error or Ctrl-C: what ends must not wait, and its lock goes with it.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        time.sleep(_YIELD_SECONDS)
        self._lock(self._file, fcntl.LOCK_SH)

    def _lock(self, file: IO[bytes], kind: int) -> None:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self._say(WAITS)
            fcntl.flock(file, kind)
            self._say("goes on")
