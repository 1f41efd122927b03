"""Parity: does the compiled step compute what the eager step computes, on the same weights, seed and batch?

Three steps answer it. The eager one, as rfdetr takes it. The same a precision up (float64 for float32, float32
for autocast), held to the eager one's choices: how far apart the two are is the rounding error that this step has
anyway, and a tolerance is a multiple of that. The compiled one, untouched, which must be within tolerance of the
eager one in every loss that has a weight, in their sum, in the gradient's norm and in the gradient itself.

Where it is not, the cause may be a tie: a rounding error that turned a choice (:class:`perf.rfdetr_parity.Choices`).
Three things together prove that, and only then is a mismatch explained. The compiled step chose otherwise. Each
choice was a tie: by the eager step's own scores, both sides of it are no further apart than rounding errors put
them. And the eager step, held to the compiled one's choices, agrees with it. It is the eager step that is repeated:
what is on trial is then the compiled step that was measured, not another compilation of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from perf.case import Case
from perf.probes import compilation
from perf.record import Part, Signal
from perf.rfdetr_api import Built, Sample, Stepper, build, fit
from perf.rfdetr_parity import Choices, Taken, take_step

# A tolerance is so many times the eager step's own rounding error. One compiled step is one more draw of such an
# error, in another order of summation; of two draws of one scale the second is beyond eight times the first with
# less than 1 in 12 (normal errors); the pooling below, which leaves no small first draws, makes that rare.
FACTOR = 8
# And never less than so many units in the last place of float32, in which losses and gradients are summed up.
FLOOR_ULPS = 4
_ULP = 2.0**-23
# The share of one activation with a kink: the reduced models' decoders have 2^18 and more (2 images, 2 groups of 50
# queries, 2048 hidden values).
KINK = 2.0**-18
# Records hold finite numbers only: this many tolerances stand for a NaN, an infinity or a missing key.
NO_NUMBER = 1e9
# The names that Lightning gives to precisions, and the spacing of numbers just above 1 in them.
_SPACING = {"32-true": 2.0**-23, "bf16-mixed": 2.0**-7, "16-mixed": 2.0**-10}

# The (query, target) pairs of one assignment problem.
Pairs = set[tuple[int, int]]
# For the record of a run: what is done to rfdetr here.
ADAPTATION = "noise of standard deviation 0.02 added to every parameter that is one constant (see perf.probes.parity)"
TOP_K, MATCHING, POINTS = "top-k", "matching ties", "mask point ties"


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


@dataclass(frozen=True)
class Tie:
    """How one kind of choice differs: ``differ`` of ``total`` choices, at most ``gap`` apart where ``limit`` is a tie.

    ``unit`` is one unit in the last place of what was compared, in the precision in use.
    """

    kind: str
    differ: int
    total: int
    gap: float
    limit: float
    unit: float

    @property
    def is_tie(self) -> bool:
        """Whether rounding errors alone can have turned these choices."""
        return self.gap <= self.limit

    def __str__(self) -> str:
        what = {TOP_K: "queries", MATCHING: "matched pairs", POINTS: "points"}[self.kind]
        ulps = self.gap / self.unit if self.unit else 0.0
        return f"{self.differ} of {self.total} {what} differ, gap {ulps:.2g} ulp"


def parity(built: Built, samples: list[Sample], scratch: Path) -> list[Signal]:
    """Take the compiled step of ``built`` and the eager ones, and return the parity and compilation signals.

    Call it inside :func:`perf.rfdetr_api.steered`, instead of a fit of ``built``; rfdetr may write to ``scratch``.

    Raises:
        ValueError: the step's precision has none above it here (fp8).
    """
    eager = build(built.case.eager, scratch)
    exact = build(_exact_case(built.case, eager.trainer.precision), scratch)
    _give_weights(built, [eager, exact])
    if eager.trainer.precision == "32-true":
        exact.module.double()
    found: list[Signal] = []

    # One within the other, so that all three are set up, on the device, at once.
    def with_all(low: Stepper, high: Stepper, compiled: Stepper) -> None:
        found.extend(_signals(Sides(low, high, compiled)))

    fit(
        eager,
        samples,
        lambda low: fit(exact, samples, lambda high: fit(built, samples, lambda c: with_all(low, high, c))),
    )
    return found


def _exact_case(case: Case, precision: str) -> Case:
    if precision not in _SPACING:
        msg = f"{case.id}: no precision to compare {precision} with; parity knows {', '.join(_SPACING)}"
        raise ValueError(msg)
    return case.eager.model_copy(update={"precision": "fp32"})


def _give_weights(built: Built, others: Iterable[Built]) -> None:
    model = built.module.model
    model = getattr(model, "_orig_mod", model)
    _stir(model)
    for other in others:
        other.module.model.load_state_dict(model.state_dict())


def _stir(model: Any) -> None:
    """Add seeded noise to every parameter that is one constant (:data:`ADAPTATION`).

    So are many in a model that was never trained. Through a layer of zeros flows no gradient, and a wrong kernel
    behind it would not be seen; and points that are sampled exactly on the edge between two pixels, as all are then,
    leave a gradient to the rounding errors.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() and bool((parameter == parameter.flatten()[0]).all()):
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.02 * noise.to(parameter.device))


