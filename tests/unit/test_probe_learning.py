from __future__ import annotations

import pytest
import torch

from perf.probes.learning import first_loss, loss_watched, optimizer_groups


class Criterion(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, weights: dict[str, float]) -> None:
        super().__init__()
        self.weight_dict = weights

    def forward(self, factor: float) -> dict[str, torch.Tensor]:
        return {"loss_ce": torch.tensor(2.0) * factor, "loss_giou": torch.tensor(0.5), "error": torch.tensor(9.0)}


def test_the_first_loss_is_that_of_the_terms_that_are_weighted() -> None:
    criterion = Criterion({"loss_ce": 1.0, "loss_giou": 5.0})
    with loss_watched(criterion) as terms:
        criterion(1.0)
        criterion(100.0)  # of a later step
    [signal] = first_loss(terms)

    assert (signal.name, signal.kind, signal.value) == ("first_loss", "count-volume", 4.5)
    assert {part.name: part.value for part in signal.parts} == {"loss_ce": 2.0, "loss_giou": 2.5}


def test_nothing_stays_on_the_criterion() -> None:
    criterion = Criterion({"loss_ce": 1.0})
    with loss_watched(criterion) as terms:
        pass
    criterion(1.0)

    assert first_loss(terms) == []


def test_digits_that_another_processor_would_round_otherwise_are_dropped() -> None:
    [signal] = first_loss({"loss": torch.tensor(13.149643)})

    assert signal.value == 13.15


def test_groups_are_told_apart_by_what_they_start_at_and_decay_by() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    groups = [
        {"params": [weights[0]], "lr": 1e-4},
        {"params": [weights[1]], "lr": 1e-4},
        {"params": [weights[2]], "lr": 1e-5},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.5)  # a warm-up moves lr, and not what it starts at

    signal = optimizer_groups([optimizer])

    assert (signal.kind, signal.value) == ("count-strict", 3)
    assert {part.name: part.value for part in signal.parts} == {
        "lr 0.0001, weight decay 0.1": 2,
        "lr 1e-05, weight decay 0.1": 1,
    }
    assert optimizer.param_groups[0]["lr"] == pytest.approx(5e-5)
