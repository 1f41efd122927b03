"""What a fit is made of, on the real rfdetr; tests/e2e/test_fit.py runs it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perf.case import Case
from perf.dataset import read_data_set
from perf.rfdetr_api import build_module
from perf.rfdetr_fit import (
    NEVER,
    averagings,
    build_fit,
    forwards_counted,
    loader_workers,
    matching_watched,
    run_fit,
    write_fit_data,
)
from perf.rfdetr_steering import steered
from perf.shapes import ANNOTATIONS

# Of rfdetr's own imports, and Lightning's advice.
pytestmark = pytest.mark.filterwarnings("default")

CASE = Case(config="nano", lane="cpu", batch_size=2, workers=0, measure="fit", accumulate=3)


def test_images_are_listed_as_often_as_the_updates_need_with_ids_of_their_own(tmp_path: Path) -> None:
    root = write_fit_data(tmp_path, CASE, updates=16)

    data = read_data_set(root)
    listed = json.loads((root / "train" / ANNOTATIONS).read_text(encoding="utf-8"))
    assert len(data.train.images) == len({image.id for image in data.train.images}) == 96
    assert len({image.path for image in data.train.images}) == 32
    assert (
        len({one["id"] for one in listed["annotations"]})
        == len(listed["annotations"])
        == 3 * (len([one for one in data.train.annotations if one.image < 32]))
    )
    assert len(data.valid.images) == 4


def test_a_second_fit_writes_the_set_anew(tmp_path: Path) -> None:
    write_fit_data(tmp_path, CASE, updates=16)

    assert len(read_data_set(write_fit_data(tmp_path, CASE, updates=5)).train.images) == 32


def test_keypoints_need_a_set_that_has_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keypoint-preview-cpu-b2-fit: the generated data set has no keypoints"):
        write_fit_data(tmp_path, Case(config="keypoint-preview", lane="cpu", batch_size=2, measure="fit"), 5)


def test_a_fit_is_rfdetr_s_own_but_for_checkpoints(tmp_path: Path) -> None:
    data = read_data_set(write_fit_data(tmp_path, CASE, updates=5))
    with steered(CASE):
        built = build_fit(CASE, data, tmp_path / "out", updates=7, val_batches=2)

    trainer = built.trainer
    assert (trainer.max_steps, trainer.accumulate_grad_batches, trainer.limit_val_batches) == (7, 3, 2)
    assert (trainer.val_check_interval, trainer.log_every_n_steps) == (NEVER, 50)
    assert {type(one).__name__ for one in trainer.callbacks} >= {"RFDETREMACallback", "COCOEvalCallback"}
    assert not [one for one in trainer.callbacks if any("Checkpoint" in kind.__name__ for kind in type(one).__mro__)]
    assert built.model_config.num_classes == data.classes
    assert "no checkpoint is written" in built.adaptations[-1]


def test_a_set_that_rfdetr_does_not_take_is_named_with_the_reason(tmp_path: Path) -> None:
    data = read_data_set(write_fit_data(tmp_path, CASE, updates=5))
    with steered(CASE):
        built = build_fit(CASE, data, tmp_path / "out", updates=1, val_batches=1)
        (data.root / "valid" / ANNOTATIONS).write_text("[", encoding="utf-8")
        with pytest.raises(ValueError, match=f"rfdetr does not take the data set {data.root} for this case: "):
            run_fit(built, data, [])


@pytest.fixture(scope="module")
def criterion(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_module(CASE, tmp_path_factory.mktemp("out")).module.criterion


def outputs() -> dict[str, Any]:
    layer = {"pred_logits": torch.randn(2, 100, 81), "pred_boxes": torch.rand(2, 100, 4)}
    return {**layer, "aux_outputs": [layer], "enc_outputs": layer}


TARGETS = [{"labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])} for _ in range(2)]


def test_watching_the_matcher_changes_neither_its_path_nor_its_class(criterion: Any) -> None:
    kind, calls = type(criterion.matcher), list[str]()
    names = [name for name in ("forward", "_match_many") if name in vars(kind)]
    before = {name: vars(kind)[name] for name in names}

    with matching_watched(criterion, lambda: calls.append("in"), lambda: calls.append("out")):
        assert all(vars(kind)[name] is not before[name] for name in names)
        criterion(outputs(), TARGETS)

    assert {name: vars(kind)[name] for name in names} == before
    # All layers at once, and what that needs before; one by one it would be three times the forward.
    assert calls == ["in", "out"] * 2


def test_a_matcher_that_raises_is_left(criterion: Any) -> None:
    calls: list[str] = []
    with (
        matching_watched(criterion, lambda: calls.append("in"), lambda: calls.append("out")),
        pytest.raises(KeyError),
    ):
        criterion.matcher({}, TARGETS)

    assert calls == ["in", "out"]


def test_models_that_run_in_evaluation_are_told_apart_and_nothing_stays_on_them() -> None:
    trained, averaged = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    average = SimpleNamespace(module=SimpleNamespace(model=averaged), n_averaged=torch.tensor(3))
    trainer = SimpleNamespace(callbacks=[SimpleNamespace(_average_model=average), object()], train_dataloader=None)
    built: Any = SimpleNamespace(module=SimpleNamespace(model=trained), trainer=trainer)
    calls: list[str] = []
    with forwards_counted(built, calls):
        trained(torch.ones(1))  # in training: no validation's
        averaged.eval()(torch.ones(1))
        trained.eval()(torch.ones(1))
    averaged(torch.ones(1))

    assert calls == ["averaged", "trained"]
    assert averagings(trainer) == 3
    assert averagings(SimpleNamespace(callbacks=[object()])) == 0
    assert loader_workers(trainer) == 0
    assert loader_workers(SimpleNamespace(train_dataloader=SimpleNamespace(num_workers=2))) == 2
