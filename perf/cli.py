"""``rfdetr-perf``: judge records and report them, hold a head against a base, calibrate, refresh baselines.

Exit codes: 0 pass; 1 regressed, failed or not-compiled; 2 bad input; 3 inconclusive, no-baseline or incompatible;
4 improved.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from perf.commands.ab import AB, COMPARE
from perf.commands.calibrate import CALIBRATE
from perf.commands.candidates import CANDIDATES_COMMAND
from perf.commands.ci import CI
from perf.commands.epoch import EPOCH
from perf.commands.investigate import INVESTIGATE, TRACEML
from perf.commands.judge import JUDGE, REPORT
from perf.commands.listing import CASES, MATRIX, SEEDS
from perf.commands.recommend import RECOMMEND, TRAIN_ARGS
from perf.commands.refresh import REFRESH
from perf.commands.replay import REPLAY
from perf.commands.run import RUN
from perf.commands.scaling import SCALING
from perf.commands.scoreboard import SCOREBOARD
from perf.commands.sweep import SWEEP
from perf.commands.trend import TREND
from perf.verdicts import EXIT_BAD_INPUT

COMMANDS = (
    *(JUDGE, REPORT, COMPARE, AB, CALIBRATE, INVESTIGATE, TRACEML, REFRESH, SCALING, TREND, SEEDS, CI),
    *(RUN, MATRIX, CASES, REPLAY, SCOREBOARD, SWEEP, RECOMMEND, TRAIN_ARGS, EPOCH, CANDIDATES_COMMAND),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; bad input is one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except (ValueError, OSError) as error:
        print(f"rfdetr-perf: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rfdetr-perf", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        one = commands.add_parser(command.name, help=command.help, description=command.description)
        command.declare(one)
        one.set_defaults(command=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
