"""Real sweeps of the reduced Nano: memory that really runs out, and a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import ROOT

from perf.case import find_case
from perf.record import read_record
from perf.sweep_files import read_sweep

# The processes of cells inherit the limit: more than a batch of 1 takes, less than one of 512.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)
from perf.cli import main
sys.exit(main(sys.argv[1:]))
"""
SWEEP = ["sweep", "--lane", "cpu", "--lever", "eager", "--session", "s"]


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_memory_that_runs_out_is_told_with_its_size_and_ends_no_sweep(tmp_path: Path) -> None:
    sweep = start("-c", LIMITED, *SWEEP, "--batch-sizes", "1,512,1024", "--records", str(tmp_path))
    out, err = sweep.communicate(timeout=600)

    assert sweep.returncode == 0, err
    small, large = read_sweep(tmp_path / "s").found
    assert (small.case.batch_size, small.outcome, small.detail) == (1, "measured", "")
    assert 0 < small.low <= small.rate <= small.high
    assert (large.case.batch_size, large.outcome) == (512, "out of memory")
    assert large.asked
    assert f"out of memory, asked for {large.asked / 2**20:.0f} MiB" in out


@pytest.mark.slow
def test_a_killed_sweep_goes_on_with_the_cell_in_progress(tmp_path: Path) -> None:
    command = ["-m", "perf.cli", *SWEEP, "--batch-sizes", "1,2", "--records", str(tmp_path)]
    folders = [tmp_path / "s" / f"nano-cpu-b{batch}-fp32-throughput" for batch in (1, 2)]
    sweep = start(*command)
    while not (folders[1] / "run-0.record.json").exists():
        assert sweep.poll() is None, sweep.communicate()[1]
        time.sleep(0.1)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.communicate()
    first = read_record(folders[0] / "run-0.record.json")

    again = start(*command)
    _, err = again.communicate(timeout=600)

    assert again.returncode == 0, err
    assert "cell 2: nano-cpu-b2" in err
    assert "cell 1" not in err
    assert read_record(folders[0] / "run-0.record.json") == first
    assert [cell.outcome for cell in read_sweep(tmp_path / "s").found] == ["measured"] * 2
    assert find_case(folders[1].name).batch_size == 2
