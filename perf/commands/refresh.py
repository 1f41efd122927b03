"""``refresh``: records become the baseline of their cases."""

from __future__ import annotations

import argparse
import datetime
import getpass
from collections.abc import Mapping, Sequence
from pathlib import Path

from perf.baselines import Baseline, approved_elsewhere, baseline_path, find_baseline, write_baseline, writing
from perf.commands.arguments import Command, add_records
from perf.commands.output import say
from perf.pool import by_case
from perf.record import Record, write_atomically
from perf.record_files import Narrowing, reject, take
from perf.refresh import Refresh, Request, refresh, refusal

MEANWHILE = "another process refreshed it meanwhile, so that nothing is written: look at it, and refresh again"


def _declare(parser: argparse.ArgumentParser) -> None:
    add_records(parser)
    parser.add_argument("--reason", required=True, help="why the values may change; kept for ever")
    parser.add_argument("--approved-by", metavar="NAME", help="default: the user that runs this")
    parser.add_argument("--dry-run", action="store_true", help="show the changes and write nothing")
    parser.add_argument("--allow-dirty", action="store_true", help="accept a source with uncommitted changes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables of changes as Markdown")
    parser.add_argument("--allow-fewer-runs", action="store_true", help="accept fewer runs than the baseline has")


def _refresh(options: argparse.Namespace) -> int:
    request, folder = _request(options), options.baselines
    cases = by_case(_acceptable(options, request))
    # Every case is decided, and shown, before the first file is written: a bad one leaves all of them as they were.
    found = _approved(folder, cases)
    decided = [refresh(group, found[case_id], request) for case_id, group in cases.items()]
    for done in decided:
        _show(done, first=found[done.baseline.case_id] is None)
    if options.markdown:
        write_atomically(options.markdown, "\n".join(_markdown(done, found) for done in decided))
    changed = [done.baseline for done in decided if done.changes]
    if options.dry_run:
        say("".join(f"not written (--dry-run): {_place(folder, new)}\n" for new in changed))
        return 0
    with writing(folder):
        now = _approved(folder, cases)
        meanwhile = [new for new in changed if now[new.case_id] != found[new.case_id]]
        reject([f"{_place(folder, new)}: {MEANWHILE}" for new in meanwhile])
        for new in changed:
            say(f"written: {write_baseline(folder, new)}\n")
    return 0


def _request(options: argparse.Namespace) -> Request:
    return Request(
        by=options.approved_by or _user(),
        reason=options.reason,
        date=datetime.datetime.now(datetime.UTC).date(),
        allow_dirty=options.allow_dirty,
        allow_fewer_runs=options.allow_fewer_runs,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        msg = "this system does not say who you are; pass --approved-by NAME"
        raise ValueError(msg) from error


def _acceptable(options: argparse.Namespace, request: Request) -> list[Record]:
    """Return the records, each of which may become part of a baseline."""
    files = take(options.records, Narrowing(options.case or (), options.device, options.torch))
    reject([f"{path}: {why}" for path, record in files.items() if (why := refusal(record, request))])
    if options.device is None:
        reject(_new_devices(options.baselines, files))
    return list(files.values())


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


def _approved(folder: Path, cases: Mapping[str, Sequence[Record]]) -> dict[str, Baseline | None]:
    return {case_id: find_baseline(folder, group[0]) for case_id, group in cases.items()}


def _place(folder: Path, baseline: Baseline) -> Path:
    return baseline_path(folder, baseline.device, baseline.torch_minor, baseline.case_id)


def _show(done: Refresh, *, first: bool) -> None:
    from perf.report.terminal import open_console, print_changes

    console = open_console()
    with console.capture() as shown:
        print_changes(console, done.baseline.case_id, done.changes, _first_on(done, first=first))
    say(shown.get())


def _markdown(done: Refresh, found: Mapping[str, Baseline | None]) -> str:
    from perf.report.changes import markdown_changes

    first = found[done.baseline.case_id] is None
    return markdown_changes(done.baseline.case_id, done.changes, _first_on(done, first=first))


def _first_on(done: Refresh, *, first: bool) -> str:
    return f"{done.baseline.device}, torch {done.baseline.torch_minor}" if first else ""


REFRESH = Command("refresh", "approve records as the baseline of their cases", _declare, _refresh)
