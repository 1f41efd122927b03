"""Cells: what became of each setting of a sweep, from its records. Pure.

A cell that ran out of memory, raised or silently fell back is a result like any other.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from perf.case import Case
from perf.errors import TOO_LONG, error_line
from perf.levers import Lever, lever_of
from perf.pool import by_case
from perf.probes.throughput import ENGINE, GRAPHS, SAID
from perf.record import Record
from perf.stats import CONFIDENCE, t_quantile

# Share of the device's memory to keep free. Validation, EMA and larger targets than a sweep's 12 boxes need some.
HEADROOM = 0.1
Outcome = Literal["measured", "fell back", "out of memory", "raised", "unsupported here", "not run"]
RATE, BUSY, SHARE = "images_per_second", "gpu_busy", "memory_share"

_SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# torch on CUDA, torch's CPU allocator, and what cuBLAS, cuDNN and CUDA say, which name no size. torch's CUDA allocator
# asks NVML what to say, and where that does not answer, as in some containers, says so instead.
_ASKED = re.compile(r"Tried to allocate ([\d.]+) ([KMGT]?i?B)\b|you tried to allocate (\d+) bytes")
_NO_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|CUDNN_STATUS_\w*ALLOC(ATION)?_FAILED|NVML_SUCCESS == .*CUDACachingAllocator\.cpp"
    r"|^MemoryError|Cannot allocate memory",
    re.MULTILINE | re.IGNORECASE,
)
# A run that ended so tells nothing of its setting: it is repeated when the sweep goes on.
_INTERRUPTED = re.compile(r"KeyboardInterrupt|^killed by SIG(INT|TERM|HUP)|^SystemExit", re.MULTILINE)


class Cell(NamedTuple):
    """One setting of a sweep and what became of it.

    ``rate`` is in images per second with a 95 % interval from ``low`` to ``high``, ``runs`` the processes behind it:
    of one the interval is that of its own steps' median, which knows nothing of how runs differ. ``busy`` and
    ``memory`` are shares (0 to 1), of the step's wall time and of the device's memory; ``peak`` in bytes.
    ``first_step`` in s, and ``cold`` whether Inductor had to compile for it. ``asked``: the bytes that memory ran out
    for. ``record`` names session and case.
    """

    case: Case
    outcome: Outcome
    detail: str = ""
    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    runs: int = 0
    busy: float | None = None
    memory: float | None = None
    peak: float | None = None
    first_step: float | None = None
    cold: bool = False
    asked: float | None = None
    record: str = ""

    @property
    def lever(self) -> Lever:
        """What it pulls."""
        return lever_of(self.case)

    @property
    def measured(self) -> bool:
        """Whether it has a rate that is that of its setting."""
        return self.outcome == "measured"


def leaves(cell: Cell, headroom: float) -> bool:
    """Return whether a cell leaves so much of the memory free; one that does not tell its share is taken to."""
    return cell.memory is None or cell.memory <= 1 - headroom


def cells_of(records: Sequence[Record]) -> list[Cell]:
    """Return the cells of all ``records`` that a sweep left, in the order in which they come.

    Raises:
        ValueError: the runs of one case cannot be pooled; names them.
    """
    ours = [record for record in records if record.case.measure == "throughput" and is_result(record)]
    return [_cell(runs) for runs in by_case(ours).values()]


def is_result(record: Record) -> bool:
    """Return whether a record says what its setting does: it finished, or failed by itself."""
    if record.status == "finished":
        return not record.untimed  # it shared the machine
    error = record.error or ""
    return record.status == "failed" and (timed_out(record) or not _INTERRUPTED.search(error))


def timed_out(record: Record) -> bool:
    """Return whether a run was stopped since its time was up."""
    return bool(TOO_LONG.search(record.error or ""))


def requested_bytes(error: str) -> float | None:
    """Return the size that memory ran out for, in bytes; None where the message names none."""
    found = _ASKED.search(error)
    if found is None:
        return None
    return float(found[3]) if found[3] else float(found[1]) * _SIZES.get(found[2], 1)


def ran_out(error: str) -> bool:
    """Return whether an error is that of memory running out."""
    return bool(_ASKED.search(error) or _NO_MEMORY.search(error))


def _cell(runs: Sequence[Record]) -> Cell:
    failed = [record for record in runs if record.status == "failed"]
    if failed:
        return _failed(failed[0])
    problem = next(filter(None, map(fallback, runs)), "")
    outcome: Outcome = "fell back" if problem else "measured"
    first = runs[0]
    value, low, high = interval(runs)
    return Cell(
        case=first.case,
        outcome=outcome,
        detail=problem or _remark(first),
        rate=value,
        low=low,
        high=high,
        runs=len(runs),
        busy=_busy(first),
        memory=_share(runs),
        peak=_value(first, "peak_memory") or _value(first, "peak_rss"),
        first_step=_value(first, "first_step"),
        cold=bool(_value(first, "inductor_cache_misses")),
        record=f"{first.session}/{first.case_id}",
    )


def _failed(record: Record) -> Cell:
    error = record.error or ""
    where = f"{record.session}/{record.case_id}"
    share = _value(record, SHARE)
    memory = None if share is None else share / 100
    if ran_out(error):
        return Cell(
            record.case, "out of memory", _line(error), asked=requested_bytes(error), record=where, memory=memory
        )
    return Cell(record.case, "raised", _line(error), record=where, memory=memory)


def _line(error: str) -> str:
    return error_line(error)[:300]


def _value(record: Record, name: str) -> float | None:
    signal = record.signal(name)
    return None if signal is None else signal.value


def _busy(record: Record) -> float | None:
    busy, step = _value(record, BUSY), _value(record, "step_time")
    return None if busy is None or not step else busy / step


def _share(runs: Sequence[Record]) -> float | None:
    found = [share for run in runs if (share := _value(run, SHARE)) is not None]
    return max(found) / 100 if found else None


def fallback(record: Record) -> str:
    """Return in which way the run did not do what its case asks for; empty where it did.

    rfdetr and torch only log it: so the compiled frames, the graphs replayed, Transformer Engine's layers and the
    precision that Lightning was told are looked at. What does not say that it did as asked is taken to have not.
    """
    case = record.case
    compiled, graphs = case.compile, case.cuda_graphs or case.mode == "reduce-overhead"
    if compiled and not _value(record, "model_frames"):
        return _told(record, "compile is on and the model ran eager")
    if graphs and not _replayed(record):
        return _told(record, "CUDA graphs were asked for and none was replayed")
    if case.precision == "fp8" and not _value(record, ENGINE):
        return _told(record, "fp8 was asked for and no layer is Transformer Engine's")
    if case.precision == "fp8" and any(_OTHER_CAPTURE.search(note) for note in record.notes):
        return _told(record, "fp8 was asked for, and CUDA graphs were captured without Transformer Engine")
    return _other_precision(record)


def _replayed(record: Record) -> bool:
    """Return whether CUDA graphs were replayed: as the profile has it, or as rfdetr says of a training without one."""
    if record.case.measure == "throughput":
        return bool(_value(record, GRAPHS))
    return any(_CAPTURED.search(note) for note in record.notes) or record.case.mode == "reduce-overhead"


# How rfdetr says that it replays graphs, and by what it captured them (training/cuda_graph_step.py, module_model.py).
_CAPTURED = re.compile(r"Captured CUDA graph|CUDA graph replay is handled by Inductor")
_OTHER_CAPTURE = re.compile(r"Captured CUDA graph .*Backend: (?!Transformer Engine)")
_EXPECTED = {"bf16": "bf16-", "fp16": "16-", "fp32": "32-", "fp8": "transformer-engine"}


def _other_precision(record: Record) -> str:
    wanted = _EXPECTED.get(record.case.precision, "")
    used = record.precision or "nobody knows which"
    return "" if used.startswith(wanted) else f"{record.case.precision} was asked for, and {used} is in use"


def _told(record: Record, problem: str) -> str:
    """Return the problem with what rfdetr's log says of it."""
    said = [note.removeprefix(SAID) for note in record.notes if note.startswith(SAID)]
    reasons = [line for line in said if re.search(r"disabling|falling back|remain|unsupported", line, re.IGNORECASE)]
    return "; ".join([problem, *(f"rfdetr: {line}" for line in reasons[:1])])


