"""What a candidate computes: every loss of one batch, unpatched and patched, from the same model outputs.

Run as ``python -m perf.rfdetr_candidates CASE PATCH`` in a fresh process, since a patch cannot be taken off again.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from perf.candidate_losses import Check, Loss
from perf.candidates import DoesNotApply
from perf.case import Case, find_case
from perf.patch_file import import_patch
from perf.rfdetr_api import Stepper, build, fit
from perf.rfdetr_steering import steered
from perf.workload import make_samples

Context = Callable[[], contextlib.AbstractContextManager[Any]]


def checks(case: Case, patch: Path) -> list[Check]:
    """Return every loss without and with ``patch``, of one batch at random weights.

    First in the precision that the case trains in, then, where that is not float32, from the same outputs in it.

    Raises:
        DoesNotApply: the patch is not for the installed rfdetr.
        ValueError: the patch makes losses of other names.
    """
    found: list[Check] = []
    with tempfile.TemporaryDirectory() as scratch, steered(case):
        built = build(case, Path(scratch))

        def body(stepper: Stepper) -> None:
            criterion, sides = built.module.criterion, _sides(stepper)
            before = [(side.losses(criterion), side.reference(criterion)) for side in sides]
            import_patch(patch)
            patched = build(case, Path(scratch)).module.criterion.train().to(stepper.device)
            for side, (eager, reference) in zip(sides, before, strict=True):
                found.append(Check(*side.rounding(), _paired(eager, side.losses(patched), reference)))

        fit(built, make_samples(case, built.resolution), body)
    return found


def _paired(eager: dict[str, float], after: dict[str, float], reference: dict[str, float]) -> tuple[Loss, ...]:
    if set(eager) != set(after):
        msg = f"other losses: {sorted(set(eager) ^ set(after))}"
        raise ValueError(msg)
    return tuple(Loss(name, eager[name], after[name], reference.get(name)) for name in eager)


@dataclass(frozen=True)
class Side:
    """What losses are computed from: the model's outputs, the targets, and the ``context`` of the precision."""

    outputs: dict[str, Any]
    targets: list[dict[str, Any]]
    context: Context

    def losses(self, criterion: Any) -> dict[str, float]:
        """Return the losses as ``criterion`` computes them, from the same random points of masks each time."""
        import torch

        torch.manual_seed(0)
        with self.context():
            return _read(criterion(self.outputs, self.targets))

    def reference(self, criterion: Any) -> dict[str, float]:
        """Return the losses in float64 on the CPU, where rfdetr compiles none, with the matching of these outputs.

        Without those of masks: their points are drawn anew.
        """
        import torch

        wide, targets = (cast(value, torch.float64, "cpu") for value in (self.outputs, self.targets))
        matcher = self._matcher(criterion.matcher, wide)
        known = [name for name in criterion.losses if name != "masks"]
        with (
            torch.no_grad(),
            mock.patch.object(criterion, "matcher", matcher),
            mock.patch.object(criterion, "losses", known),
            mock.patch("torch.distributed.is_initialized", return_value=False),  # NCCL has nothing on a CPU
        ):
            return _read(criterion(wide, targets))

    def _matcher(self, matcher: Any, wide: dict[str, Any]) -> Any:
        """Return a matcher that answers for each layer of ``wide`` as ``matcher`` does for the layer it was cast of."""
        from torch import nn

        cast_of = {id(new["pred_logits"]): old for new, old in zip(_layers(wide), _layers(self.outputs), strict=True)}

        def match(layer: dict[str, Any], _targets: Any, *args: Any, **kwargs: Any) -> Any:
            with self.context():
                indices = matcher(cast_of[id(layer["pred_logits"])], self.targets, *args, **kwargs)
            return [(queries.cpu(), targets.cpu()) for queries, targets in indices]

        same = nn.Module()  # not rfdetr's class, whose layers may be matched in one call past its forward
        same.forward = match
        return same

    def rounding(self) -> tuple[str, float]:
        """Return the name of the coarsest type of the outputs, and the largest error of a rounding to it, a share."""
        import torch

        coarsest = max((one.dtype for one in _floats(self.outputs)), key=lambda dtype: torch.finfo(dtype).eps)
        return str(coarsest).removeprefix("torch."), torch.finfo(coarsest).eps / 2


def _sides(stepper: Stepper) -> list[Side]:
    import torch

    context = _context(stepper)
    samples, targets = stepper.prepare()
    with context():
        outputs = stepper.built.module.model(samples, targets)
    own = Side(outputs, targets, context)
    if all(one.dtype == torch.float32 for one in _floats(outputs)):
        return [own]
    return [own, Side(cast(outputs, torch.float32), targets, contextlib.nullcontext)]


def _context(stepper: Stepper) -> Context:
    """Return the context of the case's precision; rfdetr itself has only float32 on a CPU, and bf16 is autocast's."""
    import torch

    if stepper.built.case.lane == "cpu" and stepper.built.case.precision == "bf16":
        return lambda: torch.autocast("cpu", torch.bfloat16)
    context: Context = stepper.built.trainer.precision_plugin.forward_context
    return context


def cast(value: Any, dtype: Any, device: str | None = None) -> Any:
    """Return nested dicts, lists and tensors with each tensor on ``device``, the floating ones in ``dtype``."""
    import torch

    if isinstance(value, dict):
        return {name: cast(one, dtype, device) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [cast(one, dtype, device) for one in value]
    if not torch.is_tensor(value):
        return value
    return value.to(device or value.device, dtype if value.is_floating_point() else value.dtype)


def _floats(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _floats(one)
    elif torch.is_tensor(value) and value.is_floating_point():
        yield value


def _layers(outputs: dict[str, Any]) -> list[dict[str, Any]]:
    encoder = [outputs["enc_outputs"]] if "enc_outputs" in outputs else []
    return [outputs, *outputs.get("aux_outputs", []), *encoder]


def _read(found: dict[str, Any]) -> dict[str, float]:
    return {name: float(value.detach()) for name, value in found.items()}


def main() -> int:
    """Print the checks as JSON, or why the patch does not apply."""
    case, patch = find_case(sys.argv[1]), Path(sys.argv[2])
    try:
        told: dict[str, Any] = {"checks": checks(case, patch)}
    except DoesNotApply as reason:
        told = {"does_not_apply": str(reason)}
    print(f"\n{json.dumps(told)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
