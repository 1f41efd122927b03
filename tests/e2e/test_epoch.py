"""Whole epochs of the reduced Nano on a small tree of COCO 2017's layout, killed and gone on with."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from layouts import write_coco
from running import ROOT, python

from perf.case import Case
from perf.epochs import read_epochs
from perf.record import read_record


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_from_its_last_epoch(tmp_path: Path) -> None:
    root = write_coco(tmp_path, Case(config="nano", lane="cpu", batch_size=2, measure="convergence"))
    told = ["--coco-root", str(root), "--lane", "cpu", "--batch-size", "2", "--workers", "0", "--epochs", "2"]
    command = ["-m", "perf.cli", "epoch", *told, "--records", str(tmp_path / "records")]
    stem = tmp_path / "records" / "e" / "nano-cpu-b2-w0-epochs-s2-on-coco" / "run-0"
    first = subprocess.Popen([sys.executable, *command, "--session", "e"], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (stem.with_suffix(".out") / "last.ckpt").exists():
        assert first.poll() is None
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    [before] = read_epochs(stem.with_suffix(".epochs.json"))[:1]

    done = python(*command, "--resume", "e")

    assert done.returncode == 0, done.stderr
    epochs = read_epochs(stem.with_suffix(".epochs.json"))
    assert [one.epoch for one in epochs] == [0, 1]
    assert epochs[0].train == before.train
    assert "epoch 0:" not in done.stderr
    record = read_record(stem.with_suffix(".record.json"))
    assert {"epoch_time", "train_rate", "validation_rate", "first_epoch"} <= {one.name for one in record.signals}
    assert (stem.with_suffix(".out") / "loss.svg").is_file()
    # rfdetr keeps what it wrote of epoch 0 before the kill: at least its validation.
    logged = csv.DictReader((stem.with_suffix(".out") / "metrics.csv").read_text().splitlines())
    assert {row["epoch"] for row in logged} == {"0", "1"}
