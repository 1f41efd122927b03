"""How far two steps are apart, key by key, and how far rounding errors alone may put them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import median
from typing import Any

from perf.rfdetr_parity import Taken

# A tolerance is so many times the eager step's own rounding error. One compiled step is one more draw of such an
# error, in another order of summation; of two draws of one scale the second is beyond eight times the first with
# less than 1 in 12 (normal errors); the pooling below, which leaves no small first draws, makes that rare.
FACTOR = 8
# And never less than so many units in the last place of float32, in which losses and gradients are summed up.
FLOOR_ULPS = 4
ULP = 2.0**-23
# The share of one activation with a kink: the reduced models' decoders have 2^18 and more (2 images, 2 groups of 50
# queries, 2048 hidden values).
KINK = 2.0**-18
# Records hold finite numbers only: this many tolerances stand for a NaN, an infinity or a missing key.
NO_NUMBER = 1e9


@dataclass(frozen=True)
class Difference:
    """How far the compiled step is from the eager one in one key, its tolerance, and the eager one's own size."""

    size: float
    tolerance: float
    scale: float

    @property
    def ratio(self) -> float:
        """The difference in units of the tolerance; :data:`NO_NUMBER` where one side is no number."""
        if self.size == 0:
            return 0.0
        ratio = self.size / self.tolerance if self.tolerance else math.inf
        return min(ratio, NO_NUMBER) if math.isfinite(ratio) else NO_NUMBER

    @property
    def agrees(self) -> bool:
        """Whether the compiled step is within tolerance."""
        return self.ratio <= 1


@dataclass(frozen=True)
class Pair:
    """The eager step (``low``) and the same step a precision up, with the same choices (``high``)."""

    low: Taken
    high: Taken


def differences(taken: Taken, pair: Pair) -> dict[str, Difference]:
    """Return how far ``taken`` is from the eager step of ``pair``, by key, each with its tolerance."""
    losses = _loss_differences(taken, pair)
    gradients = _gradient_differences(taken, pair)
    return {**losses, "grad_norm": _norm_difference(taken, pair), **gradients}


def _loss_differences(taken: Taken, pair: Pair) -> dict[str, Difference]:
    low = pair.low.losses
    errors = _loss_errors(pair)
    keys = dict.fromkeys([*low, *taken.losses])
    return {
        key: _difference(_distance(taken.losses.get(key), low.get(key)), errors.get(key, 0.0), abs(low.get(key, 0.0)))
        for key in keys
    }


def _loss_errors(pair: Pair) -> dict[str, float]:
    """Return the rounding error of each loss of the eager step.

    One may be small by luck. So none counts as less than, relative to the losses, the root mean square of those of
    its kind: the same loss of all layers; and that of the sum as no less than what all of them come to.
    """
    low, high = pair.low.losses, pair.high.losses
    own = {key: finite(abs(value - high.get(key, math.nan))) for key, value in low.items()}
    kinds: dict[str, list[float]] = {}
    for key, error in own.items():
        kinds.setdefault(_kind(key), []).append(error / abs(low[key]) if finite(low[key]) else 0.0)
    usual = {kind: math.hypot(*found) / math.sqrt(len(found)) for kind, found in kinds.items()}
    errors = {key: max(error, usual[_kind(key)] * abs(finite(low[key]))) for key, error in own.items()}
    together = math.hypot(*(weight * errors[key] for key, weight in pair.low.weights.items()))
    return {**errors, "loss": max(errors.get("loss", 0.0), together)}


def _kind(loss: str) -> str:
    """Return a loss's name without the layer it is of: ``loss_ce`` of ``loss_ce_0`` and ``loss_ce_enc``."""
    return re.sub(r"_(\d+|enc)$", "", loss)


def finite(value: float) -> float:
    """Return the value, or 0 where it is no number."""
    return value if math.isfinite(value) else 0.0


