"""The process of one run: pytest, stoppable by SIGINT however it was started. Run as ``python -m perf.child``."""

from __future__ import annotations

import ctypes
import signal
import sys

import pytest

# prctl's name for "send me this signal once my parent has ended" (linux/prctl.h).
PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Have this run interrupted when its parent is killed: it would disturb the runs that come next."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def main() -> int:
    """Run pytest on the command line's arguments and return its exit code."""
    # A shell starts background jobs with SIGINT ignored, children inherit that, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _end_with_parent()
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
