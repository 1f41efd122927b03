"""The process of one run: pytest, stoppable by SIGINT however it was started. Run as ``python -m perf.child``."""

from __future__ import annotations

import signal
import sys

import pytest


def main() -> int:
    """Run pytest on the command line's arguments and return its exit code."""
    # A shell starts background jobs with SIGINT ignored, children inherit that, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
