"""docs/clusters.md's line for torchrun, as a user of Slurm starts it, beside another session on the same machine."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from running import ROOT, python

from perf.case import Case
from perf.launch import run_in_fresh_process
from perf.record import Record, read_record
from perf.run_order import Order

EAGER = Case(config="nano", lane="cpu", batch_size=2, devices=2)


def documented() -> list[str]:
    """Return the line for torchrun that docs/clusters.md has, as this environment starts it."""
    lines = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.strip().startswith("torchrun --standalone")]
    return [sys.executable, "-m", "torch.distributed.run", *shlex.split(line)[1:]]


def test_torchrun_measures_a_run_beside_another_session(tmp_path: Path) -> None:
    command = [*documented(), "--untimed", "--records", str(tmp_path)]
    variables = {"SLURM_JOB_ID": "4711", "SLURM_JOB_PARTITION": "cpu"}
    path = f"{scripts(tmp_path)}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | variables | {"PATH": path}, stdout=subprocess.DEVNULL
    ) as theirs:
        order = Order(case=EAGER, session="ours", run=0, folder=tmp_path / "ours", untimed=True)
        ours = run_in_fresh_process(order, lambda _: None, timeout=300)
        assert theirs.wait(300) == 0
    found = read_record(tmp_path / "mine" / EAGER.id / "run-0.record.json")

    assert found.status == ours.status == "finished"
    assert counts(found) == counts(ours)
    told = found.environment.cluster
    assert told
    assert (told.launcher, told.scheduler, told.job, told.ranks) == ("torchrun", "slurm", "4711", 2)
    judged = python("-m", "perf.cli", "judge", str(tmp_path / "mine"))
    assert judged.returncode == 0, judged.stdout


def scripts(folder: Path) -> Path:
    """Return a folder with the console script, which the environment of a developer need not have."""
    script = folder / "bin" / "rfdetr-perf"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom perf.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return script.parent


def counts(record: Record) -> dict[str, float]:
    return {signal.name: signal.value for signal in record.signals if signal.kind.startswith("count")}
