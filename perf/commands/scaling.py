"""``scaling``: what more devices bring."""

from __future__ import annotations

import argparse
from pathlib import Path

from perf.commands.arguments import Command, add_place
from perf.commands.output import say
from perf.record_files import Narrowing, take


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with *.record.json")
    add_place(parser)


def _scaling(options: argparse.Namespace) -> int:
    from perf.report.scaling import render_scaling

    records = list(take(options.records, Narrowing((), options.device, options.torch)).values())
    shown = render_scaling(records)
    if not shown:
        msg = (
            f"{options.records}: no case that was timed with one process and with several: --suite distributed has them"
        )
        raise ValueError(msg)
    say(shown)
    return 0


SCALING = Command("scaling", "images per second of several devices against one", _declare, _scaling)
