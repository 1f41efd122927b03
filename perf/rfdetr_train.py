"""The part of :mod:`perf.rfdetr_api` that trains: the pieces that ``RFDETR.train`` itself puts together, run for a
fixed number of steps from random weights.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perf.annotations import DataSet
from perf.case import Case
from perf.recipe import Recipe
from perf.rfdetr_api import Built, build
from perf.rfdetr_configs import More, task_of
from perf.rfdetr_steering import ctrl_c_kept
from perf.scoring import Detection

# What the evaluator of rfdetr calls its scores; the weights that it ships are the averaged ones, where there are such.
SHIPPED_KEYS = ("val/ema_mAP_50_95", "val/mAP_50_95")
METRICS_FILE = "metrics.csv"


def build_training(case: Case, recipe: Recipe, data: DataSet, output_dir: Path, seed: int) -> Built:
    """Build what trains ``case`` on ``data``: all of rfdetr's own callbacks but those that write checkpoints.

    Raises:
        ValueError: this rfdetr has no such config or setting, or the config learns more than boxes.
    """
    task = task_of(case)
    if task.masks or task.keypoints:
        msg = f"{case.id}: only boxes are scored; train a detection config"
        raise ValueError(msg)
    trainer = {
        "max_epochs": -1,
        "max_steps": recipe.steps,
        "val_check_interval": recipe.every,
        "check_val_every_n_epoch": None,
        "num_sanity_val_steps": 0,  # up to 1.9.4 rfdetr would score before the first step
        "log_every_n_steps": 10,
    }
    more = More({"num_classes": data.classes, **recipe.model}, _train_fields(recipe, data, seed), trainer)
    built = build(case, output_dir, seed, more)
    _check_places(built)
    # They would write hundreds of megabytes that nobody reads.
    built.trainer.callbacks = [one for one in built.trainer.callbacks if not _is_checkpoint(one)]
    return built


def _train_fields(recipe: Recipe, data: DataSet, seed: int) -> dict[str, Any]:
    return {
        "dataset_dir": str(data.root),
        # rfdetr tells Roboflow's two layouts apart itself, and takes YOLO's for one of them.
        "dataset_file": "coco" if data.layout == "coco" else "roboflow",
        "seed": seed,
        "lr": recipe.lr,
        "lr_encoder": recipe.lr,
        "lr_scheduler": "cosine",
        # One epoch stands for the whole run, so that the warm-up is a share of it; the trainer goes by steps.
        "epochs": 1,
        "warmup_epochs": recipe.warmup,
        "train_log_on_step": True,
        **recipe.train,
    }


def _check_places(built: Built) -> None:
    """Raise ValueError where an image has fewer patches than the model has queries.

    Then rfdetr gives the boxes that its encoder proposes for one group of queries to another while it trains, and mAP
    falls though the loss does: docs/convergence.md.
    """
    config = built.model_config
    patches = (config.resolution // config.patch_size) ** 2
    if config.two_stage and config.group_detr > 1 and patches < config.num_queries:
        msg = (
            f"{built.case.id}: {config.resolution} px are {patches} patches, fewer than the {config.num_queries} "
            f"queries: rfdetr's query groups take each other's places then; raise resolution or lower num_queries"
        )
        raise ValueError(msg)


def _is_checkpoint(callback: Any) -> bool:
    from pytorch_lightning.callbacks import Checkpoint

    return isinstance(callback, Checkpoint)


def train(built: Built, callbacks: Iterable[Any]) -> None:
    """Run rfdetr's own ``fit`` to the last step, with Lightning ``callbacks`` more, which are called after rfdetr's."""
    from rfdetr.training import RFDETRDataModule

    built.trainer.callbacks.extend(callbacks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        with ctrl_c_kept():
            built.trainer.fit(built.module, datamodule=RFDETRDataModule(built.model_config, built.train_config))


def check_images(trainer: Any, data: DataSet) -> None:
    """Raise RuntimeError where rfdetr reads other images than those of ``data``, which were checked.

    Releases differ in where they look for a YOLO set's splits, and in what they leave out.
    """
    module = trainer.datamodule
    for split, dataset in ((data.train, module._dataset_train), (data.valid, module._dataset_val)):
        named = (Path(image["file_name"]) for image in dataset.coco.imgs.values())
        theirs, ours = {_path_of(path, dataset, data) for path in named}, {i.path.resolve() for i in split.images}
        if theirs != ours:
            msg = (
                f"rfdetr reads {len(theirs)} images for {split.name}, and not the {len(ours)} of {split.file}: "
                f"{min(theirs ^ ours)} is only in one of them"
            )
            raise RuntimeError(msg)


@contextlib.contextmanager
def postprocessed(built: Built) -> Iterator[list[list[dict[str, Any]]]]:
    """Yield a list that gets what each call of rfdetr's postprocess returns: one dict of tensors an image.

    rfdetr calls it once or, where it scores both the plain and the averaged weights, twice a batch, the averaged last.
    """
    calls: list[list[dict[str, Any]]] = []
    handle = built.module.postprocess.register_forward_hook(lambda _, __, results: calls.append(results))
    try:
        yield calls
    finally:
        handle.remove()


def shipped_score(trainer: Any) -> float:
    """Return the mAP (0 to 1) that rfdetr's own evaluator gave to the weights that it would ship.

    Raises:
        RuntimeError: it logged none.
    """
    for key in SHIPPED_KEYS:
        if key in trainer.callback_metrics:
            return float(trainer.callback_metrics[key])
    msg = f"rfdetr logged no {' or '.join(SHIPPED_KEYS)}: {', '.join(trainer.callback_metrics)}"
    raise RuntimeError(msg)


def most_detections(built: Built) -> int:
    """Return how many detections an image rfdetr's evaluator scores at most."""
    return int(built.train_config.eval_max_dets)


def detections_of(
    trainer: Any, data: DataSet, targets: Iterable[Any], results: Iterable[dict[str, Any]]
) -> list[Detection]:
    """Return rfdetr's results of some images, as the data set's own files number images and categories.

    Labels are rfdetr's indices; what they stand for is what its data set says.
    """
    coco = trainer.datamodule._dataset_val.coco
    categories = getattr(coco, "label2cat", None)
    ids = {image.path.resolve(): image.id for image in data.valid.images}
    found: list[Detection] = []
    for target, result in zip(targets, results, strict=True):
        named = Path(coco.imgs[int(target["image_id"])]["file_name"])
        image = ids[_path_of(named, trainer.datamodule._dataset_val, data)]
        found += _detections(image, result, categories)
    return found


def _path_of(named: Path, dataset: Any, data: DataSet) -> Path:
    if named.is_absolute() or data.layout == "yolo":
        return named.resolve()
    return (Path(dataset.root) / named).resolve()


def _detections(image: int, result: dict[str, Any], categories: dict[int, int] | None) -> Iterator[Detection]:
    columns = (result[name].detach().float().cpu().tolist() for name in ("boxes", "scores", "labels"))
    for (left, top, right, bottom), score, label in zip(*columns, strict=True):
        # A label of no category is a class that the head has and the data set has not.
        category = int(label) if categories is None else categories.get(int(label), -1 - int(label))
        yield Detection(image, category, (left, top, right - left, bottom - top), score)
