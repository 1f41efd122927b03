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

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perf.case import Case
from perf.probes import compilation
from perf.probes.parity_differences import NO_NUMBER, ULP, Difference, Pair, differences
from perf.probes.parity_ties import MATCHING, POINTS, TIES, TOP_K, Tie
from perf.record import Part, Signal
from perf.rfdetr_api import Built, Sample, Stepper, build, fit
from perf.rfdetr_parity import Choices, Taken, take_step

# The names that Lightning gives to precisions, and the spacing of numbers just above 1 in them.
_SPACING = {"32-true": 2.0**-23, "bf16-mixed": 2.0**-7, "16-mixed": 2.0**-10}

# For the record of a run: what is done to rfdetr here.
ADAPTATION = "noise of standard deviation 0.02 added to every parameter that is one constant (see perf.probes.parity)"
FULL_FLOAT32 = "float32 without TF32, which rfdetr allows: it would make the tolerance that of 10 bits"


def parity(built: Built, samples: list[Sample], scratch: Path) -> list[Signal]:
    """Take the compiled step of ``built`` and the eager ones, and return the parity and compilation signals.

    Call it inside :func:`perf.rfdetr_steering.steered`, instead of a fit of ``built``; rfdetr may write to ``scratch``.

    Raises:
        ValueError: the step's precision has none above it here (fp8).
    """
    eager = build(built.case.eager, scratch)
    exact = build(_exact_case(built.case, eager.trainer.precision), scratch)
    _give_weights(built, [eager, exact])
    full = eager.trainer.precision == "32-true"
    if full:
        exact.module.double()
    found: list[Signal] = []

    # One within the other, so that all three are set up, on the device, at once.
    def with_all(low: Stepper, high: Stepper, compiled: Stepper) -> None:
        found.extend(_signals(Sides(low, high, compiled)))

    with without_tf32() if full else contextlib.nullcontext():
        fit(
            eager,
            samples,
            lambda low: fit(exact, samples, lambda high: fit(built, samples, lambda c: with_all(low, high, c))),
        )
    return found


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Have matrix products and convolutions of float32 use all its bits (:data:`FULL_FLOAT32`)."""
    import torch

    matmul, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution


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
        tie = TIES[kind](pair, reference, sides.spacing)
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
    return (low - high).square().mean(dim=0).sqrt().maximum(ULP * low.abs().amax(dim=0)).clamp_min(tiny)