def _remark(record: Record) -> str:
    failed, frames = _value(record, "frames_failed"), _value(record, "frames")
    return f"{failed:.0f} of {frames:.0f} frames ran eager" if failed and frames else ""


def interval(runs: Sequence[Record]) -> tuple[float, float, float]:
    """Return the rate in images per second and the ends of its 95 % interval.

    Of several runs, their geometric mean and Student's interval of it. Of one, the median of its steps with the
    interval of that median by order statistics: it holds for this run, and says nothing of how runs differ.
    """
    rates = [value for run in runs if (value := _value(run, RATE))]
    if not rates:
        return 0.0, 0.0, 0.0
    if len(rates) > 1:
        logs = [math.log(value) for value in rates]
        half = t_quantile(len(logs) - 1, CONFIDENCE) * statistics.stdev(logs) / math.sqrt(len(logs))
        centre = statistics.fmean(logs)
        return math.exp(centre), math.exp(centre - half), math.exp(centre + half)
    signal = runs[0].signal(RATE)
    samples = sorted(signal.samples) if signal else []
    return rates[0], *_median_interval(samples or rates)


def _median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the two order statistics between which the median lies with 95 %; the extremes where samples are few."""
    count, below, tail = len(samples), 0, 0.5 ** len(samples)
    while below + 1 < count / 2 and tail + math.comb(count, below + 1) * 0.5**count <= (1 - CONFIDENCE) / 2:
        below += 1
        tail += math.comb(count, below) * 0.5**count
    return samples[below], samples[count - 1 - below]
