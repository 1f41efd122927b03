"""How fast input comes against how fast a step takes it: what binds. Pure numbers; needs neither torch nor rfdetr."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perf.record import Signal

LOADER_RATE = "loader_rate_w"
# Stretches of a second of one loader differ by as much on a quiet machine: 154 to 167 samples/s (docs/input.md's run).
MARGIN = 0.1


def rate_name(workers: int) -> str:
    """Return the name of the signal that says what a loader with ``workers`` yields."""
    return f"{LOADER_RATE}{workers}"


def loader_rates(signals: Iterable[Signal]) -> dict[int, float]:
    """Return the samples/s that were measured, by number of workers, fewest first."""
    found = {signal.name.removeprefix(LOADER_RATE): signal.value for signal in signals if _is_rate(signal.name)}
    return {int(workers): found[workers] for workers in sorted(found, key=int)}


def _is_rate(name: str) -> bool:
    return name.startswith(LOADER_RATE) and name.removeprefix(LOADER_RATE).isdecimal()


def input_bound(loader_rate: float, step_rate: float, margin: float = MARGIN) -> bool | None:
    """Return whether input binds: True where the loader yields fewer samples than the step could take.

    Both are in samples/s: ``loader_rate`` of a loader that is emptied as fast as it can be, ``step_rate`` of steps that
    wait for no input (batch size over the step's time without its input wait). None where the two are within the share
    ``margin`` of each other, so that neither can be called the limit.

    Raises:
        ValueError: a rate is not above 0, or ``margin`` is not in 0 ... 1.
    """
    if min(loader_rate, step_rate) <= 0 or not 0 <= margin < 1:
        msg = f"rates must be above 0 and the margin in 0 ... 1: {loader_rate}, {step_rate} samples/s, {margin}"
        raise ValueError(msg)
    if abs(loader_rate - step_rate) <= margin * step_rate:
        return None
    return loader_rate < step_rate


def fewest_workers(rates: Mapping[int, float], step_rate: float, margin: float = MARGIN) -> int | None:
    """Return the fewest of the workers measured with which input does not bind; None where it binds with all of them.

    ``rates`` are samples/s by number of workers (:func:`loader_rates`).
    """
    enough = (workers for workers in sorted(rates) if input_bound(rates[workers], step_rate, margin) is False)
    return next(enough, None)
