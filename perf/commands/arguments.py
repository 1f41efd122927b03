"""What a command declares, and the arguments that several have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from perf.baselines import FOLDER
from perf.judge import GATED
from perf.suites import LANES


class Command(NamedTuple):
    """A command: ``declare`` adds its arguments to its parser, ``run`` returns its exit code."""

    name: str
    help: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    description: str | None = None


def add_records(parser: argparse.ArgumentParser) -> None:
    """Declare which records to read, and the baselines to hold them against."""
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with *.record.json, or one such file")
    add_baselines(parser)
    parser.add_argument(
        "--case", action="append", metavar="ID", help="only this case; may be repeated (default: every case)"
    )
    add_place(parser)


def add_baselines(parser: argparse.ArgumentParser) -> None:
    """Declare where the baselines lie."""
    parser.add_argument("--baselines", type=Path, default=FOLDER, metavar="DIR", help="default: %(default)s")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Declare what chooses among the devices and torch minors of a folder."""
    parser.add_argument("--device", metavar="NAME", help="only records of this device, such as nvidia-h200")
    parser.add_argument("--torch", metavar="MINOR", help="only records of this torch minor, such as 2.14")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare what decides, and how the judgement is printed."""
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument(
        "--gate",
        type=kinds,
        default=GATED,
        metavar="KIND,...",
        help=f"gate only these kinds and show the others (default: {','.join(sorted(GATED))})",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the comment on a pull request")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with figures, in one file")
    parser.add_argument("--width", type=columns, metavar="COLUMNS", help="default: the terminal's, or 120 in a log")


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Declare what to measure, where its records go, and how a session goes on."""
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="default: the main suite's")
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--resume", metavar="SESSION", help="go on with this session in the records folder")
    parser.add_argument("--run-timeout", type=float, default=3600.0, metavar="SECONDS")


def columns(text: str) -> int:
    """Return a number of columns."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a number of columns, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def duration(text: str) -> float:
    """Return a time in s: ``90s``, ``20m``, ``1.5h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text)
    if not found or float(found[1]) <= 0:
        msg = f"{text!r} is no time, such as 90s, 20m or 1.5h"
        raise argparse.ArgumentTypeError(msg)
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def kinds(text: str) -> frozenset[str]:
    """Return kinds of signals that can be gated."""
    found = frozenset(text.split(","))
    if not found <= GATED:
        msg = f"unknown kind {', '.join(sorted(found - GATED))!r}; known: {', '.join(sorted(GATED))}"
        raise argparse.ArgumentTypeError(msg)
    return found


def positive(text: str) -> int:
    """Return a whole number, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a whole number, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def margin(text: str) -> float:
    """Return a margin in mAP, between 0 and 1."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1:
        msg = f"{text!r} is no margin: mAP goes from 0 to 1"
        raise argparse.ArgumentTypeError(msg)
    return found


def percents(text: str) -> tuple[float, ...]:
    """Return slowdowns in percent."""
    try:
        found = tuple(float(part) for part in text.split(",") if part)
    except ValueError:
        found = (0.0,)
    if any(not 0 < percent < 1000 for percent in found):
        msg = f"{text!r} is no list of slowdowns in percent, such as 5,10"
        raise argparse.ArgumentTypeError(msg)
    return found
