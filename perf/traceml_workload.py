"""What TraceML's launcher runs: the fit of a case, timed by TraceML and by the fit probe's clock at the same time.

Both see the same updates: TraceML is told to disregard those of the warm-up by its own kill switch, an environment
variable that it reads at every step.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from perf.case import Case, Lane, find_case
from perf.dataset import read_data_set
from perf.patch_file import import_patch
from perf.record import write_model
from perf.traceml import SameSteps, mean_parts

SWITCH = "TRACEML_DISABLED"
# Updates of warm-up and updates measured, as many as the fit probe's own phases have or more (perf.probes.fit).
UPDATES: dict[Lane, tuple[int, int]] = {"cpu": (4, 12), "gpu": (12, 60)}


class Window:
    """Which updates are measured: those after ``warmup``, ``wanted`` of them, and what each took."""

    def __init__(self, warmup: int, wanted: int) -> None:
        self.warmup, self.wanted = warmup, wanted
        self.seen = 0
        self.seconds: list[dict[str, float]] = []

    def add(self, seconds: dict[str, float]) -> bool:
        """Take the phases of an update that is over; return whether there is nothing more to measure."""
        self.seen += 1
        if self.warmup < self.seen <= self.warmup + self.wanted:
            self.seconds.append(seconds)
        self.switch(on=self.warmup <= self.seen < self.warmup + self.wanted)
        return self.seen >= self.warmup + self.wanted

    def switch(self, *, on: bool) -> None:
        """Have TraceML record what comes, or not."""
        if on:
            os.environ.pop(SWITCH, None)
        else:
            os.environ[SWITCH] = "1"


def fit_both(case: Case, data_folder: Path | None, scratch: Path) -> Window:
    """Fit ``case`` until enough updates are measured."""
    from perf.probes.fit_phases import FitClock, Update
    from perf.rfdetr_fit import build_fit, run_fit, write_fit_data

    warmup, wanted = UPDATES[case.lane]
    updates = warmup + wanted + 1
    data = read_data_set(data_folder or write_fit_data(scratch / "data", case, updates))
    built = build_fit(case, data, scratch / "out", updates, val_batches=0)
    window = Window(warmup, wanted)

    def on_update(update: Update) -> None:
        if window.add(update.seconds):
            built.trainer.should_stop = True

    clock = FitClock(built, on_update)
    try:
        run_fit(built, data, [_switched_off(window), clock.callback()])
    finally:
        clock.remove()
        os.environ.pop(SWITCH, None)
    return window


def _switched_off(window: Window) -> Any:
    """Return a callback that has TraceML wait for the warm-up once it has put its own hooks in place."""
    from pytorch_lightning import Callback

    found = Callback()
    found.on_train_start = lambda *_: window.switch(on=False)
    return found


def main() -> None:
    """Fit, and write what the fit probe's clock saw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--patch", type=Path)
    told = parser.parse_args()
    from perf.rfdetr_steering import steered

    case = find_case(told.case)
    with tempfile.TemporaryDirectory() as scratch, steered(case):
        if told.patch:
            import_patch(told.patch)
        window = fit_both(case, told.data, Path(scratch))
    if not window.seconds:
        msg = f"{case.id}: the training ended after {window.seen} updates, in the warm-up; give it more images"
        raise SystemExit(msg)
    parts = mean_parts(window.seconds)
    found = SameSteps(
        case_id=case.id,
        updates=len(window.seconds),
        warmup=window.warmup,
        step=sum(part.value for part in parts),
        parts=parts,
        traceml=version("traceml-ai"),
        command=told.command,
    )
    write_model(told.out, found)


if __name__ == "__main__":
    main()
