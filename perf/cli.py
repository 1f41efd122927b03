"""``rfdetr-perf``: judge records and report them, hold a head against a base, calibrate, refresh baselines.

Exit codes: 0 pass; 1 regressed, failed or not-compiled; 2 bad input; 3 inconclusive, no-baseline or incompatible;
4 improved.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import getpass
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perf.baselines import FOLDER, approved_elsewhere, baseline_path, find_baseline, write_baseline
from perf.compile_matrix import DOCUMENT, STORE
from perf.expected import expected_cases
from perf.judge import GATED, Options, judge
from perf.pool import by_case
from perf.quality_gates import MARGIN
from perf.record import Record
from perf.record_files import Narrowing, reject, take
from perf.refresh import Refresh, Request, refresh, refusal
from perf.suites import LANES, SUITES, suite
from perf.verdicts import EXIT_BAD_INPUT, Judgement

# As a shell has it for a process that SIGINT ended.
EXIT_INTERRUPTED = 130


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

    judging = commands.add_parser("judge", help="hold records against baselines; the exit code is the verdict")
    _add_reading(judging)
    judging.set_defaults(command=_judge)

    reporting = commands.add_parser("report", help="the same report for reading: exits 0 whatever the verdict")
    _add_reading(reporting)
    reporting.set_defaults(command=_report)

    comparing = commands.add_parser("compare", help="hold one set of records against another: a head against a base")
    comparing.add_argument("base", type=Path, metavar="BASE", help="a folder of records, or a whole A/B session")
    comparing.add_argument("head", type=Path, nargs="?", metavar="HEAD", help="needed unless BASE is an A/B session")
    _add_place(comparing)
    _add_judging(comparing)
    comparing.set_defaults(command=_compare)

    ab = "measure base and head on this machine, interleaved, and judge the head"
    more = " `nox -s ab-2.14 -- --base ... --head ...` installs both sides, then runs this. See docs/comparing.md."
    _add_ab(commands.add_parser("ab", help=ab, description=f"{ab.capitalize()}.{more}"))

    _add_calibrate(commands.add_parser("calibrate", help="measure what an A/B session can see on this machine"))

    refreshing = commands.add_parser("refresh", help="approve records as the baseline of their cases")
    _add_records(refreshing)
    refreshing.add_argument("--reason", required=True, help="why the values may change; kept for ever")
    refreshing.add_argument("--approved-by", metavar="NAME", help="default: the user that runs this")
    refreshing.add_argument("--dry-run", action="store_true", help="show the changes and write nothing")
    refreshing.add_argument("--allow-dirty", action="store_true", help="accept a source with uncommitted changes")
    refreshing.add_argument("--allow-fewer-runs", action="store_true", help="accept fewer runs than the baseline has")
    refreshing.set_defaults(command=_refresh)

    learning = commands.add_parser("seeds", help="say how the seeds of trainings scatter and what they can defend")
    learning.add_argument("records", type=Path, metavar="RECORDS", help="a folder with *.record.json")
    learning.add_argument("--pairs", type=_positive, default=6, metavar="N", help="to simulate; default: %(default)s")
    learning.set_defaults(command=_seeds)

    charting = commands.add_parser("matrix", help="make docs/compile-matrix.md from its store, new records first")
    charting.add_argument("records", type=Path, nargs="*", metavar="RECORDS", help="folders with *.record.json")
    charting.add_argument("--store", type=Path, default=STORE, metavar="FILE", help="default: %(default)s")
    charting.add_argument("--out", type=Path, default=DOCUMENT, metavar="FILE", help="default: %(default)s")
    charting.add_argument("--steps-per-epoch", type=_positive, metavar="N", help="default: COCO 2017 train's")
    charting.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    charting.set_defaults(command=_matrix)

    listing = commands.add_parser("cases", help="list the known cases")
    listing.set_defaults(command=_cases)
    return parser


def _add_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with *.record.json, or one such file")
    parser.add_argument("--baselines", type=Path, default=FOLDER, metavar="DIR", help="default: %(default)s")
    parser.add_argument(
        "--case", action="append", metavar="ID", help="only this case; may be repeated (default: every case)"
    )
    _add_place(parser)


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="NAME", help="only records of this device, such as nvidia-h200")
    parser.add_argument("--torch", metavar="MINOR", help="only records of this torch minor, such as 2.14")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    _add_records(parser)
    _add_output(parser)


def _add_judging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baselines", type=Path, default=FOLDER, metavar="DIR", help="default: %(default)s")
    _add_output(parser)


def _add_ab(parser: argparse.ArgumentParser) -> None:
    for side in ("base", "head"):
        parser.add_argument(f"--{side}", default=side, metavar="TEXT", help=f"what the {side} is, for the report")
        parser.add_argument(f"--{side}-python", type=Path, metavar="FILE", help="its interpreter; default: this one")
        parser.add_argument(f"--{side}-patch", type=Path, metavar="FILE", help="Python file to import before rfdetr")
    parser.add_argument("--same", action="store_true", help="allow both sides to be the same, to see what noise does")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="default: the main suite's")
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--base-case", metavar="ID", help="let the base train this case: eager against compiled, say")
    parser.add_argument("--data", type=Path, metavar="DIR", help="train on this data set: COCO 2017, Roboflow or YOLO")
    parser.add_argument("--margin", type=_margin, default=MARGIN, help="mAP that a head may lose; default: %(default)s")
    parser.add_argument("--at-once", type=_positive, metavar="N", help="trainings at a time; 3, or on cpu one a core")
    parser.add_argument("--pairs", type=_positive, metavar="N", help="most pairs of runs a case; default: 10, seeds 6")
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--resume", metavar="SESSION", help="go on with this session in the records folder")
    parser.add_argument("--run-timeout", type=float, default=3600.0, metavar="SECONDS")
    _add_judging(parser)
    parser.set_defaults(command=_ab)


def _add_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="default: the main suite's")
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--pairs", type=_positive, default=10, metavar="N", help="unchanged pairs of runs; default: 10")
    parser.add_argument("--slowdowns", type=_percents, default=(5.0,), metavar="PERCENT,...", help="default: 5")
    parser.add_argument("--slowed-pairs", type=_positive, metavar="N", help="pairs a slowdown; default: as --pairs")
    parser.add_argument("--sessions", type=_positive, default=10_000, metavar="N", help="simulated; default: 10000")
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--resume", metavar="SESSION", help="go on with this session in the records folder")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/calibration"), metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--baselines", type=Path, default=FOLDER, metavar="DIR", help="default: %(default)s")
    parser.add_argument("--run-timeout", type=float, default=3600.0, metavar="SECONDS")
    parser.set_defaults(command=_calibrate)


def _margin(text: str) -> float:
    try:
        margin = float(text)
    except ValueError:
        margin = 0.0
    if not 0 < margin < 1:
        msg = f"{text!r} is no margin: mAP goes from 0 to 1"
        raise argparse.ArgumentTypeError(msg)
    return margin


def _percents(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part)
    except ValueError:
        found = (0.0,)
    if any(not 0 < percent < 1000 for percent in found):
        msg = f"{text!r} is no list of slowdowns in percent, such as 5,10"
        raise argparse.ArgumentTypeError(msg)
    return found


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument(
        "--gate",
        type=_kinds,
        default=GATED,
        metavar="KIND,...",
        help=f"gate only these kinds and show the others (default: {','.join(sorted(GATED))})",
    )
    parser.add_argument("--width", type=_columns, metavar="COLUMNS", help="default: the terminal's, or 120 in a log")


def _columns(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a number of columns, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(text.split(","))
    if not kinds <= GATED:
        msg = f"unknown kind {', '.join(sorted(kinds - GATED))!r}; known: {', '.join(sorted(GATED))}"
        raise argparse.ArgumentTypeError(msg)
    return kinds


def _judge(options: argparse.Namespace) -> int:
    judgement, records = _judged(options)
    return _tell(options, judgement, records, options.records)


def _report(options: argparse.Namespace) -> int:
    judgement, records = _judged(options)
    _tell(options, judgement, records, options.records)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from perf.ab import judge_again, recorded
    from perf.compare import compare, session_of, sides

    base, head = sides(options.base, options.head)
    session = session_of(base, head)
    which = Narrowing(device=options.device, torch_minor=options.torch)
    before, after = (list(take(side, which).values()) for side in (base, head))
    if session:
        judgement = judge_again(recorded(session, options.baselines))
        _say_sides(before, after)
    else:
        judgement = compare(before, after, Options(gate=options.gate, records_path=head))
    return _tell(options, judgement, after, head)


def _say_sides(base: Sequence[Record], head: Sequence[Record]) -> None:
    """Say on stderr which rfdetr each side really was."""
    for name, records in (("base", base), ("head", head)):
        found = {f"rfdetr {r.environment.rfdetr} ({r.environment.rfdetr_source})": None for r in records}
        print(f"{name}: {', '.join(found) or 'no record'}", file=sys.stderr)


def _ab(options: argparse.Namespace) -> int:
    from perf.ab import experiment_of, measure

    experiment = experiment_of(options, lambda line: print(line, file=sys.stderr, flush=True))
    with _resumable(experiment.folder.name):
        judgement = measure(experiment)
    before, after = ([r for case in experiment.cases for r in experiment.records(s, case)] for s in ("base", "head"))
    _say_sides(before, after)
    code = _tell(options, judgement, after, experiment.folder)
    print(f"records: {experiment.folder}", file=sys.stderr)
    return code


def _calibrate(options: argparse.Namespace) -> int:
    from perf.calibrate import Plan, calibrate
    from perf.record import write_atomically
    from perf.report.calibration import document
    from perf.session import chosen_cases, lane_here, new_name

    session = f"calibrate-{new_name()}" if options.resume is None else options.resume
    if options.resume is not None and not (options.resume and (options.records / session).is_dir()):
        msg = f"--resume {session}: no such session in {options.records}"
        raise ValueError(msg)
    plan = Plan(
        cases=chosen_cases(options.case, lane_here(options.lane)),
        pairs=options.pairs,
        slowdowns=options.slowdowns,
        folder=options.records / session,
        baselines=options.baselines,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
        python=Path(sys.executable),
        timeout=options.run_timeout,
        slowed_pairs=options.slowed_pairs,
    )
    with _resumable(session):
        found = calibrate(plan)
    out = options.out / f"{found.environment.device}.md"
    write_atomically(out, document(found, options.sessions, _calibrate_command(options)))
    _say(f"{out}: written; records: {plan.folder}\n")
    return 0


@contextlib.contextmanager
def _resumable(session: str) -> Iterator[None]:
    """Say how a session that is interrupted goes on; nothing that finished is lost."""
    # A shell starts background jobs with SIGINT ignored, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted; the same command with --resume {session} goes on", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED) from None


def _calibrate_command(options: argparse.Namespace) -> str:
    cases = "".join(f" --case {case_id}" for case_id in options.case)
    percents = ",".join(f"{percent:g}" for percent in options.slowdowns)
    slowed = f" --slowed-pairs {options.slowed_pairs}" if options.slowed_pairs else ""
    told = f"--pairs {options.pairs} --slowdowns {percents}{slowed} --sessions {options.sessions}"
    return f"rfdetr-perf calibrate{cases} {told}"


def _tell(options: argparse.Namespace, judgement: Judgement, records: Sequence[Record], folder: Path) -> int:
    if options.json:
        _say(judgement.model_dump_json(indent=1) + "\n")
    else:
        _print(judgement, records, options.width, folder)
    return judgement.exit_code


def _refresh(options: argparse.Namespace) -> int:
    request = Request(
        by=options.approved_by or _user(),
        reason=options.reason,
        date=datetime.datetime.now(datetime.UTC).date(),
        allow_dirty=options.allow_dirty,
        allow_fewer_runs=options.allow_fewer_runs,
    )
    files = _files(options)
    reject([f"{path}: {why}" for path, record in files.items() if (why := refusal(record, request))])
    if options.device is None:
        reject(_new_devices(options.baselines, files))
    # Every case is decided, and shown, before the first file is written: a bad one leaves all of them as they were.
    cases = by_case(list(files.values()))
    found = {case_id: find_baseline(options.baselines, group[0]) for case_id, group in cases.items()}
    decided = [refresh(group, found[case_id], request) for case_id, group in cases.items()]
    for done in decided:
        _show(done, first=found[done.baseline.case_id] is None)
    for done in decided:
        if done.changes:
            _say(_write(options.baselines, done, options.dry_run) + "\n")
    return 0


def _new_devices(baselines: Path, files: Mapping[Path, Record]) -> list[str]:
    """Return a line for each file of a device that this case has no baseline on while others have, and what to do.

    More often that is the wrong folder than a new device.
    """
    lines, devices = [], set()
    for path, record in files.items():
        elsewhere = approved_elsewhere(baselines, record)
        if elsewhere:
            device = record.environment.device
            devices.add(device)
            lines.append(f"{path}: device {device}, and {record.case_id} is approved on others, as in {elsewhere[0]}")
    if not lines:
        return []
    told = " or ".join(f"--device {device}" for device in sorted(devices))
    return [*lines, f"are these the records you meant? for first baselines on their device pass {told}"]


def _show(done: Refresh, *, first: bool) -> None:
    from perf.report.terminal import open_console, print_changes

    new = done.baseline
    console = open_console()
    with console.capture() as shown:
        print_changes(console, new.case_id, done.changes, f"{new.device}, torch {new.torch_minor}" if first else "")
    _say(shown.get())


def _write(folder: Path, done: Refresh, dry_run: bool) -> str:
    new = done.baseline
    if dry_run:
        return f"not written (--dry-run): {baseline_path(folder, new.device, new.torch_minor, new.case_id)}"
    return f"written: {write_baseline(folder, new)}"


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a whole number, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _seeds(options: argparse.Namespace) -> int:
    from perf.record import read_records
    from perf.seeds import lessons, text

    _say(text(lessons(read_records(options.records)), options.pairs) + "\n")
    return 0


def _matrix(options: argparse.Namespace) -> int:
    from perf.report.compile_matrix import regenerate

    code, said = regenerate(options.records, options.store, options.out, options.steps_per_epoch, options.check)
    _say(said)
    return code


def _cases(_options: argparse.Namespace) -> int:
    for name in SUITES:
        for lane in LANES:
            lines = [f"  {case.id}\n" for case in suite(name, lane)]
            _say(f"suite {name}, {lane} lane\n" + "".join(lines))
    return 0


def _judged(options: argparse.Namespace) -> tuple[Judgement, list[Record]]:
    files = _files(options)
    records = list(files.values())
    expected = options.case or expected_cases(options.records, records, options.baselines, files)
    settings = Options(gate=options.gate, records_path=options.records)
    return judge(records, options.baselines, expected=expected, options=settings), records


def _files(options: argparse.Namespace) -> dict[Path, Record]:
    return take(options.records, Narrowing(options.case or (), options.device, options.torch))


def _print(judgement: Judgement, records: Sequence[Record], width: int | None, folder: Path) -> None:
    from perf.report.terminal import open_console, print_report

    console = open_console(width)
    # rich would end the process by itself when the reader of a pipe stops.
    with console.capture() as shown:
        print_report(console, judgement, records, folder)
    _say(shown.get())


def _say(text: str) -> None:
    """Print ``text``. A reader that stops reading, as ``head`` does, changes neither the work nor the exit code."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # The rest, and what the interpreter flushes at its end, goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        msg = "this system does not say who you are; pass --approved-by NAME"
        raise ValueError(msg) from error


if __name__ == "__main__":
    sys.exit(main())
