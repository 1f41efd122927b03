"""What the replay is made of: one regression or repair of RF-DETR's releases, and what the suite must say of it.

Needs the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

# The torch minor whose counts the rows claim: with another default they have to be measured anew.
_MINOR = "2.14"


@dataclass(frozen=True)
class Claim:
    """What the suite must say of one signal: its verdict, and what attributes it.

    ``part``, ``where`` and ``told`` are regexes: of a part that moved in the verdict's direction (of a time: that
    carries most of the change), as ``name old -> new``; of one of its source lines; and of the message. ``by`` is the
    signal of the head's record whose parts attribute it, where that is another one.
    """

    signal: str
    verdict: str
    part: str = ""
    where: str = ""
    told: str = ""
    by: str = ""


@dataclass(frozen=True)
class Replay:
    """One regression or repair: the head is judged against the base, or alone where there is none.

    ``verdict`` is that of the case as a whole, ``what`` says what happened, ``source`` where it can be read. ``pairs``:
    so many runs a side, since it is judged by time; 0: by counts, from one. ``patch``: a file that both sides import.
    ``ci``: of the ten-minute selection. ``recorded``: not run, but read from the compile matrix's store, for torch
    ``minor``.
    """

    name: str
    base: str | None
    head: str
    case: str
    verdict: str
    claims: tuple[Claim, ...]
    what: str
    source: str
    pairs: int = 0
    patch: str = ""
    ci: bool = False
    recorded: bool = False
    minor: str = _MINOR

    @property
    def lane(self) -> str:
        """The lane of its case."""
        return "cpu" if "-cpu-" in self.case else "gpu"

    @property
    def sides(self) -> list[str]:
        """The releases that it measures."""
        return [side for side in (self.base, self.head) if side is not None]

    @property
    def runs(self) -> int:
        """How many runs each side needs."""
        return self.pairs or 1

    @property
    def pair(self) -> str:
        """Its releases in words."""
        return f"{self.base} to {self.head}" if self.base else f"{self.head} alone"

    @property
    def command(self) -> str:
        """What runs it."""
        return f"nox -s replay -- -k {self.name}"
