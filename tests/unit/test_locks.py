from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perf.locks import alone

HOLDS = """
import sys, time
from pathlib import Path
from perf.locks import alone

with alone(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_by_one_process_until_that_ends_however_it_does(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="somebody else does"), alone(path, "somebody else does"):
            pass
        holder.kill()
        with alone(path, "somebody else does", seconds=10):
            pass


def test_what_is_wrong_within_is_no_matter_of_the_lock(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), alone(tmp_path / "a.lock", "busy"):
            raise KeyError
