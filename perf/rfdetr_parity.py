"""Watch one step of rfdetr, and hold its choices fixed: part of the :mod:`perf.rfdetr_api` room.

A step chooses three times among near-equal values, and a rounding error can turn each choice: the queries of the
two-stage top-k, the matching of queries to targets, and the uncertain points of the mask losses. What a model that
runs eagerly chose can be seen and replaced here. Of a compiled model nothing is touched but the criterion's own
Python, so that the step that is measured stays rfdetr's own.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from perf.rfdetr_api import Stepper

# Rows and columns of the matched pairs, one such pair of int64 (matches,) tensors an image.
Assignment = list[tuple[Any, Any]]


@dataclass
class Choices:
    """What a step chose; None, or fewer than there are, where that is not known or not to be held.

    ``selected``: int64 (groups, batch, queries), the token that the two-stage top-k put at each rank.
    ``assigned``: one :data:`Assignment` an output layer. ``points``: (matches, points, 2), one tensor a layer.
    """

    selected: Any = None
    assigned: list[Assignment] = field(default_factory=list)
    points: list[Any] = field(default_factory=list)


@dataclass
class Taken:
    """What one step computed, all on the CPU, before clipping and without an update.

    ``losses``: every loss that has one of the ``weights``, by name, and ``loss``, their weighted sum.
    ``gradients``: by parameter, unscaled. ``groups``: of queries. ``rows``: (groups, batch, queries, values), the
    encoder's outputs of the selected queries; None for a one-stage model. ``own``: what the step would have chosen
    by itself, ``chosen``: what it went on with.

    What the choices were made from: ``scores`` (groups, batch, tokens), of an eager model only; ``costs``, one
    (queries, targets) matrix for each layer, group and image in turn; ``uncertainties``, for each layer those of
    the points it would have taken and of those it took, each (matches, points).
    """

    losses: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, Any] = field(default_factory=dict)
    groups: int = 1
    rows: Any = None
    own: Choices = field(default_factory=Choices)
    chosen: Choices = field(default_factory=Choices)
    scores: Any = None
    costs: list[Any] = field(default_factory=list)
    uncertainties: list[tuple[Any, Any]] = field(default_factory=list)


class _StepDone(Exception):  # noqa: N818  (no error: ends a step before its update)
    """Raised after the backward."""


def take_step(stepper: Stepper, hold: Choices | None = None, double: bool = False, seed: int = 0) -> Taken:
    """Run one step by rfdetr's own loop up to the gradients, and return what it computed.

    ``hold``: choices to go on with instead of the step's own; ``hold.selected`` for an eager model only.
    ``double``: the batch and all that is made on the way is in float64, for a module that is in float64.

    Raises:
        RuntimeError: the step could not be stopped before its update.
    """
    import torch

    built = stepper.built
    watch = _Watch(stepper, hold or Choices())
    batch = stepper.prepare()
    built.module.zero_grad(set_to_none=True)  # rfdetr's keypoint loop does so after its update, which never comes
    torch.manual_seed(seed)
    with watch.watching(), _in_doubles() if double else contextlib.nullcontext():
        _step_without_update(stepper, _doubled(batch) if double else batch)
    watch.taken.gradients = _gradients(stepper)
    return watch.taken


def _step_without_update(stepper: Stepper, batch: tuple[Any, Any]) -> None:
    """Leave the step after its backward, so that the weights stay what they are."""
    with mock.patch.object(stepper.built.module, "on_after_backward", side_effect=_StepDone):
        try:
            stepper.step(batch)
        except _StepDone:
            return
    msg = "the step went on to its update: this Lightning does not call on_after_backward"
    raise RuntimeError(msg)


class _Watch:
    """One step's choices: recorded, and replaced by the held ones."""

    def __init__(self, stepper: Stepper, hold: Choices) -> None:
        self.stepper, self.hold = stepper, hold
        self.taken = Taken(groups=int(stepper.built.model_config.group_detr))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        module = self.stepper.built.module
        handle = module.criterion.register_forward_hook(self._losses)
        with contextlib.ExitStack() as stack:
            stack.callback(handle.remove)
            stack.enter_context(self._around("matcher", "HungarianMatcher.forward", self._assign))
            stack.enter_context(self._around("matcher", "HungarianMatcher._match_many", self._assign_many))
            stack.enter_context(self._around("matcher", "linear_sum_assignment", self._solve))
            stack.enter_context(self._around("_assignment", "assign_many_bucketed", self._solve_many))
            stack.enter_context(self._around("criterion", "get_uncertain_point_coords_with_randomness", self._points))
            if not hasattr(module.model, "_orig_mod"):
                stack.enter_context(self._select_in(module.model))
            yield
        if self.taken.own.selected is not None:
            self._join_selections()

    @contextlib.contextmanager
    def _around(self, file: str, name: str, wrap: Callable[..., Any]) -> Iterator[None]:
        """Call ``wrap(real, *args)`` for ``rfdetr.models.<file>.<name>``, where this release has that."""
        owner = _module(file)
        *path, attribute = name.split(".")
        for step in path:
            owner = getattr(owner, step)
        real = getattr(owner, attribute, None)
        if real is None:
            yield
            return

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return wrap(real, *args, **kwargs)

        with mock.patch.object(owner, attribute, wrapped):
            yield

    @contextlib.contextmanager
    def _select_in(self, model: Any) -> Iterator[None]:
        """Watch ``torch.topk`` during the model's forward, where only the two-stage selection uses it."""
        import torch

        real_forward, real_topk = model.forward, torch.topk

        def topk(scores: Any, *args: Any, **kwargs: Any) -> Any:
            return self._select(real_topk, scores, *args, **kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:
            with mock.patch("torch.topk", topk):
                return real_forward(*args, **kwargs)

        with mock.patch.object(model, "forward", forward):
            yield

    def _select(self, real: Any, scores: Any, *args: Any, **kwargs: Any) -> Any:
        """Take (batch, tokens) scores, a call a group, or from 1.11.0 (groups, batch, tokens) in one call."""
        values, indices = real(scores, *args, **kwargs)
        own = self.taken.own
        own.selected, self.taken.scores = own.selected or [], self.taken.scores or []
        group = len(own.selected)
        own.selected += _by_group(indices)
        self.taken.scores += _by_group(scores)
        if self.hold.selected is None:
            return values, indices
        count = len(own.selected) - group
        held = self.hold.selected[group : group + count].to(indices.device).reshape(indices.shape)
        return scores.gather(-1, held), held

    def _join_selections(self) -> None:
        import torch

        own = self.taken.own
        own.selected, self.taken.scores = torch.stack(own.selected), torch.stack(self.taken.scores)
        held = self.hold.selected
        self.taken.chosen.selected = own.selected if held is None else held

    def _assign(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        return self._assigned(real(*args, **kwargs))

    def _assign_many(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        layers = real(*args, **kwargs)
        return layers if layers is None else [self._assigned(layer) for layer in layers]

    def _assigned(self, own: Assignment) -> Assignment:
        layer = len(self.taken.own.assigned)
        self.taken.own.assigned.append(own)
        chosen = self.hold.assigned[layer] if self.hold.assigned else own
        self.taken.chosen.assigned.append(chosen)
        return chosen

    def _solve(self, real: Any, cost: Any) -> Any:
        self.taken.costs.append(_copy(cost))
        return real(cost)

    def _solve_many(self, real: Any, costs: list[Any], sizes: list[int], groups: int) -> Any:
        """Take one (groups * queries, sum of ``sizes``) matrix a layer, and keep it in the order of :class:`Taken`."""
        for cost in costs:
            for group in _copy(cost).chunk(groups):
                self.taken.costs += [problem.clone() for problem in group.split(sizes, dim=1)]
        return real(costs, sizes, groups)

    def _points(self, real: Any, logits: Any, uncertainty: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the uncertain points of (matches, 1, H, W) mask logits: (matches, points, 2)."""
        sample = _module("heads.segmentation").point_sample
        own = real(logits, uncertainty, *args, **kwargs)
        layer = len(self.taken.own.points)
        chosen = self.hold.points[layer].to(own) if self.hold.points else own
        self.taken.own.points.append(own.cpu())
        self.taken.chosen.points.append(chosen.cpu())
        found = [uncertainty(sample(logits, p, align_corners=False)).flatten(1) for p in (own, chosen)]
        self.taken.uncertainties.append((_copy(found[0]), _copy(found[1])))
        return chosen

    def _losses(self, criterion: Any, args: tuple[Any, ...], losses: dict[str, Any]) -> None:
        weights = criterion.weight_dict
        found = {name: float(value.detach()) for name, value in losses.items() if name in weights}
        self.taken.weights = {name: float(weights[name]) for name in found}
        self.taken.losses = {**found, "loss": sum(self.taken.weights[name] * value for name, value in found.items())}
        encoder = args[0].get("enc_outputs")
        if encoder is not None:
            self.taken.rows = _rows(encoder, self.taken.groups)


def _module(file: str) -> Any:
    try:
        return importlib.import_module(f"rfdetr.models.{file}")
    except ModuleNotFoundError:
        return None


def _copy(values: Any) -> Any:
    """Return ``values`` as a float64 tensor of its own on the CPU, whatever it is a view of."""
    import torch

    return torch.as_tensor(values).detach().cpu().double().clone()


def _by_group(values: Any) -> list[Any]:
    found = values.detach().cpu().clone()
    return list(found.unbind(0)) if found.dim() == 3 else [found]


def _rows(encoder: dict[str, Any], groups: int) -> Any:
    """Return the encoder's logits and boxes side by side, float64 (groups, batch, queries, classes + 4)."""
    import torch

    rows = torch.cat([_copy(encoder["pred_logits"]), _copy(encoder["pred_boxes"])], dim=-1)
    return torch.stack(rows.chunk(groups, dim=1))


def _gradients(stepper: Stepper) -> dict[str, Any]:
    scaler = getattr(stepper.built.trainer.precision_plugin, "scaler", None)  # of fp16
    scale = 1.0 if scaler is None else float(scaler.get_scale())
    model = stepper.built.module.model
    found = getattr(model, "_orig_mod", model).named_parameters()
    # In float32, whatever the precision: its rounding is below every difference looked for, and models are large.
    return {name: value.grad.detach().float().cpu() / scale for name, value in found if value.grad is not None}


@contextlib.contextmanager
def _in_doubles() -> Iterator[None]:
    """Have what rfdetr asks for in float32 by name be float64, where torch then refuses to mix the two.

    ``torch.rand`` still draws in float32: the same points for both precisions.
    """
    import torch

    real = torch.rand

    def rand(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **kwargs).double()

    with mock.patch("torch.rand", rand), mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def _doubled(batch: tuple[Any, Any]) -> tuple[Any, Any]:
    samples, targets = batch
    samples.tensors = samples.tensors.double()
    wide = [{k: v.double() if v.is_floating_point() else v for k, v in target.items()} for target in targets]
    return samples, wide
