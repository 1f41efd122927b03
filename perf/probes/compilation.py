"""Compilation: what Dynamo made of a case, from its own counters while the case really runs."""

from __future__ import annotations

import re
import sys
import threading
from types import FrameType
from typing import Any

from perf.probes.parts import Tally
from perf.probes.source import is_user_code, short_path, without_folders, without_line
from perf.record import Signal

# Frames are few, but a multi-scale case recompiles many times; Dynamo keeps 64 by itself.
_METRICS_KEPT = 4096


def reset() -> None:
    """Forget what Dynamo has counted in this process, so that :func:`signals` speaks of one case."""
    import torch._dynamo

    torch._dynamo.reset()
    forget()


def forget() -> None:
    """Forget what was counted, and keep what was compiled: what is counted from now on is what is new."""
    from torch._dynamo import utils

    utils.counters.clear()
    utils.graph_break_reasons.clear()
    utils.guard_failures.clear()
    if hasattr(utils, "set_compilation_metrics_limit"):
        utils.set_compilation_metrics_limit(_METRICS_KEPT)
    if hasattr(utils, "clear_compilation_metrics"):
        utils.clear_compilation_metrics()


# Innermost first: what the main thread is in when it is somewhere below these folders.
_STAGES = {"torch/_inductor/": "Inductor", "torch/_functorch/": "AOTAutograd", "torch/_dynamo/": "Dynamo"}


def progress() -> str:
    """Return how far compilation has come and what is at work now, in words; empty before the first frame."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None or not utils.counters["frames"]:
        return ""
    frames, graphs = utils.counters["frames"]["total"], utils.counters["stats"]["unique_graphs"]
    stage = _stage(sys._current_frames().get(threading.main_thread().ident or 0))
    return f"{frames} frames, {graphs} graphs so far{', now in ' + stage if stage else ''}"


def _stage(frame: FrameType | None) -> str:
    while frame is not None:
        filename = frame.f_code.co_filename
        for folder, stage in _STAGES.items():
            if folder in filename:
                return stage
        frame = frame.f_back
    return ""


def signals(model: Any) -> list[Signal]:
    """Return frames, frames that failed, graphs, graph breaks and recompiles since :func:`reset`.

    ``model`` is the module's model, compiled or not; ``model_frames`` counts the compiled frames of its own
    forward, so that a compiled loss cannot pass for a compiled model.
    """
    from torch._dynamo.utils import counters

    frames = counters["frames"]["total"]
    failed = frames - counters["frames"]["ok"]
    return [
        Signal(name="frames", kind="info", unit="frames", value=frames, direction="higher"),
        Signal(name="model_frames", kind="info", unit="frames", value=_model_frames(model), direction="higher"),
        _failed_frames(failed),
        _strict("graphs", "graphs", counters["stats"]["unique_graphs"], Tally()),
        _breaks(sum(counters["graph_break"].values())),
        _recompiles(),
        *_cache_signals(counters),
    ]


# What of a compilation is told of evaluation too. That it compiled at all is for training to prove.
_EVALUATED = ("frames", "frames_failed", "graphs", "graph_breaks", "recompiles")


def evaluation_signals() -> list[Signal]:
    """Return what evaluation compiled since :func:`forget`, each signal with ``eval_`` before its name.

    A frame that training had compiled counts as a recompile, with the guard that evaluation fails.
    """
    found = signals(None)
    return [signal.model_copy(update={"name": f"eval_{signal.name}"}) for signal in found if signal.name in _EVALUATED]


def _model_frames(model: Any) -> int:
    inner = getattr(model, "_orig_mod", None)  # torch.compile's wrapper has it, a plain model has not
    if inner is None:
        return 0
    code = type(inner).forward.__code__
    forward = (code.co_filename, code.co_firstlineno)
    compiled = [entry for entry in _metrics() if entry.fail_type is None]
    return sum((entry.co_filename, entry.co_firstlineno) == forward for entry in compiled)


def _strict(name: str, unit: str, value: int, tally: Tally) -> Signal:
    """Return a strict count; what the tally does not explain becomes a part of its own."""
    if tally.counts and value > tally.total:
        tally.add("no source line known", amount=value - tally.total)
    return Signal(name=name, kind="count-strict", unit=unit, value=value, parts=tally.parts())


def _metrics() -> list[Any]:
    from torch._dynamo import utils

    read = getattr(utils, "get_compilation_metrics", None)  # from torch 2.3
    entries = read() if read is not None else []
    return [entry for entry in entries if getattr(entry, "is_forward", True) is not False]


def _failed_frames(failed: int) -> Signal:
    tally = Tally()
    for entry in _metrics() if failed else []:
        if entry.fail_type is not None:
            where = entry.fail_user_frame_filename or entry.co_filename
            line = entry.fail_user_frame_lineno or entry.co_firstlineno
            tally.add(f"{_function(entry)}: {entry.fail_type}: {_raised(entry.fail_reason)}", _at(where, line))
    return _strict("frames_failed", "frames", failed, tally)


def _breaks(total: int) -> Signal:
    from torch._dynamo.utils import graph_break_reasons

    tally = Tally()
    for entry in graph_break_reasons:
        frame = _user_summary(entry.user_stack)
        place = f" in {short_path(frame.filename)}:{without_line(frame.name)}" if frame else ""
        tally.add(f"{_first_line(entry.reason)}{place}", _at(frame.filename, frame.lineno) if frame else None)
    return _strict("graph_breaks", "breaks", total, tally)


def _user_summary(stack: list[Any]) -> Any:
    """Return the innermost entry that is user code, else the innermost, else None."""
    ours = [frame for frame in stack if is_user_code(frame.filename)]
    return (ours or stack or [None])[-1]


def _recompiles() -> Signal:
    tally = Tally()
    for entry in _metrics():
        if entry.cache_size and entry.fail_type is None:
            guard, line = _guard(entry)
            tally.add(f"{_function(entry)}: {guard}", line)
    return _strict("recompiles", "recompiles", tally.total, tally)


def _guard(entry: Any) -> tuple[str, str | None]:
    """Return the guard that failed, free of line numbers, and the source line that set it."""
    reason = getattr(entry, "recompile_reason", None) or _noted_failure(entry) or "guard not told by this torch"
    guard, _, source = _first_line(re.sub(r"^\d+/\d+: ", "", reason)).partition("  # ")
    guard = re.sub(r"(?<![\w.])\d{9,}(?![\w.])", "ID", guard)  # of an object: another one in every process
    found = re.search(r"# ([^#\s]+):(\d+) in ", f"# {source}")
    if found is None:
        return guard.strip(), _at(entry.co_filename, entry.co_firstlineno)
    return guard.strip(), _at(_whole(found[1], found[2], reason), int(found[2]))


def _noted_failure(entry: Any) -> str | None:
    """Return the guard of the youngest graph of a frame that this recompile failed, as torch up to 2.6 notes it.

    A frame's graphs are numbered, and ``23/1: ...`` is what graph 1 of frame 23 failed on; the first such note is of
    the recompile that made graph 2.
    """
    from torch._dynamo.utils import guard_failures

    for code, reasons in guard_failures.items():
        if (code.co_filename, code.co_firstlineno) == (entry.co_filename, entry.co_firstlineno):
            failed = (reason for reason in reasons if re.match(rf"\d+/{entry.cache_size - 1}: ", reason))
            return next(failed, None)
    return None


def _whole(cut: str, line: str, reason: str) -> str:
    """Return the whole path where ``reason`` goes on with a stack trace (torch 2.14); the guard's line cuts it."""
    found = re.search(rf'File "([^"]*{re.escape(cut.lstrip("."))})", line {line},', reason)
    return found[1] if found else cut


