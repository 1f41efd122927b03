"""What a candidate computes: every loss of one batch, unpatched and patched, from the same model outputs.

Run as ``python -m perf.rfdetr_candidates CASE PATCH`` in a fresh process, since a patch cannot be taken off again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from perf.candidates import DoesNotApply
from perf.case import Case, find_case
from perf.rfdetr_api import Stepper, build, fit
from perf.rfdetr_steering import steered
from perf.run import import_patch
from perf.workload import make_samples


def losses(case: Case, patch: Path) -> dict[str, tuple[float, float]]:
    """Return every loss without and with ``patch``, of one batch at random weights.

    Raises:
        DoesNotApply: the patch is not for the installed rfdetr.
    """
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as scratch, steered(case):
        built = build(case, Path(scratch))

        def body(stepper: Stepper) -> None:
            samples, targets = stepper.prepare()
            with built.trainer.precision_plugin.forward_context():
                outputs = built.module.model(samples, targets)
                before = _read(built.module.criterion(outputs, targets))
                import_patch(patch)
                patched = build(case, Path(scratch)).module.criterion.train().to(stepper.device)
                after = _read(patched(outputs, targets))
            found.update({name: (before[name], after[name]) for name in before})
            if set(before) != set(after):
                msg = f"other losses: {sorted(set(before) ^ set(after))}"
                raise ValueError(msg)

        fit(built, make_samples(case, built.resolution), body)
    return found


def _read(found: dict[str, Any]) -> dict[str, float]:
    return {name: float(value.detach()) for name, value in found.items()}


def main() -> int:
    """Print the losses as JSON, or why the patch does not apply."""
    case, patch = find_case(sys.argv[1]), Path(sys.argv[2])
    try:
        told: dict[str, Any] = {"losses": losses(case, patch)}
    except DoesNotApply as reason:
        told = {"does_not_apply": str(reason)}
    print(f"\n{json.dumps(told)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
