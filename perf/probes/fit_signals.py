"""What the host's clock saw of a fit, as signals: the phases of an update, a validation, and what logging costs."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median
from typing import Any

from perf.gates import FORWARDS
from perf.probes.fit_phases import FIT_PHASES, INPUT_WAIT, MODEL, SCORING, Update
from perf.probes.phases import CRITERION, FORWARD, OTHER
from perf.record import Part, Signal


def fit_step(updates: list[Update]) -> Signal:
    """Return the wall time per update in ms: the mean, so that the parts, each phase's mean, sum to it.

    The samples are the updates, whose median and spread are for the reader; one slow update moves the mean, not them.
    """
    phases = [*FIT_PHASES, *(phase for phase in updates[0].seconds if phase not in FIT_PHASES)]
    parts = [Part(name=name, value=1e3 * fmean(one.seconds.get(name, 0.0) for one in updates)) for name in phases]
    samples = [update.milliseconds for update in updates]
    return Signal(name="fit_step", kind="wall", unit="ms", value=fmean(samples), samples=samples, parts=parts)


def kernel_compiles(updates: list[Update]) -> Signal:
    """Return how many kernels Triton compiled in these updates, by kernel; the samples are those of each update."""
    names = Counter(name for update in updates for name in update.compiled)
    parts = [Part(name=name, value=count) for name, count in names.most_common()]
    samples = [float(len(update.compiled)) for update in updates]
    return Signal(
        name="kernel_compiles", kind="info", unit="compiles", value=sum(samples), samples=samples, parts=parts
    )


def validation_signals(name: str, update: Update, batches: int) -> list[Signal]:
    """Return the wall time of a validation in s, from the end of the update before to the next batch's, and its length.

    The device works on while the host goes on: what of the model's time is left when its detections are read is
    ``scoring``.
    """
    seconds = dict(update.seconds)
    model = [MODEL, FORWARD, CRITERION]
    parts = {"model": sum(seconds.pop(phase, 0.0) for phase in model)}
    parts |= {phase: seconds.pop(phase, 0.0) for phase in (SCORING, INPUT_WAIT)}
    parts[OTHER] = sum(seconds.values())
    listed = [Part(name=phase, value=value) for phase, value in parts.items()]
    kind: Any = "wall" if name == "validation" else "info"
    return [
        Signal(name=name, kind=kind, unit="s", value=sum(parts.values()), parts=listed),
        Signal(name=f"{name}_steps", kind="info", unit="batches", value=batches),
    ]


def cost_signals(rounds: list[dict[str, float]]) -> list[Signal]:
    """Return by how many ms an update is shorter without something: the median over whole rounds, maybe below 0."""
    told = {
        "logging_cost": "self.log and self.log_dict of rfdetr's module not called",
        "sync_cost": "numbers logged as tensors that are on the device already: logged, without their syncs",
    }
    found = []
    for name, what in told.items():
        samples = [one[""] - one[name] for one in rounds if "" in one and name in one]
        if samples:
            part = Part(name=what, value=median(samples))
            found.append(
                Signal(name=name, kind="info", unit="ms", value=median(samples), samples=samples, parts=[part])
            )
    return found


def more_is_better(name: str, value: float) -> Signal:
    """Return a strict count of which less is the regression."""
    return Signal(name=name, kind="count-strict", unit="", direction="higher", value=value)


def forwards_signal(forwards: list[str]) -> Signal:
    """Return how often a validation called a model, by which one it was."""
    parts = [Part(name=name, value=forwards.count(name)) for name in dict.fromkeys(forwards)]
    return Signal(name=FORWARDS, kind="count-strict", unit="calls", value=len(forwards), parts=parts)
