"""The process of one run, or of one rank of it: pytest, stoppable by SIGINT. Run as ``python -m perf.child``."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from perf.case import find_case
from perf.cluster import place
from perf.run_order import rank_stem

# prctl's name for "send me this signal once my parent has ended" (linux/prctl.h).
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have this run interrupted when its parent is killed: it would disturb the runs that come next."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def main() -> int:
    """Run pytest on the command line's arguments and return its exit code."""
    # A shell starts background jobs with SIGINT ignored, children inherit that, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_parent()
    code = int(pytest.main(_of_rank(sys.argv[1:])))
    gc.freeze()  # the interpreter ends a second or two sooner when it need not look for garbage among all of torch
    return code


# torch reads it when it is imported.
_TRACE = "TORCH_TRACE"
_BENCHMARK = "--benchmark-json="


def _of_rank(arguments: list[str]) -> list[str]:
    """Return the arguments for this rank: what all ranks were told to write to one place goes to a place of its own."""
    case = find_case(arguments[arguments.index("--case") + 1]) if "--case" in arguments else None
    rank = place(case).rank if case else 0
    if not rank:
        return arguments
    if _TRACE in os.environ:
        trace = Path(os.environ[_TRACE])
        own = rank_stem(trace.with_suffix(""), rank).with_suffix(trace.suffix)
        os.environ[_TRACE] = str(trace if trace.stem.endswith(f"-rank-{rank}") else own)
    return [argument for argument in arguments if not argument.startswith(_BENCHMARK)]


if __name__ == "__main__":
    sys.exit(main())
