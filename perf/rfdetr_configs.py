"""What a case is to rfdetr: its model config and its training config, reduced on the cpu lane, and what it learns.

Releases name things differently: up to 1.10.1 multi-scale has two booleans, from 1.11.0 one enumeration.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.case import Case
from perf.configs import config_name

# DINOv2 is fetched from a hub when both hold (rfdetr/models/backbone/dinov2.py); Base is such a config.
_DINOV2_PATCH = 14
_DINOV2_IMAGE = 518
# The cpu lane's sizes: small enough for 2 cores, every part of the step still there.
_REDUCED_RESOLUTION = 128
_COCO_CLASSES = 80
_REDUCED = {"group_detr": 2, "num_queries": 50, "num_select": 50, "dec_layers": 1}


@dataclass(frozen=True)
class Task:
    """What a config learns, and so what its targets hold.

    Labels lie in 0 ... ``classes`` - 1. ``masks`` says whether there is one mask a box, ``keypoints`` how many
    keypoints a box has; 0 for none.
    """

    classes: int
    masks: bool
    keypoints: int


@dataclass(frozen=True)
class More:
    """Arguments more for rfdetr's model config, its training config and its trainer; they win over the case's."""

    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)


NOTHING_MORE = More()


def version() -> str:
    """Return the version of the rfdetr that is installed, without importing it."""
    from importlib.metadata import version as installed

    return installed("rfdetr")


def shipped_configs() -> dict[str, type]:
    """Return the model configs that this release of rfdetr ships, by the names of :mod:`perf.configs`."""
    import rfdetr.config

    root = rfdetr.config.ModelConfig
    classes = [found for found in vars(rfdetr.config).values() if isinstance(found, type) and issubclass(found, root)]
    return {config_name(cls.__name__): cls for cls in classes if cls is not root and not cls.__name__.startswith("_")}


def shipped_resolution(case: Case) -> int:
    """Return the side in px of the square that the config of ``case`` is shipped with, on any lane."""
    return int(_default(_config_class(case), "resolution"))


def shipped_resolutions() -> list[int]:
    """Return the sides in px that this release ships configs with, smallest first."""
    return sorted({int(_default(config, "resolution")) for config in shipped_configs().values()})


def task_of(case: Case) -> Task:
    """Return what the config of ``case`` learns.

    Raises:
        ValueError: this rfdetr has no such config.
    """
    config = _config_class(case)
    keypoints = _default(config, "num_keypoints_per_class") if _default(config, "use_grouppose_keypoints") else []
    # rfdetr fits a keypoint model to its data set's classes: those of the keypoint schema. Else COCO's 80.
    classes = len(keypoints) or _COCO_CLASSES
    return Task(classes, masks=_default(config, "segmentation_head"), keypoints=max(keypoints, default=0))


def build_configs(case: Case, output_dir: Path, more: More = NOTHING_MORE) -> tuple[Any, Any]:
    """Return rfdetr's model config and training config of ``case``.

    Raises:
        ValueError: this rfdetr has no such config or setting.
    """
    config = _config_class(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rfdetr warns that random weights are random
        model_config = config(**{**_model_fields(case, config), **more.model})
        return model_config, _train_config(case, output_dir, more.train)


def _config_class(case: Case) -> Any:
    configs = shipped_configs()
    if case.config not in configs:
        msg = f"rfdetr {version()} ships no config {case.config!r}; it has: {', '.join(configs)}"
        raise ValueError(msg)
    return configs[case.config]


def _model_fields(case: Case, config: Any) -> dict[str, Any]:
    """Return the model config's arguments for ``case``; ``config`` is its class."""
    fields: dict[str, Any] = {
        "num_classes": task_of(case).classes,
        "device": "cuda" if case.lane == "gpu" else "cpu",
        "compile": case.compile,
    }
    if case.cuda_graphs:
        fields["cuda_graphs"] = _required(config, "cuda_graphs", True)
    if case.lane == "cpu":
        fields |= _reduced_fields(config)
    if not _asks_the_hub(config, fields):
        fields["pretrain_weights"] = None
    return fields


def _required(config: Any, name: str, value: Any) -> Any:
    """Return ``value``, or raise ValueError where this release's ``config`` has no field ``name``."""
    if name not in config.model_fields:
        msg = f"rfdetr {version()} has no {config.__name__}.{name}; run another case, or a newer rfdetr"
        raise ValueError(msg)
    return value


def _default(config: Any, name: str) -> Any:
    return config.model_fields[name].get_default(call_default_factory=True)


def _reduced_fields(config: Any) -> dict[str, Any]:
    patch, windows = _default(config, "patch_size"), _default(config, "num_windows")
    block = patch * windows
    resolution = block * max(1, round(_REDUCED_RESOLUTION / block))
    # As shipped, the positional encoding fits the resolution exactly, so it is not interpolated.
    return {**_REDUCED, "resolution": resolution, "positional_encoding_size": resolution // patch}


def _asks_the_hub(config: Any, fields: dict[str, Any]) -> bool:
    patch = _default(config, "patch_size")
    size = fields.get("positional_encoding_size", _default(config, "positional_encoding_size"))
    return bool(patch == _DINOV2_PATCH and patch * size == _DINOV2_IMAGE)


def _train_config(case: Case, output_dir: Path, more: Mapping[str, Any]) -> Any:
    import rfdetr.config

    task, config = task_of(case), rfdetr.config.TrainConfig
    if task.masks:
        config = rfdetr.config.SegmentationTrainConfig
    elif task.keypoints:
        config = rfdetr.config.KeypointTrainConfig
    return config(**{**_train_fields(case, config, output_dir), **more})


def _train_fields(case: Case, config: Any, output_dir: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "dataset_dir": str(output_dir),
        "output_dir": str(output_dir),
        "batch_size": case.batch_size,
        "grad_accum_steps": 1,
        "num_workers": case.workers,
        "expanded_scales": case.expanded_scales,
        "square_resize_div_64": case.square,
        "devices": case.devices,
        "num_nodes": case.nodes,
        "strategy": case.strategy,
        "tensorboard": False,
        "progress_bar": None,
        "run_test": False,
    }
    if case.augmentation != "cpu":
        fields["augmentation_backend"] = case.augmentation
    if case.precision != "auto":
        fields["amp_dtype"] = None if case.precision == "fp32" else case.precision
    return {**fields, **_multi_scale_fields(case, config)}


def _multi_scale_fields(case: Case, config: Any) -> dict[str, Any]:
    # Up to 1.10.1 two booleans, from 1.11.0 one enumeration with these very values.
    if "do_random_resize_via_padding" not in config.model_fields:
        return {"multi_scale": case.multi_scale}
    return {
        "multi_scale": case.multi_scale != "off",
        "do_random_resize_via_padding": case.multi_scale == "per-sample",
    }
