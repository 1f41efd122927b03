"""What commands print."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from perf.record import Record, write_atomically
from perf.verdicts import EXIT_INTERRUPTED, Judgement


def say(text: str) -> None:
    """Print ``text``. A reader that stops reading, as ``head`` does, changes neither the work nor the exit code."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        _to_nowhere(sys.stdout)


def say_aside(line: str) -> None:
    """Print a line on stderr, where it disturbs no report; a reader that stops reading changes nothing, as above."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        _to_nowhere(sys.stderr)


def _to_nowhere(stream: TextIO) -> None:
    """Have the rest of ``stream``, and what the interpreter flushes at its end, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell(
    options: argparse.Namespace,
    judgement: Judgement,
    records: Sequence[Record],
    folder: Path,
    base: Sequence[Record] = (),
) -> int:
    """Print the judgement, and write it, as ``options`` have it, and return its exit code.

    ``base`` are the records of the other side, where there is one.
    """
    _write(options, judgement, records, folder, base)
    say(judgement.model_dump_json(indent=1) + "\n" if options.json else _report(judgement, records, options, folder))
    return judgement.exit_code


def _report(judgement: Judgement, records: Sequence[Record], options: argparse.Namespace, folder: Path) -> str:
    from perf.report.terminal import open_console, print_report

    console = open_console(options.width)
    # rich would end the process by itself when the reader of a pipe stops.
    with console.capture() as shown:
        print_report(console, judgement, records, folder)
    return shown.get()


def _write(
    options: argparse.Namespace, judgement: Judgement, head: Sequence[Record], folder: Path, base: Sequence[Record]
) -> None:
    if not (options.markdown or options.html):
        return
    from perf.report.comment import comment
    from perf.report.page import approved_in, render
    from perf.report.section import Section
    from perf.report.timeline import read_timelines

    section = Section(folder.resolve().name, judgement.cases, head, base)
    if options.markdown:
        write_atomically(options.markdown, comment([section]))
    if options.html:
        approved = approved_in([section], options.baselines)
        timelines = {(section.title, case): runs for case, runs in read_timelines(folder).items()}
        write_atomically(options.html, render([section], baselines=approved, timelines=timelines))


@contextlib.contextmanager
def resumable(session: str) -> Iterator[None]:
    """Say how a session that is interrupted goes on; nothing that finished is lost."""
    # A shell starts background jobs with SIGINT ignored, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as end:
        told = f"--resume {session}".rstrip()  # without a name where the folder says which
        by = f" by {end}" if str(end) else ""  # a signal that nobody typed: perf.launch says which
        say_aside(f"interrupted{by}; the same command with {told} goes on")
        raise SystemExit(EXIT_INTERRUPTED) from None
