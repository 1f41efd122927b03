"""What one release of rfdetr makes of the cases; test_releases.py runs this with that release first on the path.

Prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from perf import rfdetr_configs
from perf.case import Case, MultiScale
from perf.configs import KNOWN
from perf.probes import compilation
from perf.probes.phases import OTHER, phase_hooks
from perf.rfdetr_api import Stepper, build, build_module, fit
from perf.rfdetr_steering import steered
from perf.workload import make_samples


def no_network() -> None:
    """Refuse every connection and name look-up from here on."""

    def refuse(*arguments: Any, **_: Any) -> None:
        msg = f"rfdetr wants the network: {arguments}"
        raise OSError(msg)

    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.getaddrinfo = refuse  # type: ignore[assignment]


def cpu_case(config: str = "nano", **changes: Any) -> Case:
    return Case(config=config, lane="cpu", batch_size=2, **changes)


def error_of(action: Callable[[], Any]) -> str:
    """Return what ``action`` raises, in one line, or an empty string."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return ""


def fitted(case: Case, body: Callable[[Stepper], None]) -> None:
    with tempfile.TemporaryDirectory() as folder, steered(case):
        built = build(case, Path(folder))
        fit(built, make_samples(case, built.resolution), body)


def module_error(case: Case) -> str:
    """Return what building all but the trainer of ``case`` raises; that needs no GPU."""
    return error_of(lambda: build_module(case, Path(tempfile.gettempdir())))


def one_step(config: str) -> dict[str, Any]:
    """Return the phases of one step of the reduced ``config``, and whether it made an optimizer update."""
    seen: dict[str, Any] = {"phases": []}

    def body(stepper: Stepper) -> None:
        with phase_hooks(stepper, seen["phases"].append):
            stepper.step(stepper.prepare())
        seen["updates"] = stepper.built.trainer.global_step

    seen["error"] = error_of(lambda: fitted(cpu_case(config), body))
    seen["phases"] = [phase for phase in seen["phases"] if phase != OTHER]
    return seen


def multi_scale(mode: MultiScale) -> list[int]:
    """Return the sides of the square input over three steps."""
    sides: list[int] = []

    def body(stepper: Stepper) -> None:
        for _ in range(3):
            batch = stepper.prepare()
            sides.append(batch[0].tensors.shape[-1])
            stepper.step(batch)

    fitted(cpu_case(multi_scale=mode), body)
    return sides


def padding(padded: bool) -> dict[str, Any]:
    """Return whether the collated batch is padded, by its mask and by its flag (None where there is none)."""
    found: dict[str, Any] = {}

    def body(stepper: Stepper) -> None:
        samples = stepper.batch[0]
        found.update(mask=bool(samples.mask.any()), no_padding=getattr(samples, "no_padding", None))

    fitted(cpu_case(padded=padded), body)
    return found


def compiled() -> dict[str, Any]:
    """Return what comes out of two steps of Nano with Dynamo's own eager backend: error and strict counts."""
    compilation.reset()

    def body(stepper: Stepper) -> None:
        for _ in range(2):
            stepper.step(stepper.prepare())

    error = error_of(lambda: fitted(cpu_case(compile=True, backend="eager"), body))
    signals = {signal.name: signal for signal in compilation.signals(None)}
    failed = [part.name for part in signals["frames_failed"].parts]
    return {"error": error, "failed": failed} | {name: signal.value for name, signal in signals.items()}


def answers() -> dict[str, Any]:
    modes: tuple[MultiScale, ...] = get_args(MultiScale)
    return {
        "version": rfdetr_configs.version(),
        "full_size": {config: module_error(Case(config=config)) for config in KNOWN},
        "steps": {config: one_step(config) for config in KNOWN},
        "multi_scale": {mode: multi_scale(mode) for mode in modes},
        "padding": {str(padded): padding(padded) for padded in (True, False)},
        "cuda_graphs": module_error(cpu_case(cuda_graphs=True)),
        "compiled": compiled(),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    no_network()
    found = answers()
    sys.stdout.write("\n" + json.dumps(found) + "\n")