@dataclass(frozen=True)
class Sides:
    """The steppers of one case: eager, eager a precision up, and compiled."""

    low: Stepper
    high: Stepper
    compiled: Stepper

    @property
    def spacing(self) -> float:
        """The relative spacing of numbers in the precision in use."""
        return _SPACING[str(self.low.built.trainer.precision)]

    def measured(self) -> Taken:
        """Take the compiled step; with CUDA graphs the third, since the first warms up and the second records."""
        steps = 3 if self.compiled.built.case.cuda_graphs else 1
        return [take_step(self.compiled) for _ in range(steps)][-1]

    def eager(self, hold: Choices | None = None) -> Pair:
        """Take the eager step, held to ``hold``, in both precisions, the upper held to what the lower chose."""
        low = take_step(self.low, hold)
        double = self.low.built.trainer.precision == "32-true"
        return Pair(low, take_step(self.high, low.chosen, double))


def _signals(sides: Sides) -> list[Signal]:
    reference = sides.eager()
    measured = sides.measured()
    compiled = compilation.signals(sides.compiled.built.module.model)
    free = differences(measured, reference)
    compared = Comparison(free, {}, [])
    if not all(difference.agrees for difference in free.values()):
        compared = explain(free, measured, reference, sides)
    return [*compared.signals(), *compiled]


@dataclass(frozen=True)
class Comparison:
    """``free``: the differences as measured; ``explained``: the keys that ties explain, and which; ``ties``: all."""

    free: dict[str, Difference]
    explained: dict[str, str]
    ties: list[Tie]

    def signals(self) -> list[Signal]:
        """Return the parity signals."""
        off = [key for key, difference in self.free.items() if not difference.agrees]
        wrong = [Part(name=key, value=1) for key in off if key not in self.explained]
        ties = [Part(name=f"{key}: {self.explained[key]}", value=1) for key in off if key in self.explained]
        return [
            Signal(name="parity_mismatches", kind="count-strict", unit="keys", value=len(wrong), parts=wrong),
            Signal(name="parity_ties", kind="info", unit="keys", value=len(ties), parts=ties),
            self._unresolved(),
            self._choices(),
            _by_key("parity_difference", "of tolerance", {k: d.ratio for k, d in self.free.items()}),
            _by_key("parity_tolerance", "relative", {k: _relative(d) for k, d in self.free.items()}),
        ]

    def _unresolved(self) -> Signal:
        """Return the keys whose tolerance is as large as the value: that they agree proves nothing."""
        blunt = [key for key, d in self.free.items() if d.agrees and d.size and d.tolerance >= d.scale]
        parts = [Part(name=key, value=1) for key in blunt]
        return Signal(name="parity_unresolved", kind="info", unit="keys", value=len(parts), parts=parts)

    def _choices(self) -> Signal:
        """Return how the choices differ, be they ties or not; looked into only where a key is off."""
        found = [tie for tie in self.ties if tie.differ]
        parts = [
            Part(name=f"{tie.kind}: {tie}, {'a tie' if tie.is_tie else 'no tie'}", value=tie.differ) for tie in found
        ]
        total = sum(tie.differ for tie in found)
        return Signal(name="parity_choices", kind="info", unit="choices", value=total, parts=parts)


def _by_key(name: str, unit: str, values: dict[str, float]) -> Signal:
    parts = [Part(name=key, value=value) for key, value in sorted(values.items(), key=lambda item: -item[1])]
    return Signal(name=name, kind="info", unit=unit, value=max(values.values(), default=0.0), parts=parts)


def _relative(difference: Difference) -> float:
    relative = difference.tolerance / difference.scale if difference.scale else 0.0
    return min(relative, NO_NUMBER) if math.isfinite(relative) else NO_NUMBER


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
    own = {key: _finite(abs(value - high.get(key, math.nan))) for key, value in low.items()}
    kinds: dict[str, list[float]] = {}
    for key, error in own.items():
        kinds.setdefault(_kind(key), []).append(error / abs(low[key]) if _finite(low[key]) else 0.0)
    usual = {kind: math.hypot(*found) / math.sqrt(len(found)) for kind, found in kinds.items()}
    errors = {key: max(error, usual[_kind(key)] * abs(_finite(low[key]))) for key, error in own.items()}
    together = math.hypot(*(weight * errors[key] for key, weight in pair.low.weights.items()))
    return {**errors, "loss": max(errors.get("loss", 0.0), together)}


