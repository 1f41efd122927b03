"""Locks: what one process at a time may do. The system lets go of a lock when its process ends, however that ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def alone(path: Path, busy: str, seconds: float = 0) -> Iterator[None]:
    """Hold the lock file at ``path``; wait for it for at most so many seconds.

    Raises:
        ValueError: another process holds it still; says ``busy``.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except Timeout as error:
        raise ValueError(busy) from error
    try:
        yield
    finally:
        lock.release()
