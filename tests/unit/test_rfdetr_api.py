"""The real rfdetr of this environment, at the cpu lane's sizes, with the network out of reach."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from perf.case import Case
from perf.configs import KNOWN, config_name
from perf.rfdetr_api import Built, Stepper, build, build_module, fit, flags
from perf.rfdetr_configs import Task, task_of
from perf.workload import BOXES_PER_IMAGE, make_samples

if importlib.util.find_spec("rfdetr") is None:
    pytest.skip("needs rfdetr", allow_module_level=True)

# Warnings of torch, Lightning and rfdetr are theirs to settle.
pytestmark = pytest.mark.filterwarnings("default")

KINDS = ("nano", "seg-nano", "keypoint-preview", "base")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse every connection and name look-up, and fail if one was tried: a library may shrug a refusal off."""
    tried: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        tried.append(arguments)
        msg = "the test allows no network"
        raise OSError(msg)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert tried == []


def cpu_case(config: str = "nano", batch_size: int = 1, **changes: Any) -> Case:
    return Case(config=config, lane="cpu", batch_size=batch_size, **changes)


def stepped(case: Case, folder: Path, steps: int = 1) -> tuple[Built, list[tuple[Any, Any]]]:
    """Fit ``case`` for some steps; return what was built and the batches that the steps ran on."""
    built, batches = build(case, folder), []

    def body(stepper: Stepper) -> None:
        for _ in range(steps):
            batches.append(stepper.prepare())
            stepper.step(batches[-1])

    fit(built, make_samples(case, built.resolution), body)
    return built, batches


@pytest.mark.parametrize("config", KNOWN)
def test_every_shipped_config_builds_at_reduced_size(config: str, tmp_path: Path) -> None:
    built = build(cpu_case(config), tmp_path)

    block = built.model_config.patch_size * built.model_config.num_windows
    assert built.resolution % block == 0
    assert abs(built.resolution - 128) <= block / 2
    assert config_name(type(built.model_config).__name__) == config
    assert built.adaptations == []


@pytest.mark.parametrize("config", KINDS)
def test_one_config_of_each_kind_steps(config: str, tmp_path: Path) -> None:
    fresh = build_module(cpu_case(config), tmp_path).module.model.state_dict()

    built, _ = stepped(cpu_case(config), tmp_path)

    after = built.module.model.state_dict()
    assert built.trainer.global_step == 1
    assert all(value.isfinite().all() for value in after.values())
    assert sum(not value.equal(fresh[name]) for name, value in after.items()) > len(after) / 2


def test_one_seed_builds_the_same_weights(tmp_path: Path) -> None:
    one, same, other = (build_module(cpu_case(), tmp_path, seed).module.state_dict() for seed in (0, 0, 1))

    assert all(value.equal(same[name]) for name, value in one.items())
    assert not all(value.equal(other[name]) for name, value in one.items())


def test_base_at_its_full_size_asks_no_hub_and_says_so(tmp_path: Path) -> None:
    built = build_module(Case(config="base", precision="fp32"), tmp_path)

    assert built.resolution == 560
    assert len(built.adaptations) == 1
    assert "would fetch DINOv2 weights from a hub" in built.adaptations[0]


def test_the_module_of_the_gpu_lane_builds_without_a_gpu(tmp_path: Path) -> None:
    built = build_module(Case(config="nano", compile=False), tmp_path)

    assert built.resolution == 384
    assert built.adaptations == []


def test_per_batch_resizes_each_step_anew(tmp_path: Path) -> None:
    _, batches = stepped(cpu_case(multi_scale="per-batch"), tmp_path, steps=2)

    # The ladder's steps are one block of 32 pixels; which is drawn depends on the optimizer step alone.
    first, second = (tuple(samples.tensors.shape[2:]) for samples, _ in batches)
    assert first != second
    assert all(height == width and height % 32 == 0 for height, width in (first, second))


@pytest.mark.parametrize("padded", [False, True])
def test_padding_reaches_the_model(padded: bool, tmp_path: Path) -> None:
    case, batches = cpu_case(batch_size=2, padded=padded), []
    fit(build(case, tmp_path), make_samples(case, 128), lambda stepper: batches.append(stepper.prepare()))

    ((samples, targets),) = batches
    assert samples.tensors.shape == (2, 3, 128, 128)
    assert samples.no_padding is not padded
    assert samples.mask[0].any().item() is False
    assert samples.mask[1].sum().item() == (32 * 128 if padded else 0)
    assert targets[1]["size"].tolist() == [96 if padded else 128, 128]


