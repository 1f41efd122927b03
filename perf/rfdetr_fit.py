"""The part of :mod:`perf.rfdetr_api` that fits as users do: rfdetr's own trainer, data module and callbacks, and where
its matching can be watched.
"""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from perf.annotations import DataSet
from perf.case import Case
from perf.record import write_atomically
from perf.rfdetr_api import Built, build
from perf.rfdetr_configs import More, task_of
from perf.rfdetr_steering import ctrl_c_kept
from perf.shapes import ANNOTATIONS, MANIFEST, ShapesSpec, write_shapes

ADAPTATION = "no checkpoint is written: rfdetr's own checkpoint callbacks are left out"
# Validation is asked for batch by batch, by the probe; until then it never comes.
NEVER = 2**62
# The images of one generated set; listed again where a fit needs more. The gpu lane's are of COCO's usual size, and an
# uncompressed one takes 0.9 MB.
SPECS = {
    "cpu": ShapesSpec(images_train=32, images_valid=4),
    "gpu": ShapesSpec(images_train=128, images_valid=64, scale=4),
}


def write_fit_data(folder: Path, case: Case, updates: int) -> Path:
    """Write a generated data set below ``folder`` that lasts ``case`` for ``updates`` updates; return its own folder.

    A training image is listed as often as it takes, under other ids: else an epoch would end amid what is measured.

    Raises:
        ValueError: the config learns keypoints, which the generated set has not.
    """
    if task_of(case).keypoints:
        msg = f"{case.id}: the generated data set has no keypoints; measure a step of this config instead"
        raise ValueError(msg)
    spec = SPECS[case.lane]
    root = write_shapes(folder, spec)
    wanted = updates * case.batch_size * case.accumulate
    list_again(root / "train" / ANNOTATIONS, -(-wanted // spec.images_train))
    (root / MANIFEST).unlink()  # it is that spec's no longer
    return root


def list_again(path: Path, times: int) -> None:
    """List every image of the annotation file at ``path`` so many times, under other ids."""
    found = json.loads(path.read_text(encoding="utf-8"))
    images, annotations = found["images"], found["annotations"]
    found["images"] = [{**one, "id": k * len(images) + one["id"]} for k in range(times) for one in images]
    found["annotations"] = [
        {**one, "id": k * len(annotations) + one["id"], "image_id": k * len(images) + one["image_id"]}
        for k in range(times)
        for one in annotations
    ]
    write_atomically(path, json.dumps(found) + "\n")


def build_fit(case: Case, data: DataSet, output_dir: Path, updates: int, val_batches: int, seed: int = 0) -> Built:
    """Build what fits ``case`` to ``data`` for at most ``updates``: rfdetr's defaults and callbacks, no checkpoints.

    ``val_batches`` is the most that a validation takes.

    Raises:
        ValueError: this rfdetr has no such config or setting.
    """
    trainer = {
        "max_epochs": -1,
        "max_steps": updates,
        "val_check_interval": NEVER,
        "check_val_every_n_epoch": None,
        "limit_val_batches": val_batches,
        "num_sanity_val_steps": 0,  # up to 1.9.4 rfdetr would score before the first step
    }
    train = {
        "dataset_dir": str(data.root),
        # rfdetr tells Roboflow's two layouts apart itself, and takes YOLO's for one of them.
        "dataset_file": "coco" if data.layout == "coco" else "roboflow",
        "grad_accum_steps": case.accumulate,
        "epochs": 1,  # of which the trainer knows nothing: it goes by updates
    }
    built = build(case, output_dir, seed, More({"num_classes": data.classes}, train, trainer))
    built.trainer.callbacks = [one for one in built.trainer.callbacks if not _is_checkpoint(one)]
    built.adaptations.append(ADAPTATION)
    return built


def _is_checkpoint(callback: Any) -> bool:
    from pytorch_lightning.callbacks import Checkpoint

    return isinstance(callback, Checkpoint)


def run_fit(built: Built, data: DataSet, callbacks: Iterable[Any]) -> None:
    """Run rfdetr's own ``fit`` with its own data module, and Lightning ``callbacks`` more, which are called last.

    Raises:
        ValueError: rfdetr rejects the data set; says which and why.
    """
    from rfdetr.training import RFDETRDataModule

    class Told(RFDETRDataModule):
        def setup(self, stage: str) -> None:
            try:
                super().setup(stage)
            except Exception as error:
                msg = f"rfdetr does not take the data set {data.root} for this case: {type(error).__name__}: {error}"
                raise ValueError(msg) from error

    built.trainer.callbacks.extend(callbacks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        with ctrl_c_kept():
            built.trainer.fit(built.module, datamodule=Told(built.model_config, built.train_config))


def loader_workers(trainer: Any) -> int:
    """Return how many processes read for the training loader that is in use; 0 where there is none of torch's."""
    return int(getattr(trainer.train_dataloader, "num_workers", 0))


def averagings(trainer: Any) -> int:
    """Return how often the weights were averaged so far; 0 without EMA."""
    return sum(int(average.n_averaged) for average in _averages(trainer))


def _averages(trainer: Any) -> list[Any]:
    found = (getattr(callback, "_average_model", None) for callback in trainer.callbacks)
    return [average for average in found if average is not None]


@contextlib.contextmanager
def forwards_counted(built: Built, calls: list[str]) -> Iterator[None]:
    """Add to ``calls`` which model runs in evaluation mode, ``trained`` or ``averaged``, each time that one does."""
    named = [("trained", built.module.model)]
    named += [("averaged", average.module.model) for average in _averages(built.trainer)]

    def noting(name: str) -> Callable[..., None]:
        return lambda model, _: None if model.training else calls.append(name)

    handles = [model.register_forward_pre_hook(noting(name)) for name, model in named]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# What the module has for CUDA graphs without Inductor, from the release that has them on.
GRAPH_RUNNER = "_cuda_graph_runner"

# From 1.10.0 the criterion matches all layers by _match_many, and asks what it needs before; a hook on the matcher
# would have it fall back to one layer at a time.
_MATCHING = ("forward", "_match_many", "_precompute_target_side_safety")


@contextlib.contextmanager
def matching_watched(criterion: Any, enter: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Call ``enter`` and ``leave`` around what ``criterion`` has its matcher do, without changing which path it takes.

    The functions of the class are wrapped: rfdetr compares them with the class's own, and looks for hooks.
    """
    with contextlib.ExitStack() as stack:
        for name in _MATCHING:
            owner = next((kind for kind in type(criterion.matcher).__mro__ if name in vars(kind)), None)
            if owner is not None:
                stack.enter_context(mock.patch.object(owner, name, _around(vars(owner)[name], enter, leave)))
        yield


def _around(found: Any, enter: Callable[[], None], leave: Callable[[], None]) -> Any:
    if isinstance(found, staticmethod | classmethod):
        return type(found)(_around(found.__func__, enter, leave))

    @functools.wraps(found)
    def watched(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            return found(*args, **kwargs)
        finally:
            leave()

    return watched
