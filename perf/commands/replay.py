"""``replay``: the regressions that RF-DETR really had, measured again on its releases; the suite has to see each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perf.commands.arguments import Command
from perf.commands.output import resumable, say, say_aside
from perf.replay import Replay, add_choice, chosen

STORE, DOCUMENT = Path("docs/replay.jsonl"), Path("docs/replay.md")


def _declare(parser: argparse.ArgumentParser) -> None:
    add_choice(parser)
    parser.add_argument("--list", action="store_true", help="list what would be replayed, and run nothing")
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
    parser.add_argument("--again", metavar="SESSION", help="judge this session's records again, and run nothing")
    parser.add_argument("--run-timeout", type=float, default=1800.0, metavar="SECONDS")
    parser.add_argument("--document", action="store_true", help=f"put the results into {STORE} and make {DOCUMENT}")
    parser.add_argument("--check", action="store_true", help=f"only say whether {DOCUMENT} is what its store gives")


def _interpreter(text: str) -> tuple[str, Path]:
    release, _, path = text.partition("=")
    if not release or not path:
        msg = f"{text!r} is not RELEASE=FILE, such as 1.10.1=env/bin/python"
        raise argparse.ArgumentTypeError(msg)
    return release, Path(path).absolute()  # not resolved: an environment's interpreter is a link to the system's


def _run(options: argparse.Namespace) -> int:
    from perf.report.replay import listing, regenerate

    if options.check:
        code, said = regenerate(STORE, DOCUMENT, check=True)
        say(said)
        return code
    replays = chosen(options.select, options.words)
    if options.list:
        say(listing(replays))
        return 0
    return _replay(options, replays)


def _replay(options: argparse.Namespace, replays: Sequence[Replay]) -> int:
    from perf.replay_outcome import exit_code
    from perf.replay_run import Session, check_pythons, outcomes, replay_all
    from perf.report.replay import kept, regenerate, text
    from perf.session import new_name

    name = options.again or options.resume or f"replay-{new_name()}"
    folder = (options.records / name).resolve()
    if (options.again or options.resume) and not folder.is_dir():
        msg = f"{folder}: no such session of replays"
        raise ValueError(msg)
    session = Session(name, folder, dict(options.python), say_aside, options.run_timeout)
    if options.again:
        results = outcomes(session, replays)
    else:
        check_pythons(replays, session.pythons)
        with resumable(name):
            results = replay_all(session, replays)
    say(text(replays, results))
    say_aside(f"records: {folder}")
    if options.document:
        say(regenerate(STORE, DOCUMENT, kept(session, replays, results))[1])
    return exit_code(results)


REPLAY = Command(
    "replay",
    "measure the regressions that rfdetr's releases really had, and say which the suite sees",
    _declare,
    _run,
    "Measure the regressions that rfdetr's releases really had, and say which the suite sees. "
    "`nox -s replay` installs the releases, then runs this. See docs/replay.md.",
)
