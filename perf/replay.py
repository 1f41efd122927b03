"""The replay: regressions that RF-DETR really had, as pairs of its releases, and what the suite must say of each.

Needs the standard library only: ``noxfile.py`` asks here which releases to install.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from perf.replay_claims import Claim, Replay
from perf.replay_table import TABLE

__all__ = ["SELECTIONS", "TABLE", "Claim", "Replay", "chosen", "needed", "releases"]

STORE, DOCUMENT = Path("docs/replay.jsonl"), Path("docs/replay.md")
Selection = Literal["all", "cpu", "gpu", "ci"]
SELECTIONS: tuple[Selection, ...] = ("all", "cpu", "gpu", "ci")


def chosen(select: str = "all", words: Sequence[str] = ()) -> list[Replay]:
    """Return the replays of a selection whose names hold one of ``words``, or all of them; a whole name is that one.

    Raises:
        ValueError: none is left; lists the names that there are.
    """
    names = {one.name for one in TABLE}
    found = [one for one in TABLE if _is_of(one, select) and (not words or _is_meant(one.name, words, names))]
    if not found:
        asked = " and ".join(["selection " + select, *[f"-k {word}" for word in words]])
        msg = f"no replay is of {asked}; there are {', '.join(one.name for one in TABLE if _is_of(one, select))}"
        raise ValueError(msg)
    return found


def _is_meant(name: str, words: Sequence[str], names: set[str]) -> bool:
    return any(word == name if word in names else word in name for word in words)


def _is_of(one: Replay, select: str) -> bool:
    return select == "all" or (one.ci if select == "ci" else one.lane == select)


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Declare what chooses replays."""
    parser.add_argument("--select", choices=SELECTIONS, default="all", help="ci: ten minutes of it; default: all")
    parser.add_argument("-k", action="append", default=[], metavar="WORD", dest="words", help="only names with it")


def add_instead(parser: argparse.ArgumentParser) -> None:
    """Declare what is done instead of measuring; then no release is needed."""
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list what would be replayed")
    instead.add_argument("--check", action="store_true", help=f"exit 1 unless {STORE} shows each caught")
    instead.add_argument("--regenerate", action="store_true", help=f"make {DOCUMENT} anew from {STORE}")
    instead.add_argument("--again", metavar="SESSION", help="judge this session's records again")


def needed(arguments: Sequence[str]) -> list[str]:
    """Return the releases that a command line needs installed, as :func:`releases` has them.

    Raises:
        ValueError: as :func:`chosen`.
    """
    parser = argparse.ArgumentParser(prog="nox -s replay --", allow_abbrev=False, add_help=False)
    add_choice(parser)
    add_instead(parser)
    known, _ = parser.parse_known_args(arguments)
    instead = known.list or known.check or known.regenerate or known.again
    return [] if instead else releases(chosen(known.select, known.words))


def releases(replays: Iterable[Replay]) -> list[str]:
    """Return the releases that must be installed to run ``replays``, each once, the oldest first."""
    found = {side for one in replays if not one.recorded for side in one.sides}
    return sorted(found, key=lambda text: tuple(map(int, text.split("."))))