def _kind(loss: str) -> str:
    """Return a loss's name without the layer it is of: ``loss_ce`` of ``loss_ce_0`` and ``loss_ce_enc``."""
    return re.sub(r"_(\d+|enc)$", "", loss)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _distance(one: float | None, other: float | None) -> float:
    """Return the absolute difference: infinity where a side has no number, both included: those were not compared."""
    if one is None or other is None:
        return math.inf
    size = abs(one - other)
    return size if math.isfinite(size) else math.inf


def _difference(size: float, error: float, scale: float) -> Difference:
    floor = FLOOR_ULPS * _ULP * _finite(scale)
    return Difference(size=size, tolerance=max(FACTOR * error, floor), scale=_finite(scale))


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
    return _difference(size, max(map(_finite, (abs(total - exact), usual, kink))), total)


def _usual_error(pair: Pair) -> float:
    """Return the median over the parameters of the relative error of the gradient."""
    scales, errors = _norms(pair.low.gradients), _apart(pair.high.gradients, pair.low.gradients)
    return _finite(median([errors[name] / scale for name, scale in scales.items() if scale] or [0.0]))


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
    kinks = math.sqrt(max(_usual_error(pair), _ULP))
    worst: dict[str, Difference] = {}
    for name, size in sizes.items():
        scale = scales.get(name, 0.0)
        found = _difference(size, max(_finite(errors.get(name, 0.0)), _finite(kinks * scale) / FACTOR), scale)
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


def explain(free: dict[str, Difference], measured: Taken, reference: Pair, sides: Sides) -> Comparison:
    """Hold the eager step to the compiled one's choices, one kind after the other, and see what then agrees."""
    chosen = Choices(None, measured.chosen.assigned, measured.chosen.points)
    if reference.low.scores is not None and measured.rows is not None:
        chosen.selected = identify(measured.rows, _all_rows(reference, sides), _row_error(reference))
    ties: list[Tie] = []
    explained: dict[str, str] = {}
    held = Choices()
    for kind in (TOP_K, MATCHING, POINTS):
        held = _also(held, kind, chosen)
        pair = sides.eager(held)
        tie = _TIES[kind](pair, reference, sides.spacing)
        ties.append(tie)
        if not tie.is_tie:
            # What follows from a choice that no rounding error turned is explained by nothing.
            return Comparison(free, explained, ties)
        if not tie.differ:
            continue
        reason = " and ".join(f"{t.kind} ({t})" for t in ties if t.differ)
        for key, difference in differences(measured, pair).items():
            if difference.agrees:
                explained.setdefault(key, f"explained by {reason}")
    return Comparison(free, explained, ties)


def _also(held: Choices, kind: str, chosen: Choices) -> Choices:
    """Return ``held`` with the choices of this kind held too."""
    name = {TOP_K: "selected", MATCHING: "assigned", POINTS: "points"}[kind]
    return replace(held, **{name: getattr(chosen, name)})


def _all_rows(reference: Pair, sides: Sides) -> Any:
    """Return the encoder's outputs of every token, (groups, batch, tokens, values), by selecting all in turn."""
    import torch

    groups, batch, tokens = reference.low.scores.shape
    count = reference.low.chosen.selected.shape[-1]
    table = None
    for first in [*range(0, tokens - count, count), tokens - count]:
        chunk = torch.arange(first, first + count)
        rows = take_step(sides.low, Choices(selected=chunk.expand(groups, batch, count))).rows
        table = rows.new_empty(groups, batch, tokens, rows.shape[-1]) if table is None else table
        table[:, :, chunk] = rows
    return table


def identify(rows: Any, table: Any, error: Any) -> Any:
    """Return which token each selected query is: the one in ``table`` with the nearest outputs.

    ``rows`` (groups, batch, queries, values) are a step's, ``table`` (groups, batch, tokens, values) the eager
    step's for every token; int64 (groups, batch, queries). Each value counts in units of its usual rounding
    ``error`` (values,).
    """
    import torch

    return torch.cdist(rows / error, table / error).argmin(dim=-1)


def _row_error(reference: Pair) -> Any:
    low, high = reference.low.rows.flatten(0, 2), reference.high.rows.flatten(0, 2)
    tiny = 2.0**-149  # for a value that is zero everywhere
    return (low - high).square().mean(dim=0).sqrt().maximum(_ULP * low.abs().amax(dim=0)).clamp_min(tiny)


