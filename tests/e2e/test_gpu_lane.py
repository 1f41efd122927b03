"""The gpu lane on a real GPU: what is added on purpose is seen, to the unit and at its line.

The baseline is made here, from two runs of the unmodified rfdetr, so that any GPU will do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running import Outcome, line_in, python, run_suite

pytestmark = pytest.mark.gpu
CASE = "nano-b4"
# Two runs settle counts and device signals; wall time is another test's business.
GATE = "count-strict,count-volume,device"
Patched = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Patched:
    """A function that measures a patched rfdetr against a baseline of the unmodified one."""
    records, baselines = tmp_path_factory.mktemp("unmodified"), tmp_path_factory.mktemp("baselines")
    arguments = ("--case", CASE, "--baselines", str(baselines), "--gate", GATE)
    first = run_suite(records, *arguments, runs=2)
    assert first.exit_code == 3, first.output  # nothing to compare with yet
    approved = python(
        "-m", "perf.cli", "refresh", str(records), "--baselines", str(baselines), "--reason", "test", "--allow-dirty"
    )
    assert approved.returncode == 0, approved.stderr
    return lambda patch: run_suite(tmp_path_factory.mktemp("patched"), *arguments, patch=patch, runs=1)


def test_extra_host_sync_is_a_regression_at_its_line(patched: Patched) -> None:
    outcome = patched("extra_host_sync.py")
    syncs = outcome.signal(CASE, "host_syncs")
    assert outcome.exit_code == 1, outcome.output
    assert (syncs.verdict, syncs.change) == ("regressed", 1)
    assert syncs.where == [line_in("extra_host_sync.py", ".item()")]
    assert outcome.signal(CASE, "gpu_copies").change == 1
    assert outcome.signal(CASE, "kernels").change == 0
    assert outcome.signal(CASE, "gpu_busy").verdict == "pass"


def test_extra_kernel_is_listed(patched: Patched) -> None:
    outcome = patched("extra_aten_op.py")
    kernels = outcome.signal(CASE, "kernels")
    assert outcome.exit_code == 0, outcome.output
    assert (kernels.verdict, kernels.listed, kernels.change) == ("pass", True, 1)
    assert outcome.signal(CASE, "aten_ops").change == 1
    assert outcome.signal(CASE, "host_syncs").change == 0