def test_what_the_step_raises_comes_out_of_fit(tmp_path: Path) -> None:
    case, seen = cpu_case(), KeyError("seen")
    built = build(case, tmp_path)

    def body(stepper: Stepper) -> None:
        raise seen

    with pytest.raises(KeyError) as caught:
        fit(built, make_samples(case, built.resolution), body)

    assert caught.value is seen


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_and_an_exit_come_out_of_fit_as_what_they_are(tmp_path: Path, end: type[BaseException]) -> None:
    built = build(cpu_case(), tmp_path)

    def body(stepper: Stepper) -> None:
        raise end

    with pytest.raises(end):
        fit(built, make_samples(cpu_case(), built.resolution), body)


def test_padding_a_single_image_is_refused() -> None:
    with pytest.raises(ValueError, match="nano-cpu-b1-padded: padding needs a batch of at least 2"):
        make_samples(cpu_case(padded=True), 128)


def by_rfdetr(task: Task, size: int) -> dict[str, Any]:
    """Return the target that rfdetr's own data set makes of one COCO annotation."""
    from PIL import Image
    from rfdetr.datasets.coco import ConvertCoco
    from rfdetr.datasets.transforms import Normalize

    annotation = {
        "bbox": [10, 20, 30, 40],
        "category_id": 0,
        "area": 1200,
        "iscrowd": 0,
        "segmentation": [[10, 20, 40, 20, 40, 60]],
        "keypoints": [15, 25, 2] * 17,
    }
    convert = ConvertCoco(
        include_masks=task.masks, include_keypoints=task.keypoints > 0, num_keypoints_per_class=[task.keypoints]
    )
    _, target = convert(Image.new("RGB", (size, size)), {"image_id": 3, "annotations": [annotation]})
    target = Normalize()(torch.zeros(3, size, size), target)[1]
    assert isinstance(target, dict)
    return target


@pytest.mark.parametrize("config", ["nano", "seg-nano", "keypoint-preview"])
def test_targets_are_what_rfdetr_s_own_data_set_gives(config: str) -> None:
    case = cpu_case(config)
    theirs = by_rfdetr(task_of(case), 128)

    (_, ours), *_ = make_samples(case, 128)

    assert {name: value.dtype for name, value in ours.items()} == {name: value.dtype for name, value in theirs.items()}
    for name, value in ours.items():
        per_box = theirs[name].shape[:1] == (1,) and name != "image_id"
        assert value.shape == ((BOXES_PER_IMAGE, *theirs[name].shape[1:]) if per_box else theirs[name].shape)


@pytest.mark.parametrize("config", ["nano", "seg-nano", "keypoint-preview"])
def test_samples_are_the_same_for_one_seed(config: str) -> None:
    case = cpu_case(config, batch_size=2)
    one, same, other = make_samples(case, 64), make_samples(case, 64), make_samples(case, 64, seed=1)

    for (image, target), (image_again, target_again), (another, _) in zip(one, same, other, strict=True):
        assert image.equal(image_again)
        assert not image.equal(another)
        assert all(value.equal(target_again[name]) for name, value in target.items())


def test_masks_lie_in_their_boxes_and_fill_them() -> None:
    ((_, target),) = make_samples(cpu_case("seg-nano"), 128)

    for mask, (x, y, width, height) in zip(target["masks"], target["boxes"].tolist(), strict=True):
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        assert (columns.min() / 128, rows.min() / 128) == pytest.approx((x - width / 2, y - height / 2), abs=2 / 128)
        assert (columns.max() / 128, rows.max() / 128) == pytest.approx((x + width / 2, y + height / 2), abs=2 / 128)


def test_keypoints_lie_in_their_boxes_and_are_zero_where_not_labelled() -> None:
    ((_, target),) = make_samples(cpu_case("keypoint-preview"), 128)

    points, visibility = target["keypoints"][..., :2], target["keypoints"][..., 2]
    centres, sizes = target["boxes"][:, None, :2], target["boxes"][:, None, 2:]
    assert set(visibility.unique().tolist()) == {0.0, 1.0, 2.0}
    assert ((points - centres).abs() <= sizes / 2)[visibility > 0].all()
    assert (points[visibility == 0] == 0).all()


def test_settings_other_than_the_defaults_are_told_and_no_path_among_them(tmp_path: Path) -> None:
    found = flags(build_module(Case(config="nano", lane="cpu", batch_size=2), tmp_path))

    assert (found["resolution"], found["batch_size"], found["pretrain_weights"]) == ("128", "2", "None")
    assert "num_workers" not in found
    assert str(tmp_path) not in str(found)