def _selection_tie(pair: Pair, reference: Pair, spacing: float) -> Tie:
    """Compare the selected queries, rank by rank.

    The value at a rank moves by no more than the largest error e of any score; so a token that rounding errors
    brought to a rank has a score within 2 e of the one that was there.
    """
    own, chosen = reference.low.own.selected, pair.low.chosen.selected
    if own is None or chosen is None:
        return Tie(TOP_K, 0, 0, 0.0, 0.0, 0.0)
    low, high = (side.scores.double() for side in (reference.low, reference.high))
    gap = float((low.gather(-1, own) - low.gather(-1, chosen)).abs().max())
    scale = float(low.abs().max())
    limit = 2 * _most_error(low, high, scale)
    return Tie(TOP_K, int((own != chosen).sum()), own.numel(), gap, limit, spacing * scale)


def _most_error(low: Any, high: Any, scale: float) -> float:
    return max(FACTOR * _finite(float((low - high).abs().max())), FLOOR_ULPS * _ULP * scale)


def _matching_tie(pair: Pair, reference: Pair, spacing: float) -> Tie:
    """Compare the assignments, problem by problem: a layer, a query group, an image.

    With each cost off by e at most, the assignment of n pairs that is best by one set of costs is at most 2 n e
    worse than the best by the other.
    """
    low, found = pair.low, Tie(MATCHING, 0, 0, 0.0, 0.0, 0.0)
    problems = low.groups * sum(map(len, low.own.assigned))
    if not len(low.costs) == len(pair.high.costs) == problems:
        unproven = int(_listed(low.own) != _listed(low.chosen))
        return replace(found, differ=unproven, total=problems, gap=NO_NUMBER * unproven)
    for index, (cost, exact) in enumerate(zip(low.costs, pair.high.costs, strict=True)):
        own, chosen = (_problem(side, index, low.groups, len(cost)) for side in (low.own, low.chosen))
        found = _worse(found, _problem_tie(own, chosen, cost, exact, spacing))
    return found


def _listed(choices: Choices) -> list[list[list[int]]]:
    return [[side.tolist() for side in image] for layer in choices.assigned for image in layer]


def _problem_tie(own: Pairs, chosen: Pairs, cost: Any, exact: Any, spacing: float) -> Tie:
    if own == chosen:
        return Tie(MATCHING, 0, len(own), 0.0, 0.0, 0.0)
    scale = float(cost.abs().max())
    gap = abs(_cost_of(chosen, cost) - _cost_of(own, cost))
    limit = 2 * len(own) * _most_error(cost, exact, scale)
    return Tie(MATCHING, len(own - chosen), len(own), gap, limit, spacing * scale)


def _worse(one: Tie, other: Tie) -> Tie:
    """Return both as one tie, with the gap of the one that is less of a tie."""
    shown = other if other.gap * one.limit >= one.gap * other.limit and other.differ else one
    return replace(shown, differ=one.differ + other.differ, total=one.total + other.total)


def _problem(choices: Choices, index: int, groups: int, queries: int) -> Pairs:
    """Return the (query in its group, target in its image) pairs of the ``index``-th of the solved problems."""
    layer, rest = divmod(index, groups * len(choices.assigned[0]))
    group, image = divmod(rest, len(choices.assigned[0]))
    rows, columns = (list(map(int, side)) for side in choices.assigned[layer][image])
    pairs = [(row - group * queries, column) for row, column in zip(rows, columns, strict=True)]
    return {pair for pair in pairs if 0 <= pair[0] < queries}


def _cost_of(pairs: Pairs, cost: Any) -> float:
    return math.fsum(float(cost[pair]) for pair in pairs)


def _point_tie(pair: Pair, reference: Pair, spacing: float) -> Tie:
    """Compare the uncertain points of the mask losses, as the queries are compared: by the value at each rank."""
    low, high = pair.low, pair.high
    differ = sum(
        int((own != chosen).any(-1).sum()) for own, chosen in zip(low.own.points, low.chosen.points, strict=True)
    )
    total = sum(points.shape[0] * points.shape[1] for points in low.own.points)
    gap, limit, scale = 0.0, 0.0, 0.0
    for (own, chosen), (_, exact) in zip(low.uncertainties, high.uncertainties, strict=True):
        gap = max(gap, float((own.sort(-1).values - chosen.sort(-1).values).abs().max()))
        scale = max(scale, float(chosen.abs().max()))
        limit = max(limit, 2 * _most_error(chosen, exact, scale))
    return Tie(POINTS, differ, total, gap, limit, spacing * scale)


_TIES: dict[str, Callable[[Pair, Pair, float], Tie]] = {
    TOP_K: _selection_tie,
    MATCHING: _matching_tie,
    POINTS: _point_tie,
}
