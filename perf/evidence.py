"""Evidence: what torch itself says of a compiled case, in files beside its record.

``run-0.explain.txt``: what ``torch._dynamo.explain`` prints, of the compilation that the run measured and not of a
second one. ``run-0.recompiles.log``: TORCH_LOGS' graph breaks and recompiles, with every guard that failed.
``run-0.trace/``: the structured trace, which tlparse reads; kept where the case failed, fell back or did not compile.

Nothing in here ends a run: what goes wrong becomes a note of the record.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib
import json
import logging
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.gates import compile_gate
from perf.pool import by_signal
from perf.probes import compilation
from perf.record import Record, read_record

# torch reads it when it is imported, so that it must be in the environment of a run from the start.
TRACE_VARIABLE = "TORCH_TRACE"
KEEP_VARIABLE = "RFDETR_PERF_KEEP_TRACE"

# Of a training: every loss and score, what rfdetr itself logged, and a picture of both.
CURVE, METRICS, PLOT = ".curve.json", ".metrics.csv", ".curve.svg"

# Of a fit: the profiler's own trace of it, which chrome://tracing and Perfetto open.
PROFILE = ".profile.json.gz"
# A few updates take some MB; what is larger is dropped, and noted.
MOST_PROFILE_BYTES = 32 * 2**20

ARTIFACTS = ("recompiles", "recompiles_verbose", "graph_breaks")

_SUFFIXES = (".explain.txt", ".recompiles.log", ".trace", CURVE, METRICS, PLOT, PROFILE)
_NO_TRACE = "There is no structured trace, so operations and guards are not told and the op count is not 0.\n"


def explain_path(stem: Path) -> Path:
    """Return where the explanation of the run whose files start with ``stem`` goes."""
    return stem.with_suffix(_SUFFIXES[0])


def log_path(stem: Path) -> Path:
    """Return where the log of graph breaks and recompiles goes."""
    return stem.with_suffix(_SUFFIXES[1])


def trace_path(stem: Path) -> Path:
    """Return the folder of the structured trace."""
    return stem.with_suffix(_SUFFIXES[2])


def trace_environment(stem: Path, compiled: bool) -> dict[str, str]:
    """Return what the environment of a run needs so that torch traces it; what an earlier run left there goes.

    ``compiled`` is whether the case compiles; otherwise there is nothing to trace.
    """
    if not compiled:
        return {}
    folder = trace_path(stem).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    return {TRACE_VARIABLE: str(folder)}


def left_behind(stem: Path) -> list[str]:
    """Return the names of the evidence that exists, relative to the record: a run that was killed told of none."""
    found = (stem.with_suffix(suffix) for suffix in _SUFFIXES)
    return [f"{path.name}/" if path.is_dir() else path.name for path in found if path.exists()]


# What Kineto says beside the events.
_OF_MACHINE = re.compile(rb'("(?:host_name|traceName)":\s*)"(?:[^"\\]|\\.)*"')


def keep_profile(stem: Path, trace: Path) -> list[str]:
    """Keep a profiler's ``trace`` beside the record, compressed; return why not, in a line, where it is too large.

    Without the names of the machine and of its folder: it is there to be posted.
    """
    target = stem.with_suffix(PROFILE)
    target.unlink(missing_ok=True)
    packed = gzip.compress(_OF_MACHINE.sub(rb'\1""', trace.read_bytes()), compresslevel=6, mtime=0)
    if len(packed) > MOST_PROFILE_BYTES:
        most = MOST_PROFILE_BYTES >> 20
        return [f"evidence: the profiler's trace is not kept: {len(packed) >> 20} MB compressed, at most {most} are"]
    target.write_bytes(packed)
    return []


def links(records: Iterable[Record], folder: Path) -> list[str]:
    """Return a line for the evidence of each of ``records``, which lie below ``folder``: where its files are."""
    beside = {path.parent for path in folder.rglob("*.record.json")} if folder.is_dir() else {folder.parent}
    lines = []
    for record in records:
        homes = [home for home in sorted(beside) if record.evidence and _is_home(home, record)]
        lines += [f"evidence: {', '.join(str(home / name) for name in record.evidence)}" for home in homes]
    return lines


def _is_home(folder: Path, record: Record) -> bool:
    path = folder / f"run-{record.run}.record.json"
    if folder.name != record.case_id or not path.is_file():
        return False
    session = Path(record.session).parts
    return folder.parent.parts[-len(session) :] == session or read_record(path).session == record.session


@dataclass
class Evidence:
    """The evidence of one run in the making. Whatever fails in it is a line of the record's notes.

    ``stem`` is the common start of the run's files.
    """

    stem: Path
    record: Record
    _log: ArtifactLog | None = field(default=None, init=False)
    _sections: list[str] = field(default_factory=list, init=False)
    _read: dict[Path, int] = field(default_factory=dict, init=False)
    _open: bool = field(default=False, init=False)

    @property
    def wanted(self) -> bool:
        """Whether there is anything to collect: the case compiles."""
        return self.record.case.compile

    def resume(self) -> None:
        """Collect from here on, again after :meth:`take`; does nothing for a case that does not compile."""
        if self._open or not self.wanted:
            return
        self._open = True
        with self._noting("no log of recompiles"):
            self._log = self._log or ArtifactLog(log_path(self.stem))
            self._log.start()
        with self._noting("the trace cannot be read"):
            self._read = {path: path.stat().st_size for path in trace_path(self.stem).glob("*.log")}

    def take(self, what: str) -> None:
        """Write the explanation of ``what`` was compiled since :meth:`resume`, and stop collecting.

        Dynamo's counters have to be those of the same time.
        """
        if not self._open:
            return
        self._open = False
        with self._noting("the log of recompiles was not ended"):
            if self._log:
                self._log.stop()
        with self._noting(f"no explanation ({what})"):
            self._sections.append(f"# {what}\n\n{explanation(read_trace(trace_path(self.stem), self._read))}")
            explain_path(self.stem).write_text("\n".join([_HEAD, *self._sections]), encoding="utf-8")

    def end(self, failed: bool) -> None:
        """Take what is still open, drop the trace of a sound run, and name the files in the record."""
        if not self.wanted:
            return
        self.take("until it failed" if failed else "the whole run")
        with self._noting("torch's loggers were not restored"):
            if self._log:
                self._log.restore()
        with self._noting("its files"):
            if is_sound(self.record) and not failed and os.environ.get(KEEP_VARIABLE) != "1":
                shutil.rmtree(trace_path(self.stem), ignore_errors=True)
            self.record.evidence = left_behind(self.stem)

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever torch has changed must not cost the measurement
            self.record.notes.append(f"evidence: {what}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def collecting(evidence: Evidence) -> Iterator[Evidence]:
    """Collect the evidence of what is compiled inside; at the end its record names it, also where this raised."""
    evidence.resume()
    try:
        yield evidence
    except BaseException:
        evidence.end(failed=True)
        raise
    evidence.end(failed=False)


def is_sound(record: Record) -> bool:
    """Return whether the record's own counts prove that the model compiled and nothing fell back to eager."""
    return compile_gate(by_signal([record]), runs=1) is None


