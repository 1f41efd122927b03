"""The scoreboard as a document: Markdown, from the rows of the store alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perf.faults import FAULTS, Fault
from perf.record import write_atomically
from perf.report.markdown import code, table, text
from perf.scoreboard import (
    Row,
    Seen,
    Told,
    Unfaulted,
    gaps,
    is_caught,
    line_told,
    merged,
    problems,
    read_store,
    result,
    store_text,
)

_INTRO = """\
# Scoreboard

Faults that were put into an unmodified rfdetr on purpose, and what told of them. Made from
[scoreboard.jsonl](scoreboard.jsonl), which holds what was run and nothing else; do not edit by hand.

    nox -s scoreboard                                    # all faults of this machine's lane; goes on where it stopped
    nox -s scoreboard -- --select graph_break_small      # one; --list names them all
    nox -s scoreboard -- --unfaulted --sessions 20       # rfdetr as it is: false alarms
    rfdetr-perf scoreboard --check                       # exit 1 where one is not caught any more, or not measured

A fault is a file of `tests/faults`, at two sizes: *small* as a careless change would have it, and *blatant*. It and its
unfaulted twin run in fresh processes, and the suite's own judging holds them against each other: *counts* by one run a
side, *interleaved* runs as `ab` has them, or a training (*seeds*) against the floor that the baseline's seeds set.

- *caught*: a signal that has to tell of it is `regressed` or `not-compiled`, so that the session does not pass; other
  verdicts do not count, but for a training that breaks. *listed*: it passes, and the report shows the change, since a
  volume count may drift by 1 %.
- *line*: whether the report names the faulty line of the patch; `-` where there is none to name.
- pytest-benchmark: what `--benchmark-compare-fail=mean:5%` makes of one run's samples, by pytest-benchmark's own code,
  against those of the unfaulted run that was measured closest in time; of unfaulted runs, against the run before.
- TraceML: what its `compare` gives for step time in an eager fit with the same fault, held to 5 %; `-` where it was not
  asked, or cannot be (a compiled case, the input by itself, a GPU signal on a CPU).
- In brackets the change that these two saw. Where a fault costs no time they say nothing of it, whatever they say: the
  table of false alarms tells how often pytest-benchmark fails rfdetr as it is, and TraceML was not asked that.
