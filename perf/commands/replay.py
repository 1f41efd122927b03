"""``replay``: the regressions that RF-DETR really had, measured again on its releases; the suite has to see each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perf.commands.arguments import Command
from perf.commands.output import resumable, say, say_aside
from perf.replay import DOCUMENT, STORE, Replay, add_choice, add_instead, chosen

if TYPE_CHECKING:
    from perf.replay_run import Session


def _declare(parser: argparse.ArgumentParser) -> None:
    add_choice(parser)
    add_instead(parser)
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        type=_interpreter,
        metavar="RELEASE=FILE",
        help="an interpreter with that rfdetr; nox -s replay makes one for each",
    )
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--resume", metavar="SESSION", help="go on with this session: only what is not there is run")
    parser.add_argument("--run-timeout", type=float, default=1800.0, metavar="SECONDS")
    parser.add_argument("--document", action="store_true", help=f"put the results into {STORE} and make {DOCUMENT}")


def _interpreter(text: str) -> tuple[str, Path]:
    release, _, path = text.partition("=")
    if not release or not path:
        msg = f"{text!r} is not RELEASE=FILE, such as 1.10.1=env/bin/python"
        raise argparse.ArgumentTypeError(msg)
    return release, Path(path).absolute()  # not resolved: an environment's interpreter is a link to the system's


def _run(options: argparse.Namespace) -> int:
    from perf.compile_matrix import STORE as MATRIX
    from perf.report.replay import check, listing, regenerate

    if options.check or options.regenerate:
        code, said = check(STORE, DOCUMENT, MATRIX) if options.check else regenerate(STORE, DOCUMENT)
        say(said)
        return code
    replays = chosen(options.select, options.words)
    if options.list:
        say(listing(replays))
        return 0
    return _replay(options, replays)


def _replay(options: argparse.Namespace, replays: Sequence[Replay]) -> int:
    from perf.replay_outcome import exit_code
    from perf.replay_run import check_pythons, outcomes, replay_all
    from perf.replay_store import kept
    from perf.report.replay import regenerate, text

    session = _session(options)
    if options.again:
        replays = _measured(session, replays)
        results = outcomes(session, replays)
    else:
        check_pythons(replays, session.pythons)
        with resumable(session.name):
            results = replay_all(session, replays)
    say(text(replays, results))
    say_aside(f"records: {session.folder}")
    if options.document:
        say(regenerate(STORE, DOCUMENT, kept(session, replays, results))[1])
    return exit_code(results)


def _session(options: argparse.Namespace) -> Session:
    from perf.replay_run import Session
    from perf.session import new_name

    name = options.again or options.resume or f"replay-{new_name()}"
    folder = (options.records / name).resolve()
    if (options.again or options.resume) and not folder.is_dir():
        msg = f"{folder}: no such session of replays"
        raise ValueError(msg)
    return Session(name, folder, dict(options.python), say_aside, options.run_timeout)


def _measured(session: Session, replays: Sequence[Replay]) -> list[Replay]:
    """Return those of ``replays`` that the session has measured, and say of the others what is missing."""
    from perf.replay_run import missing

    absent = {one.name: why for one in replays if (why := missing(session, one))}
    for name, why in absent.items():
        say_aside(f"{name}: {why}; --resume {session.name} measures it")
    return [one for one in replays if one.name not in absent]


REPLAY = Command(
    "replay",
    "measure the regressions that rfdetr's releases really had, and say which the suite sees",
    _declare,
    _run,
    "Measure the regressions that rfdetr's releases really had, and say which the suite sees. "
    "`nox -s replay` installs the releases, then runs this. See docs/replay.md.",
)