def _function(entry: Any) -> str:
    """Return ``file:function`` of a compiled frame."""
    name = without_line(entry.co_name or "?")
    return f"{short_path(entry.co_filename)}:{name}" if entry.co_filename else name


def _at(filename: str | None, line: int | None) -> str | None:
    return f"{short_path(filename)}:{line}" if filename else None


def _raised(text: str | None) -> str:
    """Return what was raised in one line; of what a backend raised, the line after the one that says so too."""
    first, _, rest = (text or "").strip().partition("\n")
    return _first_line(first) + (f" {_first_line(rest)}" if first.endswith("raised:") and rest.strip() else "")


def _first_line(text: str | None) -> str:
    """Return the first line of ``text`` without what differs from run to run or from machine to machine.

    That is the addresses of objects, and the folders that lead to an installed file.
    """
    first = (text or "").strip().split("\n")[0]
    return without_folders(re.sub(r" at 0x[0-9a-f]+", "", first))


def _cache_signals(counters: Any) -> list[Signal]:
    """Return what Inductor counts: how much came from its cache, and so whether a first step was cold."""
    names = {
        "inductor_cache_hits": "fxgraph_cache_hit",
        "inductor_cache_misses": "fxgraph_cache_miss",
        "cudagraph_skips": "cudagraph_skips",  # graphs that CUDA graphs were asked for and could not take
    }
    found = counters.get("inductor", {})
    return [
        Signal(name=name, kind="info", unit="graphs", value=found[key], direction="higher")
        for name, key in names.items()
        if key in found
    ]
