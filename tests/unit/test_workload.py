from __future__ import annotations

from typing import Any

import pytest
import torch
from factories import CPU_EAGER

from perf.case import Case
from perf.workload import BOXES_PER_IMAGE, make_samples

PADDED = Case(config="nano", lane="cpu", batch_size=4, padded=True)
pytestmark = pytest.mark.filterwarnings("default")


def flat(samples: list[tuple[Any, dict[str, Any]]]) -> list[Any]:
    return [tensor for image, target in samples for tensor in (image, *target.values())]


def same(first: list[Any], second: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(flat(first), flat(second), strict=True))


def test_one_seed_gives_one_batch_whatever_else_drew_random_numbers() -> None:
    first = make_samples(CPU_EAGER, 64)
    torch.rand(3)

    assert same(first, make_samples(CPU_EAGER, 64))
    assert not same(first, make_samples(CPU_EAGER, 64, seed=1))


def test_drawing_a_batch_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    make_samples(CPU_EAGER, 64)

    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_has_the_cases_size_with_boxes_inside_and_labels_known() -> None:
    samples = make_samples(CPU_EAGER, 64)

    assert len(samples) == CPU_EAGER.batch_size
    for index, (image, target) in enumerate(samples):
        assert (image.shape, image.dtype) == ((3, 64, 64), torch.float32)
        centres, sizes = target["boxes"].split(2, dim=1)
        assert target["boxes"].shape == (BOXES_PER_IMAGE, 4)
        assert (centres - sizes / 2).min() >= 0
        assert (centres + sizes / 2).max() <= 1
        assert 0 <= target["labels"].min() <= target["labels"].max() < 80
        assert target["image_id"].tolist() == [index]
        assert torch.allclose(target["area"], sizes.prod(dim=1) * 64 * 64)
        assert target["size"].tolist() == target["orig_size"].tolist() == [64, 64]


def test_padding_makes_every_second_image_a_quarter_lower() -> None:
    samples = make_samples(PADDED, 64)

    assert [tuple(image.shape) for image, _ in samples] == [(3, 64, 64), (3, 48, 64)] * 2
    assert [target["size"].tolist() for _, target in samples] == [[64, 64], [48, 64]] * 2
