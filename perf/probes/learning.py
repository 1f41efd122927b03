"""What a step learns from and how fast: the loss of the first step, term by term, and the optimizer's settings.

A dropped term or a learning rate off by ten costs no time, and mAP shows it only after a training.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from perf.gates import GROUPS, LOSS
from perf.record import Part, Signal

# Another processor rounds otherwise in the sixth digit.
DIGITS = 4


@contextlib.contextmanager
def loss_watched(criterion: Any) -> Iterator[dict[str, Any]]:
    """Yield what will hold the terms of the next loss, weighted as the criterion says; tensors, read by nobody yet."""
    terms: dict[str, Any] = {}

    def keep(module: Any, _: Any, losses: Mapping[str, Any]) -> None:
        if not terms:
            weights = module.weight_dict
            terms.update({name: weights[name] * loss.detach() for name, loss in losses.items() if name in weights})

    handle = criterion.register_forward_hook(keep)
    try:
        yield terms
    finally:
        handle.remove()


def first_loss(terms: Mapping[str, Any]) -> list[Signal]:
    """Return the loss of the first step: seed and batch are the same in every run. Nothing where no term was seen."""
    parts = [Part(name=name, value=_rounded(float(term))) for name, term in terms.items()]
    if not parts:
        return []
    value = _rounded(sum(float(term) for term in terms.values()))
    return [Signal(name=LOSS, kind="count-volume", unit="", value=value, parts=parts)]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def optimizer_groups(optimizers: Any) -> Signal:
    """Return how many groups of parameters there are, a part for each setting: what it starts at and decays by."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    named = Counter(_setting(group) for group in groups)
    parts = [Part(name=name, value=count) for name, count in sorted(named.items())]
    return Signal(name=GROUPS, kind="count-strict", unit="groups", value=len(groups), parts=parts)


def _setting(group: Mapping[str, Any]) -> str:
    rate = group.get("initial_lr", group["lr"])
    return f"lr {rate:.6g}, weight decay {group.get('weight_decay', 0.0):.6g}"
