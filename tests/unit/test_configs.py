from __future__ import annotations

from pathlib import Path

import pytest

from perf import configs
from perf.configs import KNOWN, config_name, config_names, model_classes


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("RFDETRNanoConfig", "nano"),
        ("RFDETRLargeDeprecatedConfig", "large-deprecated"),
        ("RFDETRSegXLargeConfig", "seg-xlarge"),
        ("RFDETRSeg2XLargeConfig", "seg-2xlarge"),
        ("RFDETRKeypointPreviewConfig", "keypoint-preview"),
    ],
)
def test_a_class_has_a_short_name(cls: str, name: str) -> None:
    assert config_name(cls) == name


def test_the_installed_release_ships_what_is_known() -> None:
    assert config_names() == KNOWN


SOURCE = """
class ModelConfig(BaseConfig): ...
class TrainConfig(BaseConfig): ...
class RFDETRBaseConfig(ModelConfig): ...
class RFDETRNanoConfig(RFDETRBaseConfig): ...
class RFDETRTinyConfig(config.RFDETRBaseConfig): ...
class _Internal(ModelConfig): ...
class RFDETRDeepConfig(_Internal): ...
"""


def test_descendants_of_the_model_config_are_configs() -> None:
    assert model_classes(SOURCE) == ["RFDETRBaseConfig", "RFDETRNanoConfig", "RFDETRTinyConfig", "RFDETRDeepConfig"]


def test_a_new_config_comes_after_the_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.py"
    path.write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(configs, "installed_source", lambda: path)
    assert config_names() == ("nano", "base", "deep", "tiny")


def test_without_an_rfdetr_the_known_ones_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "installed_source", lambda: None)
    assert config_names() == KNOWN