"""


def document(rows: Sequence[Row | Unfaulted]) -> str:
    """Return the document: Markdown, from the rows alone; a fault that was not measured says how it would be."""
    measured = {row.fault_id: row for row in rows if isinstance(row, Row)}
    lines = [_line(fault, measured.get(fault.id)) for fault in FAULTS]
    headings = ["fault", "case", "result", "told by", "runs", "line", "pytest-benchmark", "TraceML", "measured"]
    parts = [_INTRO, _summary(rows), table(headings, lines), _unfaulted([r for r in rows if isinstance(r, Unfaulted)])]
    return "\n".join([*parts, _sources()])


def _line(fault: Fault, row: Row | None) -> list[str]:
    name = f"{fault.kind.replace('_', ' ')}, {fault.size}"
    if row is None:
        here = f"not run yet: needs {fault.needs}" if fault.needs else "not run yet"
        return [name, code(fault.case_id), here, code(fault.command), f"{fault.runs}", "", "", "", ""]
    told = line_told(row, fault)
    return [
        name,
        code(fault.case_id),
        _result(row, fault),
        "; ".join(_seen(one) for one in _telling(row, fault)) or "nothing",
        f"{row.pairs}, {fault.judging}",
        "-" if told is None else "told" if told else "not told",
        _opinion(row.benchmark),
        _opinion(row.traceml),
        f"{row.measured}, {row.suite_commit or 'no commit'}",
    ]


def _result(row: Row, fault: Fault) -> str:
    """Return what came of a fault, in a word or two."""
    found = result(row, fault)
    if found == "missed":
        return "not seen on this lane" if is_caught(row, fault) else "**missed**"
    return found


def _telling(row: Row, fault: Fault) -> list[Seen]:
    """Return the signals that have to tell of it, and of the others those that fail; at most five."""
    ordered = sorted(row.seen, key=lambda one: (one.signal not in fault.signals, one.verdict == "listed"))
    return [one for one in ordered if one.signal in fault.signals or one.verdict != "listed"][:5]


def _seen(one: Seen) -> str:
    return f"{code(one.signal)} {one.verdict}: {text(one.change)}"


def _opinion(told: Told | None) -> str:
    return f"{told.said} ({told.percent:+.1f} %)" if told else "-"


def _summary(rows: Sequence[Row | Unfaulted]) -> str:
    """Return how many faults of each size were measured, caught and listed, and what pytest-benchmark failed."""
    lines = []
    for size in ("blatant", "small"):
        found = [(row, fault) for fault in FAULTS for row in rows if _is_of(row, fault, size)]
        results = [result(row, fault) for row, fault in found if isinstance(row, Row)]
        asked = [row.benchmark for row, _ in found if isinstance(row, Row) and row.benchmark]
        failed = sum(told.said == "fails" for told in asked)
        lines.append(
            [
                size,
                str(len(results)),
                *(str(results.count(name)) for name in ("caught", "listed")),
                f"{failed} of {len(asked)}",
            ]
        )
    return table(["size", "measured", "caught", "listed", "pytest-benchmark fails"], lines)


def _is_of(row: Row | Unfaulted, fault: Fault, size: str) -> bool:
    return isinstance(row, Row) and fault.size == size and row.fault_id == fault.id


def _unfaulted(rows: Sequence[Unfaulted]) -> str:
    lines = [
        [
            code(row.case_id),
            row.against,
            str(row.sessions),
            str(row.alarms),
            str(row.listed),
            f"{row.benchmark_alarms} of {row.benchmark_sessions}" if row.benchmark_sessions else "-",
            f"{row.measured}, {row.suite_commit or 'no commit'}",
        ]
        for row in rows
    ]
    headings = [
        "case",
        "held against",
        "sessions",
        "false alarms",
        "listed a change",
        "pytest-benchmark fails",
        "measured",
    ]
    said = "Nothing was measured yet.\n" if not lines else table(headings, lines)
    return f"## False alarms: rfdetr as it is\n\n{said}"


def _sources() -> str:
    kinds = list(dict.fromkeys(fault.patch for fault in FAULTS))
    return "## The faults\n\n" + "".join(f"- {code(str(path))}: {text(_about(path))}\n" for path in kinds)


def _about(path: Path) -> str:
    """Return the first line of a patch's docstring."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.strip('"')


def add(store: Path, new: Sequence[Row | Unfaulted]) -> None:
    """Take new rows into the store.

    Raises:
        ValueError: the store cannot be used; names the line.
    """
    write_atomically(store, store_text(merged(read_store(store), new)))


def regenerate(store: Path, out: Path) -> str:
    """Write the document, and say so."""
    write_atomically(out, document(read_store(store)))
    return f"{out}: written\n"


def check(store: Path, out: Path, whole: bool = True) -> tuple[int, str]:
    """Return 1 and why, where a fault of the store is not caught or the document is not what the store gives.

    ``whole``: also where the store lacks something that it has to hold.
    """
    rows = read_store(store)
    found = [*problems(rows), *(gaps(rows) if whole else [])]
    if not out.exists() or out.read_text(encoding="utf-8") != document(rows):
        found.append(f"{out}: not what {store} gives; make it anew: rfdetr-perf scoreboard --document")
    if found:
        return 1, "".join(f"{line}\n" for line in found)
    there = {row.fault_id for row in rows if isinstance(row, Row)}
    told = f"{len(there)} faults caught as they have to be"
    for needs, count in Counter(fault.needs for fault in FAULTS if fault.needs and fault.id not in there).items():
        told += f"; {count} not measured, which needs {needs}"
    return 0, f"{told}\n"
