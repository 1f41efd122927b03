"""``trend``: what nights measured, and where a signal changed for good."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perf.commands.arguments import Command
from perf.commands.output import say, say_aside

if TYPE_CHECKING:
    from perf.report.trend import Trend
    from perf.trend import Change, Night


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="TREND", help="a folder of *.jsonl, made by --add")
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="RECORDS", help="add these first")
    parser.add_argument("--case", metavar="ID", help="only this case")
    parser.add_argument("--device", metavar="NAME", help="only this device")
    parser.add_argument("--torch", metavar="MINOR", help="only this torch minor")
    parser.add_argument("--signal", metavar="NAME", help="only this signal; default: those that changed")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the figures")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the figure of the one signal that is left")


def _trend(options: argparse.Namespace) -> int:
    from perf.record import write_atomically
    from perf.report.charts import alone
    from perf.report.trend import document, figure, lines

    _add(options)
    trends = list(_trends(options))
    if options.svg and len(trends) != 1:
        msg = (
            f"--svg is of one signal of one case, and {len(trends)} are left: give --case, --device, --torch, --signal"
        )
        raise ValueError(msg)
    for trend in trends:
        say("\n".join(lines(trend)) + "\n")
    if not trends:
        say("no signal changed\n")
    if options.html:
        write_atomically(options.html, document(trends))
    if options.svg:
        write_atomically(options.svg, alone(figure(trends[0])))
    return 0


def _add(options: argparse.Namespace) -> None:
    from perf.record import read_records
    from perf.trend import append, unnamed

    for records in options.add:
        found = read_records(records)
        changed = append(options.folder, found)
        for why in unnamed(found):
            say_aside(f"{records}: {why}")
        say_aside(f"{records}: {len(changed)} cases added to {options.folder}")


def _trends(options: argparse.Namespace) -> Iterator[Trend]:
    """Yield the trends that are asked for; without ``--signal`` those that have a change."""
    from perf.report.trend import Trend

    for nights in _files(options):
        asked = [options.signal] if options.signal else _gated(nights)
        for signal in asked:
            found, hint = _changes(nights, signal)
            asked_for = options.signal is not None and any(signal in night.values for night in nights)
            if asked_for or found:
                yield Trend(nights, signal, found, hint)


def changed_trends(folder: Path) -> list[Trend]:
    """Return the trends of all signals in ``folder`` that changed."""
    asked = argparse.Namespace(folder=folder, case=None, device=None, torch=None, signal=None)
    return list(_trends(asked)) if any(folder.rglob("*.jsonl")) else []


def _files(options: argparse.Namespace) -> Iterator[Sequence[Night]]:
    from perf.trend import read

    pattern = f"{options.device or '*'}/torch-{options.torch or '*'}/{options.case or '*'}.jsonl"
    paths = sorted(options.folder.glob(pattern))
    if not paths:
        msg = f"{options.folder}: no {pattern} there; add records of a night with --add RECORDS"
        raise ValueError(msg)
    for path in paths:
        nights = read(path)
        if nights:
            yield nights


def _gated(nights: Sequence[Night]) -> list[str]:
    return [name for name, value in nights[-1].values.items() if value.kind != "info"]


def _changes(nights: Sequence[Night], signal: str) -> tuple[list[Change], str]:
    from perf.trend import changes

    try:
        return changes(nights, signal), ""
    except ImportError as error:
        return [], str(error)


TREND = Command("trend", "show a signal over commits, and where it changed for good", _declare, _trend)
