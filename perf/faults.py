"""The faults that this suite has to see: what is injected into rfdetr, where it is measured, what has to tell of it.

Each is a patch file in tests/faults, at two sizes: ``small`` as a careless change would have it, and ``blatant``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perf.case import Case, Lane, find_case

FOLDER = Path("tests/faults")
Size = Literal["small", "blatant"]
# How base and head are held against each other: by counts, one run a side; runs interleaved (ab); or a training against
# the seeds in its baseline.
Judging = Literal["counts", "interleaved", "seeds"]
# What has to come of it: a verdict that fails; a pass that lists the change; nothing, since this lane cannot see it.
Expected = Literal["fails", "listed", "unseen"]

EAGER, CAPTURED = "nano-cpu-b2", "nano-cpu-b2-compile-eager"
FIT, INPUT, TRAINING = "nano-cpu-b2-fit", "nano-cpu-b2-input", "nano-cpu-b4-w0-convergence"
# Graphs with ``dynamic=False``: as rfdetr asks for them, Inductor compiles for 18 minutes and more, and each side anew.
GPU, GPU_GRAPHS = "nano-b4", "nano-b4-compile-dynamic-off-graphs"
# A training has a seed that is in no baseline, since the floor is that of the next one. Where it breaks, its run tells.
FRESH_SEED = 100
BROKEN = f"run {FRESH_SEED}"


@dataclass(frozen=True)
class Fault:
    """One fault at one size on one lane.

    ``signals``: one of them has to tell of it. ``line``: the code in the patch file whose line has to be told; empty
    where no line can be. ``runs`` a side are needed.
    """

    kind: str
    size: Size
    case_id: str
    signals: tuple[str, ...]
    line: str = ""
    judging: Judging = "counts"
    expected: Expected = "fails"
    runs: int = 1

    @property
    def id(self) -> str:
        """What ``--select`` is held against: kind, size and, after a dot, the case."""
        return f"{self.kind}_{self.size}.{self.case_id}"

    @property
    def case(self) -> Case:
        """The case to measure."""
        return find_case(self.case_id)

    @property
    def lane(self) -> Lane:
        """Where the case runs."""
        return self.case.lane

    @property
    def needs(self) -> str:
        """What it takes a machine to measure it, in words; empty for any."""
        if self.lane == "gpu":
            return "a GPU"
        return "cores of its own" if self.judging == "interleaved" else ""

    @property
    def patch(self) -> Path:
        """The patch file, from the project's root."""
        return FOLDER / f"{self.kind}_{self.size}.py"

    @property
    def command(self) -> str:
        """The command that injects it again, on a machine that has its lane."""
        return f"nox -s scoreboard -- --select {self.id}"


def _both(
    kind: str, case_id: str, signals: tuple[str, ...], line: str = "", small: Expected = "fails"
) -> tuple[Fault, ...]:
    """Return a kind at both sizes, of which the blatant one has to fail."""
    return (
        Fault(kind, "small", case_id, signals, line, expected=small),
        Fault(kind, "blatant", case_id, signals, line),
    )


_WALL = 10
FAULTS: tuple[Fault, ...] = (
    *_both("graph_break", CAPTURED, ("graph_breaks",), "graph_break()"),
    *_both("recompile", CAPTURED, ("recompiles",), "def double"),
    Fault("fall_back", "small", CAPTURED, ("frames_failed",), "def double"),
    Fault("fall_back", "blatant", CAPTURED, ("frames_failed", "model_frames", "frames")),
    *_both("host_sync", EAGER, ("aten_ops",), ".item()", "listed"),
    *_both("aten_op", EAGER, ("aten_ops",), "torch.neg", "listed"),
    *_both("python_work", EAGER, ("python_calls",), "work(number)\n", "listed"),
    *_both("matcher", EAGER, ("c_calls", "python_calls", "aten_ops"), "_assign(*args", "listed"),
    *_both("memory_leak", EAGER, ("memory_growth",), "torch.zeros(FLOATS"),
    *_both("peak_memory", EAGER, ("step_memory",), "torch.zeros(FLOATS"),
    *_both("loss_term", EAGER, ("first_loss",)),
    *_both("mirrored_boxes", EAGER, ("first_loss",), "torch.stack"),
    *_both("learning_rate", EAGER, ("optimizer_groups",)),
    *_both("workers", FIT, ("loader_workers",)),
    *_both("validation", FIT, ("validation_forwards",)),
    *_both("ema", FIT, ("ema_updates",)),
    Fault("host_time", "small", EAGER, ("step_time",), "", "interleaved", "unseen", _WALL),
    Fault("host_time", "blatant", EAGER, ("step_time",), "", "interleaved", "fails", _WALL),
    *_both("decode", INPUT, ("input_c_calls", "input_python_calls"), "image, _ = _decode"),
    Fault("mirrored_boxes", "blatant", TRAINING, ("map",), "", "seeds"),
    Fault("learning_rate", "blatant", TRAINING, ("map", "final_loss"), "", "seeds"),
    Fault("loss_term", "blatant", TRAINING, ("map", "map_to_ap50", "final_loss", BROKEN), "", "seeds"),
    Fault("ema", "blatant", TRAINING, ("map",), "", "seeds"),
    *_both("host_sync", GPU, ("host_syncs",), ".item()"),
    *_both("kernel", GPU, ("kernels",), "torch.neg", "listed"),
    *_both("memory_leak", GPU, ("memory_growth",)),
    Fault("gpu_work", "small", GPU, ("gpu_busy",), "", "interleaved", "fails", 3),
    Fault("gpu_work", "blatant", GPU, ("gpu_busy",), "", "interleaved", "fails", 3),
    Fault("peak_memory", "small", GPU, ("peak_memory",), "", "interleaved", "unseen", 3),
    Fault("peak_memory", "blatant", GPU, ("peak_memory",), "", "interleaved", "fails", 3),
    *_both("cuda_graph", GPU_GRAPHS, ("aten_ops", "c_calls", "kernels", "host_syncs")),
)


def line_of(fault: Fault, root: Path = Path()) -> str:
    """Return ``file:line`` of the faulty line in the patch, the first of several; empty where none is asked for.

    Raises:
        ValueError: no line of the patch holds that code.
    """
    if not fault.line:
        return ""
    lines = (root / fault.patch).read_text(encoding="utf-8").splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines, 1) if fault.line in line]
    if not numbers:
        msg = f"{fault.patch}: no line holds {fault.line!r}"
        raise ValueError(msg)
    return f"{fault.patch}:{numbers[0]}"


def selected(patterns: list[str]) -> list[Fault]:
    """Return the faults whose id holds one of ``patterns``, all without one.

    Raises:
        ValueError: a pattern is in no id; lists the kinds.
    """
    for pattern in patterns:
        if not any(pattern in fault.id for fault in FAULTS):
            kinds = ", ".join(dict.fromkeys(fault.kind for fault in FAULTS))
            msg = f"--select {pattern}: no such fault; kinds are {kinds}, sizes small and blatant (graph_break_small)"
            raise ValueError(msg)
    return [fault for fault in FAULTS if not patterns or any(pattern in fault.id for pattern in patterns)]
