"""Progress: what a run is doing and for how long, told through a file so that another process can show it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# A compile takes minutes; a line every quarter of a minute shows life without filling a CI log.
INTERVAL_SECONDS = 15.0


class Progress:
    """Appends lines to ``path``; the run's parent prints them as they come."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._born = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def say(self, text: str) -> None:
        """Append one line, with the seconds since the run began."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"[{time.monotonic() - self._born:6.1f} s] {self._prefix}: {text}\n")

    @contextlib.contextmanager
    def during(self, what: str, detail: Callable[[], str], interval: float = INTERVAL_SECONDS) -> Iterator[None]:
        """Say ``what`` now, then every ``interval`` seconds with the time elapsed and ``detail()`` until the end.

        A thread does the saying, so nothing may be timed inside that its wake-ups could disturb.
        """
        self.say(what)
        started, done = time.monotonic(), threading.Event()

        def tell() -> None:
            while not done.wait(interval):
                extra = detail()
                self.say(f"{what}: {time.monotonic() - started:.0f} s{', ' if extra else ''}{extra}")

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        self.say(f"{what}: done in {time.monotonic() - started:.1f} s")


class Follower:
    """Yields the lines that were added to a progress file since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[str]:
        """Return the complete lines added since the last call; none while the file does not exist."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        complete = added[: added.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.decode("utf-8").splitlines()
