"""Candidates: changes to rfdetr that may make training faster, each a patch for ``--patch`` and ``--head-patch``.

They change an unmodified rfdetr when they are imported, before the model is built. One that does not apply to the
installed release raises :class:`DoesNotApply`, which says why.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class DoesNotApply(Exception):  # noqa: N818  (says what happened)
    """The installed rfdetr is not one that the candidate changes; the message says what it lacks."""


class Candidate(NamedTuple):
    """One candidate. ``case`` is measured for its speed, ``tolerance`` is the relative one of each loss; 0: bitwise.

    Where it is not 0, a loss may be nearer to float64 than eager's instead: :mod:`perf.candidate_losses`.

    ``on_gpu``: it changes nothing on a CPU.
    """

    name: str
    what: str
    case: str
    tolerance: float = 0.0
    on_gpu: bool = False

    @property
    def path(self) -> Path:
        """Its patch module."""
        return FOLDER / f"{self.name}.py"


# float32 summed in another order: its epsilon times the some thousand terms of a sum. What bf16 does to eager's losses
# is more; perf.candidate_losses judges that.
_REORDERED = 1e-4
CANDIDATES = (
    Candidate(
        "compiled_loss",
        "the dense losses of all layers in one compiled function, apart from the matcher and from compile=True",
        "nano-b4",
        tolerance=_REORDERED,
        on_gpu=True,
    ),
    Candidate(
        "device_assignment",
        "the matcher's indices reach the device in one transfer, and what indexes with them stays there",
        "nano-b4",
    ),
    Candidate("workers_8", "eight workers for the loader, where rfdetr has two", "nano-b4-fit"),
    Candidate("threads_2", "two CPU threads for the main process, as OMP_NUM_THREADS=2", "nano-b4", _REORDERED),
)


def find_candidate(name: str) -> Candidate:
    """Return the candidate of this name.

    Raises:
        ValueError: no such candidate; names them all.
    """
    found = next((one for one in CANDIDATES if one.name == name), None)
    if found is None:
        msg = f"unknown candidate {name!r}; known: {', '.join(one.name for one in CANDIDATES)}"
        raise ValueError(msg)
    return found


def required(owner: object, *names: str) -> None:
    """Raise DoesNotApply where ``owner``, of rfdetr, lacks one of ``names``."""
    from importlib.metadata import version

    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        where = getattr(owner, "__name__", str(owner))
        msg = f"does not apply to rfdetr {version('rfdetr')}: {where} has no {', '.join(missing)}"
        raise DoesNotApply(msg)
