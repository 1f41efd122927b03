"""What one release of rfdetr makes of reading samples; test_releases.py runs this with that release first on the path.

Prints one JSON object as its last line; times are in ms.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from perf import rfdetr_configs
from perf.case import Case
from perf.dataset import read_data_set
from perf.photos import write_photos
from perf.probes.input_pipeline import LARGE, PHOTOS, InputProbe, Plan, loader_rate
from perf.record import Signal
from perf.rfdetr_input import input_module

CASE = Case(config="nano", lane="cpu", batch_size=2, measure="input")


def parts(signal: Signal) -> dict[str, float]:
    return {part.name: part.value for part in signal.parts}


def answers(scratch: Path) -> dict[str, Any]:
    photos, large = write_photos(scratch, PHOTOS), write_photos(scratch, LARGE)
    probe = InputProbe(CASE, read_data_set(photos["jpeg"]), photos, scratch, cpus=2)
    found = {signal.name: signal for signal in [*probe._formats("", photos), *probe._formats("_large", large)]}
    module = input_module(CASE, probe.data, scratch)
    return {
        "version": rfdetr_configs.version(),
        "jpeg": parts(found["getitem_jpeg"]),
        "bmp_large": parts(found["getitem_bmp_large"]),
        "png_large": parts(found["getitem_png_large"]),
        "rates": {workers: loader_rate(module, workers, Plan(seconds=0.5))[0].value for workers in (0, 2)},
        "augment": parts(probe._augmented("augment_cpu", probe._augment_cpu)[0]),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        found = answers(Path(folder))
    sys.stdout.write("\n" + json.dumps(found) + "\n")