class ArtifactLog:
    """torch's log of graph breaks and recompiles, sent to a file.

    Nothing more is printed, and what the user asked for with TORCH_LOGS is printed as before. Of the artifacts those
    are logged that the torch at hand has.
    """

    def __init__(self, path: Path) -> None:
        from torch._logging import _internal

        importlib.import_module("torch._dynamo.convert_frame")  # makes the loggers

        registry, self._state = _internal.log_registry, _internal.log_state
        path.unlink(missing_ok=True)
        self._handler = logging.FileHandler(path, mode="a", encoding="utf-8")
        self._handler.setFormatter(_internal.TorchLogsFormatter())
        known = [name for name in ARTIFACTS if name in registry.artifact_names]
        self._new = [name for name in known if not self._state.is_artifact_enabled(name)]
        loggers: list[Any] = [logging.getLogger(name) for name in sorted(registry.get_artifact_log_qnames())]
        self._loggers = [logger for logger in loggers if logger.artifact_name in known]
        self._before = [(logger, logger.level, logger.propagate) for logger in self._loggers]

    def start(self) -> None:
        """Write from here on."""
        for logger in self._loggers:
            logger.addHandler(self._handler)
            if logger.artifact_name in self._new:
                logger.setLevel(logging.DEBUG)
                logger.propagate = False  # torch's own handler would print it
        for name in self._new:
            self._state.enable_artifact(name)  # Dynamo asks for this before it gathers all the guards that failed

    def stop(self) -> None:
        """Write nothing more. The loggers' levels stay: to set one empties logging's cache, and Python calls rise."""
        for name in self._new:
            self._state.artifact_names.discard(name)
        for logger in self._loggers:
            logger.removeHandler(self._handler)
        self._handler.close()

    def restore(self) -> None:
        """Leave the loggers as they were."""
        self.stop()
        for logger, level, propagate in self._before:
            logger.setLevel(level)
            logger.propagate = propagate


