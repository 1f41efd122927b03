"""The pieces of a training, on the real rfdetr; tests/e2e/test_convergence.py runs it to the end."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perf.annotations import DataSet, Image, Split
from perf.case import Case
from perf.dataset import read_data_set
from perf.probes.convergence import Curve, converge
from perf.probes.input_pipeline import one_thread
from perf.recipe import recipe_of, write_data
from perf.rfdetr_api import build_module
from perf.rfdetr_configs import More
from perf.rfdetr_steering import steered
from perf.rfdetr_train import build_training, detections_of, most_detections, postprocessed, shipped_score, train
from perf.scoring import Detection

# Of rfdetr's own imports, and Lightning's advice.
pytestmark = pytest.mark.filterwarnings("default")

CASE = Case(config="nano", lane="cpu", batch_size=4, workers=0, measure="convergence", steps=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return read_data_set(write_data(tmp_path_factory.mktemp("data"), recipe_of(CASE)))


def test_a_training_goes_by_the_recipe_and_keeps_all_of_rfdetr_s_callbacks_but_checkpoints(
    data: DataSet, tmp_path: Path
) -> None:
    with steered(CASE):
        built = build_training(CASE, recipe_of(CASE), data, tmp_path, seed=3)

    config, trainer = built.train_config, built.trainer
    assert (config.lr, config.lr_encoder, config.lr_scheduler, config.seed) == (1.6e-3, 1.6e-3, "cosine", 3)
    assert (config.use_ema, built.resolution, built.model_config.num_classes) == (True, 64, 4)
    assert (trainer.max_steps, trainer.max_epochs) == (2, -1)
    assert {type(one).__name__ for one in trainer.callbacks} >= {"RFDETREMACallback", "COCOEvalCallback"}
    assert not [one for one in trainer.callbacks if any("Checkpoint" in kind.__name__ for kind in type(one).__mro__)]
    assert most_detections(built) == 500


@pytest.mark.parametrize("config", ["seg-nano", "keypoint-preview"])
def test_only_boxes_are_scored(config: str, data: DataSet, tmp_path: Path) -> None:
    case = CASE.model_copy(update={"config": config})

    with pytest.raises(ValueError, match="only boxes are scored; train a detection config"):
        build_training(case, recipe_of(case), data, tmp_path, seed=0)


def slots_with_a_box(queries: int, *, training: bool, folder: Path) -> list[int]:
    """Return which of the decoder's queries a new model of 16 patches and 2 groups starts from a proposed box.

    The others start from learned points, which are 0 in a new model.
    """
    from rfdetr.utilities.tensors import NestedTensor

    seen: list[Any] = []
    more = More({**recipe_of(CASE).model, "num_queries": queries, "num_select": queries, "group_detr": 2})
    model = build_module(CASE, folder, more=more).module.model.train(training)
    model.transformer.decoder.register_forward_pre_hook(
        lambda _, __, named: seen.append(named["refpoints_unsigmoid"][0]), with_kwargs=True
    )
    image = NestedTensor(torch.randn(1, 3, 64, 64), torch.zeros(1, 64, 64, dtype=torch.bool))
    with one_thread(), torch.no_grad():
        model(image, [{"boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]]), "labels": torch.tensor([1])}])
    found: list[int] = seen[0].abs().sum(-1).nonzero().flatten().tolist()
    return found


@pytest.mark.parametrize(("queries", "misplaced"), [(16, []), (50, list(range(16, 32)))])
def test_with_fewer_patches_than_queries_groups_take_each_other_s_places(
    queries: int, misplaced: list[int], tmp_path: Path
) -> None:
    """Once this fails for 50 queries rfdetr has mended it, and build_training need not refuse such a recipe."""
    trained, scored = (slots_with_a_box(queries, training=training, folder=tmp_path) for training in (True, False))
    first_group = [slot for slot in trained if slot < queries]

    assert scored == list(range(16))
    assert [slot for slot in first_group if slot not in scored] == misplaced


def test_fewer_patches_than_queries_are_refused(data: DataSet, tmp_path: Path) -> None:
    recipe = recipe_of(CASE)
    narrow = dataclasses.replace(recipe, model={**recipe.model, "num_queries": 17, "num_select": 17})

    with steered(CASE), pytest.raises(ValueError, match="64 px are 16 patches, fewer than the 17 queries"):
        build_training(CASE, narrow, data, tmp_path, seed=0)


def test_a_fit_steps_as_often_as_it_is_told_and_the_same_seed_learns_the_same(data: DataSet, tmp_path: Path) -> None:
    first, again, other = (losses(data, tmp_path / str(index), seed) for index, seed in enumerate((0, 0, 1)))

    assert len(first) == 2
    assert first == again
    assert first != other


def losses(data: DataSet, folder: Path, seed: int) -> list[float]:
    """Return the losses of a real training, and check that its postprocess was seen and its metrics were written."""
    from pytorch_lightning import Callback

    found: list[float] = []

    class Note(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            found.append(float(outputs["loss"]))

    with one_thread(), steered(CASE):
        built = build_training(CASE, recipe_of(CASE), data, folder, seed)
        with postprocessed(built) as calls:
            train(built, [Note()])
        assert [len(call) for call in calls] == [4, 4]
        assert 0 <= shipped_score(built.trainer) <= 1
        assert (folder / "metrics.csv").is_file()
    return found


@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_training_on_other_images_than_those_that_were_checked_ends_before_its_first_step(
    data: DataSet, tmp_path: Path, name: str
) -> None:
    split: Split = getattr(data, name)
    change: Any = {name: dataclasses.replace(split, images=split.images[1:])}
    fewer = dataclasses.replace(data, **change)
    curve = Curve()

    with one_thread(), steered(CASE):
        built = build_training(CASE, recipe_of(CASE), fewer, tmp_path, seed=0)
    with one_thread(), steered(CASE), pytest.raises(RuntimeError) as told:
        converge(built, fewer, curve, tmp_path / "curve.json", lambda _: None)

    assert str(told.value).startswith(f"rfdetr reads 4 images for {name}, and not the 3 of {split.file}")
    assert str(split.images[0].path.resolve()) in str(told.value)
    assert curve.steps == 0


def test_an_interrupt_in_a_fit_stays_one(data: DataSet, tmp_path: Path) -> None:
    from pytorch_lightning import Callback

    class Interrupt(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *_: Any) -> None:
            raise KeyboardInterrupt

    with steered(CASE), pytest.raises(KeyboardInterrupt):
        train(build_training(CASE, recipe_of(CASE), data, tmp_path, seed=0), [Interrupt()])


RESULT = {
    "boxes": torch.tensor([[1.0, 2.0, 11.0, 22.0], [0.0, 0.0, 4.0, 4.0]]),
    "scores": torch.tensor([0.75, 0.5]),
    "labels": torch.tensor([0, 5]),
}


def a_trainer(file_name: str, root: str, label2cat: dict[int, int] | None) -> Any:
    coco = SimpleNamespace(imgs={4: {"file_name": file_name}})
    if label2cat is not None:
        coco.label2cat = label2cat
    return SimpleNamespace(datamodule=SimpleNamespace(_dataset_val=SimpleNamespace(coco=coco, root=root)))


@pytest.mark.parametrize("absolute", [True, False])
def test_rfdetr_s_numbers_become_those_of_the_files(absolute: bool, tmp_path: Path) -> None:
    split = Split("valid", tmp_path, [Image(9, tmp_path / "a.png", 64, 48)], [])
    data = DataSet(tmp_path, "yolo" if absolute else "roboflow", {7: "cell"}, split, split, "")
    name = str(tmp_path / "a.png") if absolute else "a.png"
    trainer = a_trainer(name, str(tmp_path), None if absolute else {0: 7})

    found = detections_of(trainer, data, [{"image_id": torch.tensor([4])}], [RESULT])

    known, unknown = (0, 5) if absolute else (7, -6)
    assert found == [Detection(9, known, (1, 2, 10, 20), 0.75), Detection(9, unknown, (0, 0, 4, 4), 0.5)]
