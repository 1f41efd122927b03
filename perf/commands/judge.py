"""``judge`` and ``report``: records against baselines."""

from __future__ import annotations

import argparse

from perf.commands.arguments import Command, add_output, add_records
from perf.commands.output import say, tell
from perf.expected import cases_not_run, expected_cases
from perf.investigation import MANIFEST
from perf.judge import Options, judge
from perf.record_files import Narrowing, take


def _declare(parser: argparse.ArgumentParser) -> None:
    add_records(parser)
    add_output(parser)


def _judge(options: argparse.Namespace) -> int:
    files = take(options.records, Narrowing(options.case or (), options.device, options.torch))
    records = list(files.values())
    expected = options.case or expected_cases(options.records, records, options.baselines, files)
    settings = Options(gate=options.gate, records_path=options.records)
    not_run = cases_not_run(options.records, records, options.case or ())
    judgement = judge(records, options.baselines, expected=expected, not_run=not_run, options=settings)
    return tell(options, judgement, records, options.records)


def _report(options: argparse.Namespace) -> int:
    if (options.records / MANIFEST).is_file():
        from perf.report.investigation import write_report

        say("".join(f"{path}: written\n" for path in write_report(options.records)))
        return 0
    _judge(options)
    return 0


JUDGE = Command("judge", "hold records against baselines; the exit code is the verdict", _declare, _judge)
REPORT = Command(
    "report",
    "the same report for reading: exits 0 whatever the verdict; of an investigation's folder, its report anew",
    _declare,
    _report,
)
