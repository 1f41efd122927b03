"""What a case is to the rfdetr of this environment. tests/releases asks the older ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from perf.case import Case, MultiScale
from perf.configs import config_names
from perf.rfdetr_configs import build_configs, shipped_configs, task_of

if importlib.util.find_spec("rfdetr") is None:
    pytest.skip("needs rfdetr", allow_module_level=True)


def cpu_case(config: str = "nano", **changes: Any) -> Case:
    return Case(config=config, lane="cpu", batch_size=1, **changes)


@pytest.mark.parametrize("mode", ["off", "per-batch", "per-sample"])
def test_multi_scale_is_what_the_case_says(mode: MultiScale, tmp_path: Path) -> None:
    _, config = build_configs(cpu_case(multi_scale=mode), tmp_path)

    assert config.multi_scale.value == mode


def test_a_config_that_this_rfdetr_lacks_lists_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"rfdetr \d.* ships no config 'tiny'; it has: base, .*nano, .*keypoint-preview$"
    ):
        build_configs(cpu_case("tiny"), tmp_path)


def test_a_setting_that_this_rfdetr_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # What 1.10.1 and older look like; tests/releases asks the real ones.
    config: Any = shipped_configs()["nano"]
    monkeypatch.delitem(config.model_fields, "cuda_graphs")

    with pytest.raises(ValueError, match=r"has no RFDETRNanoConfig\.cuda_graphs; run another case, or a newer rfdetr"):
        build_configs(cpu_case(cuda_graphs=True), tmp_path)


@pytest.mark.parametrize(
    ("config", "classes", "masks", "keypoints"),
    [("base", 80, False, 0), ("seg-2xlarge", 80, True, 0), ("keypoint-preview", 1, False, 17)],
)
def test_the_task_is_read_from_the_config(config: str, classes: int, masks: bool, keypoints: int) -> None:
    task = task_of(cpu_case(config))

    assert (task.classes, task.masks, task.keypoints) == (classes, masks, keypoints)


def test_the_configs_found_without_an_import_are_those_that_the_import_finds() -> None:
    assert set(config_names()) == set(shipped_configs())


@pytest.mark.parametrize(("expanded", "square"), [(True, False), (False, True)])
def test_the_settings_of_shapes_reach_rfdetr(expanded: bool, square: bool, tmp_path: Path) -> None:
    _, config = build_configs(cpu_case(expanded_scales=expanded, square=square), tmp_path)
    assert (config.expanded_scales, config.square_resize_div_64) == (expanded, square)


@pytest.mark.parametrize(("augmentation", "backend"), [("cpu", "cpu"), ("gpu", "kornia")])
def test_augmentation_is_where_the_case_has_it(augmentation: Any, backend: str, tmp_path: Path) -> None:
    _, config = build_configs(cpu_case(measure="epoch", augmentation=augmentation), tmp_path)

    found = config.augmentation_backend
    assert getattr(found, "value", found) == backend
