"""With the real rfdetr: which part a change of it is seen in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perf.annotations import DataSet
from perf.case import Case
from perf.dataset import read_data_set
from perf.photos import PhotoSpec, write_photos
from perf.rfdetr_input import Clock, augmentation_of, clocked, input_module, seed_draws, training_loader, training_set

pytestmark = pytest.mark.filterwarnings("default")
CASE = Case(config="nano", lane="cpu", batch_size=2, measure="input")
SLOW = 0.05


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    spec = PhotoSpec(images=3, width=320, height=240)
    [root] = write_photos(tmp_path_factory.mktemp("photos"), spec, ["jpeg"]).values()
    return read_data_set(root)


@pytest.fixture(scope="module")
def module(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return input_module(CASE, data, tmp_path_factory.mktemp("out"))


def one_sample(module: Any) -> dict[str, float]:
    with clocked() as clock:
        training_set(module)[0]
    return clock.seconds


def slowed(real: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(SLOW)
        return real(*args, **kwargs)

    return slow


def test_every_part_of_a_sample_is_seen(module: Any) -> None:
    assert set(one_sample(module)) == {"decode", "resize", "augment", "normalize"}
    assert augmentation_of(module) in ("torchvision", "albumentations")


def test_a_slowed_decoder_is_seen_in_decode_and_not_in_resize(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rfdetr.datasets import coco

    monkeypatch.setattr(coco, "decode_pil_image", slowed(coco.decode_pil_image))
    found = one_sample(module)

    assert found["decode"] > SLOW > found["resize"]


def test_a_slowed_resize_is_seen_in_resize_and_not_in_decode(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rfdetr.datasets import _torchvision

    monkeypatch.setattr(_torchvision.functional, "resize", slowed(_torchvision.functional.resize))
    found = one_sample(module)

    assert found["resize"] > SLOW > found["decode"]


def test_nothing_of_rfdetr_stays_replaced(module: Any) -> None:
    from rfdetr.datasets import _torchvision, coco

    before = (coco.CocoDetection._decode_image, _torchvision.Resize.__call__)
    one_sample(module)
    assert (coco.CocoDetection._decode_image, _torchvision.Resize.__call__) == before


def test_the_same_draws_give_the_same_sample(module: Any) -> None:
    def drawn(seed: int) -> Any:
        seed_draws(seed)
        return training_set(module)[0][0]

    assert any(not drawn(0).equal(drawn(seed)) for seed in range(1, 6))
    assert drawn(3).equal(drawn(3))


def test_a_resolution_of_its_own_is_that_of_the_samples(data: DataSet, tmp_path: Path) -> None:
    image, _ = training_set(input_module(CASE, data, tmp_path, resolution=160))[0]
    assert tuple(image.shape) == (3, 160, 160)


def test_the_loader_is_rfdetr_s_own_with_these_workers_and_does_not_end_early(module: Any) -> None:
    loader = training_loader(module, 0, samples=20)
    (samples, _), *others = list(loader)

    assert (loader.num_workers, loader.batch_size, 1 + len(others)) == (0, 2, 11)
    assert tuple(samples.tensors.shape) == (2, 3, 128, 128)
    assert training_loader(module, 4, samples=20).prefetch_factor == 2


def test_what_rfdetr_rejects_is_told_with_its_own_words(data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rejects .* with augmentation_backend='gpu': RuntimeError: .*CUDA"):
        input_module(CASE, data, tmp_path, backend="gpu")


class _Wrapper:
    transforms = ()


def test_a_part_inside_another_is_the_others() -> None:
    clock = Clock()
    inner = clock.around("resize", lambda: time.sleep(0.001))
    outer = clock.around(lambda wrapper: "augment" if isinstance(wrapper, _Wrapper) else "decode", lambda _: inner())

    outer(_Wrapper())
    assert set(clock.seconds) == {"augment"}
    outer(None)
    inner()
    assert set(clock.seconds) == {"augment", "decode", "resize"}
    clock.reset()
    assert clock.seconds == {}


def test_a_part_that_raises_is_timed_and_closed() -> None:
    clock = Clock()

    def broken() -> None:
        msg = "truncated"
        raise OSError(msg)

    with pytest.raises(OSError, match="truncated"):
        clock.around("decode", broken)()
    clock.around("resize", lambda: None)()
    assert set(clock.seconds) == {"decode", "resize"}