def _distance(one: float | None, other: float | None) -> float:
    """Return the absolute difference: infinity where a side has no number, both included: those were not compared."""
    if one is None or other is None:
        return math.inf
    size = abs(one - other)
    return size if math.isfinite(size) else math.inf


def _difference(size: float, error: float, scale: float) -> Difference:
    floor = FLOOR_ULPS * ULP * finite(scale)
    return Difference(size=size, tolerance=max(FACTOR * error, floor), scale=finite(scale))


def _norm_difference(taken: Taken, pair: Pair) -> Difference:
    """Compare the global norms.

    To first order a norm's error is the sum of w_p * e_p, with e_p the error of parameter p's norm and w_p its share
    ||g_p|| / ||g||. That sum may be small by luck; the root of the sum of squares is its usual size. Nor need these
    two steps differ by a kink (see :func:`_gradient_differences`), as the next one may: half its share is allowed.
    """
    low, high = _norms(pair.low.gradients), _norms(pair.high.gradients)
    total, exact = math.hypot(*low.values()), math.hypot(*high.values())
    usual = math.hypot(*(low[p] * (low[p] - high.get(p, 0.0)) for p in low)) / total if total else 0.0
    kink = min(_usual_error(pair), KINK) / 2 * total
    size = _distance(math.hypot(*_norms(taken.gradients).values()), total)
    return _difference(size, max(map(finite, (abs(total - exact), usual, kink))), total)


def _usual_error(pair: Pair) -> float:
    """Return the median over the parameters of the relative error of the gradient."""
    scales, errors = _norms(pair.low.gradients), _apart(pair.high.gradients, pair.low.gradients)
    return finite(median([errors[name] / scale for name, scale in scales.items() if scale] or [0.0]))


def _norms(gradients: dict[str, Any]) -> dict[str, float]:
    return {name: float(value.double().norm()) for name, value in gradients.items()}


def _gradient_differences(taken: Taken, pair: Pair) -> dict[str, Difference]:
    """Compare the gradients themselves, a parameter at a time: the norm of the difference of the two vectors.

    A gradient in another order, or turned, has the same norm. A parameter without one counts as all zeros. Of each
    part of the model, the parameter that is the most tolerances off stands for it, if it can one whose gradient is
    more than rounding errors (a key's bias has none by the formula: softmax ignores it).

    A gradient jumps where an activation crosses a kink (ReLU's zero, the edge of a pixel that is sampled). A relative
    rounding error e, here the median over the parameters, takes a share of about e of all activations across one,
    and with it that share of the squared norm: so the gradient may be off by the square root of e.
    """
    low = pair.low.gradients
    scales, errors, sizes = _norms(low), _apart(pair.high.gradients, low), _apart(taken.gradients, low)
    kinks = math.sqrt(max(_usual_error(pair), ULP))
    worst: dict[str, Difference] = {}
    for name, size in sizes.items():
        scale = scales.get(name, 0.0)
        found = _difference(size, max(finite(errors.get(name, 0.0)), finite(kinks * scale) / FACTOR), scale)
        key = f"gradient of {_part_of(name)}"
        if key not in worst or _telling(found) > _telling(worst[key]):
            worst[key] = found
    return worst


def _telling(difference: Difference) -> tuple[bool, bool, float]:
    return not difference.agrees, difference.tolerance < difference.scale, difference.ratio


def _apart(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    found = {}
    for name in {**other, **one}:
        present = [side[name].double() for side in (one, other) if name in side]
        change = present[0] - present[1] if len(present) == 2 else present[0]
        size = float(change.norm())
        found[name] = size if math.isfinite(size) else math.inf  # no number on both sides is no agreement
    return found


def _part_of(parameter: str) -> str:
    """Return the part of the model that a parameter is in: ``backbone.encoder`` of ``backbone.0.encoder...``."""
    names = [name for name in parameter.split(".") if not name.isdigit() and name not in ("weight", "bias")]
    return ".".join(names[:2])