def explanation(seen: Seen) -> str:
    """Return in words what Dynamo has compiled since its counters were cleared, as its ``explain`` lays it out.

    Operations and guards are ``seen``, in the structured trace.
    """
    from torch._dynamo.backends.debugging import ExplainOutput
    from torch._dynamo.utils import compile_times, counters, graph_break_reasons

    told = ExplainOutput(
        graphs=[],
        graph_count=counters["stats"]["unique_graphs"],
        graph_break_count=sum(counters["graph_break"].values()),
        break_reasons=list(graph_break_reasons),
        op_count=sum(map(len, seen.graphs)),
        ops_per_graph=seen.graphs or None,
        out_guards=[f"{guard}\n" for guard in seen.guards] or None,
        compile_times=f"{compile_times(repr='str')}\n",
    )
    return "\n".join([*([] if seen.found else [_NO_TRACE]), *_frames(), str(told)])


_HEAD = """\
Of the compilation that this run measured, in the layout of torch._dynamo.explain(), which was not called: it
would have compiled a second time. Graphs, breaks and frames: Dynamo's own counters. Times: its own, of the process
so far. Operations (methods and operators included, which explain() leaves out) and guards: the structured trace.
"""


def _frames() -> list[str]:
    """Return a line for each frame that Dynamo compiled or gave up, with why."""
    entries = compilation._metrics()
    return [f"Frames: {len(entries)}", *(f"  {_frame(entry)}" for entry in entries)]


def _frame(entry: Any) -> str:
    failed = f"; failed: {entry.fail_type}: {entry.fail_reason}" if entry.fail_type else ""
    seconds = f", {entry.entire_frame_compile_time_s:.3f} s" if entry.entire_frame_compile_time_s else ""
    work = f"{entry.graph_op_count or 0} ops, {entry.guard_count or 0} guards{seconds}"
    return f"{entry.co_filename}:{entry.co_firstlineno} {entry.co_name}: {work}{failed}"


@dataclass
class Seen:
    """What a structured trace tells: the operations of each graph, and each guard that Dynamo set."""

    found: bool = False
    graphs: list[list[str]] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)


def read_trace(folder: Path, read: Mapping[Path, int]) -> Seen:
    """Return what the trace in ``folder`` tells; what it does not understand it leaves out.

    ``read`` holds how many bytes of a file are known already.
    """
    seen = Seen()
    for path in sorted(folder.glob("*.log")):
        seen.found = True
        for kind, payload in _entries(path, read.get(path, 0)):
            if kind == "dynamo_output_graph":
                seen.graphs.append(operations(payload))
            elif kind == "dynamo_cpp_guards_str":
                seen.guards += re.findall(r"^[| ]*\+- ([A-Z_]+: .*)$", payload, re.MULTILINE)
    return seen


_WANTED = ("dynamo_output_graph", "dynamo_cpp_guards_str")


def _entries(path: Path, start: int) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        file.seek(start)
        yield from _entries_of(file)


def _entries_of(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield kind and payload of the wanted entries: a payload's lines follow its entry, each after a tab."""
    kind, payload = "", list[str]()
    for line in map(_text, lines):
        if line.startswith("\t"):
            payload += [line[1:]] if kind else []
            continue
        if kind:
            yield kind, "".join(payload)
        kind, payload = _kind(line), []
    if kind:
        yield kind, "".join(payload)


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def _kind(line: str) -> str:
    try:
        told = json.loads(line.partition("] ")[2])
    except ValueError:
        return ""
    return next((name for name in _WANTED if name in told), "")


def operations(code: str) -> list[str]:
    """Return the operations of a graph, in order, from the Python that torch prints for it; empty where it is none."""
    try:
        tree = ast.parse(textwrap.dedent(code))
    except SyntaxError:
        return []
    assigned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign)]
    return [name for value in assigned if value is not None and (name := _operation(value))]


def _operation(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return _called(value.func)
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return type(value.op).__name__.lower()
    return "getitem" if isinstance(value, ast.Subscript) else ""


# "self": older releases of torch call the modules of the model by their names in the graph.
_MODULES = ("torch", "operator", "math", "self")


def _called(function: ast.expr) -> str:
    """Return the name of a function, or of a method without the graph's own name for the value before the dot."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return ast.unparse(function) if function.value.id in _MODULES else f".{function.attr}"
    return ast.unparse(function)
