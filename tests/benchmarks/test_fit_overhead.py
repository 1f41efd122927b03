"""How much following the phases slows a real fit: updates with and without the hooks in turn, in one process.

Run: OMP_NUM_THREADS=1 pytest tests/benchmarks/test_fit_overhead.py -s [--case ID]   (its first line on stdout is the
result). On a CPU the process's own time decides: others' work on the same cores is not in it.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pytorch_lightning import Callback

from perf.case import Lane, find_case
from perf.dataset import read_data_set
from perf.probes.fit_phases import FitClock, Update
from perf.rfdetr_api import Built
from perf.rfdetr_fit import build_fit, run_fit, write_fit_data
from perf.rfdetr_steering import steered
from perf.session import gpu_count

# What the issue allows: an update with the hooks over one without.
MOST = 1.01
ROUNDS = {"cpu": 60, "gpu": 200}
WARM_UP = 10
# No worker on a CPU: on two cores it would be timed too.
CASES: dict[Lane, str] = {"cpu": "nano-cpu-b2-w0-fit", "gpu": "nano-b4-fit"}


class Alternate(Callback):  # type: ignore[misc]
    """Times each update from end to end, and has every other one followed."""

    def __init__(self, built: Built) -> None:
        self.updates: list[Update] = []
        self.clock = FitClock(built, self.updates.append)
        self.seconds: dict[bool, list[float]] = {True: [], False: []}
        self._clock = time.process_time if built.case.lane == "cpu" else time.perf_counter
        self._followed, self._since = False, 0.0

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        ended = self._clock()
        if index >= WARM_UP:
            self.seconds[self._followed].append(ended - self._since)
        # Two and two, so that an update that is followed has its end followed too.
        followed = index % 4 in (0, 1)
        if followed != self._followed:
            (self.clock.install if followed else self.clock.remove)()
        self._followed = followed
        self._since = self._clock()

    def on_train_end(self, *_: Any) -> None:
        self.clock.remove()


@pytest.mark.filterwarnings("default")
def test_fit_overhead(tmp_path: Path, request: pytest.FixtureRequest, capsys: Any) -> None:
    asked = request.config.option.case
    case = find_case(asked[0] if asked else CASES["gpu" if gpu_count() else "cpu"])
    updates = WARM_UP + 2 * ROUNDS[case.lane]
    with steered(case):
        data = read_data_set(write_fit_data(tmp_path / "data", case, updates + 1))
        built = build_fit(case, data, tmp_path / "out", updates, val_batches=0)
        found = Alternate(built)
        run_fit(built, data, [found])
    followed, bare = (median(found.seconds[which]) for which in (True, False))
    with capsys.disabled():
        print(f"\n{case.id}: followed {1e3 * followed:.2f} ms, bare {1e3 * bare:.2f} ms, ratio {followed / bare:.4f}")
    assert found.updates  # they were followed
    assert followed / bare <= MOST
