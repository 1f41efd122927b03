"""``scoreboard``: inject faults into rfdetr, and say which of them the suite catches."""

from __future__ import annotations

import argparse
from pathlib import Path

from perf.commands.arguments import Command, positive
from perf.commands.output import say, say_aside
from perf.faults import EAGER, FAULTS, selected
from perf.scoreboard import DOCUMENT, SESSIONS, STORE
from perf.suites import LANES
from perf.verdicts import EXIT_NOTHING_JUDGED


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--select", action="append", default=[], metavar="TEXT", help="faults whose id holds it")
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--unfaulted", action="store_true", help="measure rfdetr as it is instead: false alarms")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help=f"unfaulted; default: {EAGER}")
    parser.add_argument("--sessions", type=positive, default=SESSIONS, metavar="N", help="default: %(default)s")
    parser.add_argument("--traceml-python", type=Path, metavar="FILE", help="ask TraceML too, by this interpreter")
    parser.add_argument("--records", type=Path, default=Path("records/scoreboard"), metavar="DIR", help="%(default)s")
    parser.add_argument("--run-timeout", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--store", type=Path, default=STORE, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=DOCUMENT, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="list the faults, measure nothing")
    parser.add_argument("--document", action="store_true", help="measure nothing; write the document anew")
    parser.add_argument(
        "--check", action="store_true", help="measure nothing; exit 1 unless all is there, caught and written"
    )


def _scoreboard(options: argparse.Namespace) -> int:
    from perf.report.scoreboard import check, regenerate
    from perf.session import lane_here

    lane = lane_here(options.lane)
    if options.list:
        say("".join(f"{fault.id}\n" for fault in FAULTS))
        return 0
    measures = not (options.check or options.document)
    if measures and not _measure(options, lane):
        return EXIT_NOTHING_JUDGED  # what the store holds of other faults is no answer
    if not options.check:
        say(regenerate(options.store, options.out))
    code, said = check(options.store, options.out, whole=options.check)
    say(said)
    return code


def _measure(options: argparse.Namespace, lane: str) -> bool:
    """Measure what is asked for, and return whether this machine's lane has any of it."""
    from perf.report.scoreboard import add
    from perf.scoreboard_run import Bench, measure_beside, measure_fault, measure_unfaulted

    bench = Bench(options.records, say_aside, options.run_timeout, options.traceml_python)
    if options.unfaulted:
        for case_id in options.case or [EAGER]:
            add(options.store, measure_unfaulted(bench, case_id, options.sessions))
        return True
    chosen = selected(options.select)
    measure_beside(bench, [fault for fault in chosen if fault.lane == lane])
    for fault in chosen:
        if fault.lane == lane:
            add(options.store, [measure_fault(bench, fault)])  # one by one: an interrupt loses none
        elif options.select:
            say_aside(f"{fault.id}: not run here, it needs the {fault.lane} lane: {fault.command}")
    return any(fault.lane == lane for fault in chosen)


SCOREBOARD = Command(
    "scoreboard",
    "inject faults into rfdetr and say which are caught; makes docs/scoreboard.md",
    _declare,
    _scoreboard,
)
