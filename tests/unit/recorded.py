"""A recorded artifact: the quick tier of the cpu lane, with one more graph break in the head's forward.

``rfdetr-perf ab --suite quick --lane cpu --gate count-strict,count-volume,device,quality --pairs 1 --base 1.11.2
--head 1.11.2 --head-patch tests/e2e/patches/extra_graph_break.py``, then ``pytest tests/suite --suite collapse``, on
two cores, with rfdetr 1.11.2: another default release needs another recording. Packed as the composite action packs it,
with the folders of the machine taken out of the logs.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from perf.ci.artifacts import unpack
from perf.ci.machines import QUICK, Cell, cells_of, chosen, read_machines
from perf.matrix import DEFAULT_RFDETR

ARCHIVE = Path(__file__).parent / "artifacts" / "cpu-torch-2.14-quick.zip"
# Those that were approved when it was recorded: a later approval must not change what the tests see.
_STORED = ARCHIVE.with_name("baselines.zip")


@functools.cache
def baselines() -> Path:
    """Return the folder of the baselines that it is held against."""
    folder = Path(tempfile.mkdtemp(prefix="rfdetr-perf-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.unpack_archive(_STORED, folder)
    return folder


def a_cell(machine: str = "cpu") -> Cell:
    """The job that left it, or the same on another machine."""
    [cell] = cells_of(chosen(read_machines(), machine), QUICK, DEFAULT_RFDETR, DEFAULT_RFDETR)
    return cell


def unpacked(folder: Path) -> Path:
    """Unpack it, and return where."""
    unpack(ARCHIVE, folder / a_cell().id)
    return folder / a_cell().id
