from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.candidate_losses import Check, judged
from perf.candidates import Candidate, find_candidate
from perf.case import find_case
from perf.probes import compilation
from perf.probes.input_pipeline import one_thread
from perf.rfdetr_candidates import cast, checks

pytestmark = pytest.mark.filterwarnings("default")
COMPILED = find_candidate("compiled_loss")
BF16, FP32 = "nano-cpu-b2-bf16", "nano-cpu-b2"

# Patches that put something of their own around rfdetr's losses of the labels.
AROUND_LABELS = """
from rfdetr.models.criterion import SetCriterion
import torch
real = SetCriterion.loss_labels

def labels(self, outputs, *rest, **more):
    {body}

SetCriterion.loss_labels = labels
"""
TIMES = "found = real(self, outputs, *rest, **more); return {{**found, 'loss_ce': found['loss_ce'] * {factor}}}"
TIMES_IN_BF16 = "factor = 1.02 if outputs['pred_logits'].dtype == torch.bfloat16 else 1; " + TIMES.format(
    factor="factor"
)
IN_FLOAT32 = """
    wide = {**outputs, 'pred_logits': outputs['pred_logits'].float(), 'pred_boxes': outputs['pred_boxes'].float()}
    with torch.autocast('cpu', enabled=False):
        return real(self, wide, *rest, **more)
"""
# rfdetr compiles its batched losses on a GPU only, and where all layers have boxes of one type, as a GPU's have.
COMPILED_ON_A_CPU = """
import runpy
import torch
from perf.candidates import find_candidate
from rfdetr.models import criterion

runpy.run_path(str(find_candidate("compiled_loss").path))
compiled = torch.compile(criterion._batched_detection_loss_tensors, dynamic=True, backend={backend!r})
criterion.SetCriterion._can_batch_detection_losses = lambda self, *_: self._compile_batched_detection_losses
criterion.SetCriterion._resolve_batched_detection_losses = lambda *_: compiled
"""


@pytest.fixture(autouse=True)
def _unpatched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take off again what a patch puts on rfdetr."""
    from rfdetr.models.criterion import SetCriterion

    names = ("__init__", "loss_labels", "_can_batch_detection_losses", "_resolve_batched_detection_losses")
    for name in names:
        monkeypatch.setattr(SetCriterion, name, getattr(SetCriterion, name))
    with one_thread():
        yield
    compilation.reset()


def found(tmp_path: Path, case: str, patch: str, candidate: Candidate = COMPILED) -> dict[str, tuple[bool, str]]:
    """Return by type of the outputs whether the losses under ``patch`` are right, and what is told."""
    return {check.dtype: judged(candidate, check) for check in _checks(tmp_path, case, patch)}


def _checks(tmp_path: Path, case: str, patch: str) -> list[Check]:
    path = tmp_path / "patch.py"
    path.write_text(patch, encoding="utf-8")
    return checks(find_case(case), path)


def test_rfdetr_as_it_is_is_bitwise_itself_and_its_reference_is_near(tmp_path: Path) -> None:
    [own, full] = _checks(tmp_path, BF16, "")
    assert (own.dtype, own.roundoff, full.dtype) == ("bfloat16", 2.0**-8, "float32")
    assert all(loss.eager == loss.candidate for check in (own, full) for loss in check.losses)
    assert [loss.name for loss in own.losses] == [loss.name for loss in full.losses]
    assert {loss.name: loss.eager for loss in full.losses} == pytest.approx(
        {loss.name: loss.reference for loss in full.losses}, rel=1e-6
    )
    off = {loss.name: abs(loss.eager / loss.reference - 1) for loss in own.losses if loss.reference}
    assert 1e-3 < off["loss_ce"] < 0.1  # what bf16 costs rfdetr's criterion
    assert off["loss_bbox"] < 1e-6


@pytest.mark.parametrize("factor", [1.001, 1.02, 0.98])
def test_a_wrong_loss_is_seen_in_bf16(tmp_path: Path, factor: float) -> None:
    results = found(tmp_path, BF16, AROUND_LABELS.format(body=TIMES.format(factor=factor)))
    right, told = results["float32"]
    assert not right
    assert "float32: 2 of 9 losses differ\n    loss_ce: eager " in told
    assert f"({100 * abs(factor - 1):.2g} % {'above' if factor > 1 else 'below'} float64)" in told


def test_a_loss_that_is_wrong_in_bf16_only_is_seen(tmp_path: Path) -> None:
    results = found(tmp_path, BF16, AROUND_LABELS.format(body=TIMES_IN_BF16))
    assert results["float32"] == (True, "  float32: 9 losses bitwise equal")
    right, told = results["bfloat16"]
    assert not right
    assert "loss_ce: eager " in told


def test_a_loss_that_rounds_less_is_right(tmp_path: Path) -> None:
    results = found(tmp_path, BF16, AROUND_LABELS.format(body=IN_FLOAT32))
    right, told = results["bfloat16"]
    assert right, told
    assert "2 of 9 losses are not those of eager, but nearer to float64" in told
    assert results["float32"] == (True, "  float32: 9 losses bitwise equal")


def test_a_case_that_trains_in_float32_is_checked_once(tmp_path: Path) -> None:
    results = found(tmp_path, FP32, AROUND_LABELS.format(body=TIMES.format(factor=1.001)))
    assert list(results) == ["float32"]
    assert results["float32"][0] is False


def test_masks_are_sampled_at_the_same_points_and_have_no_reference(tmp_path: Path) -> None:
    [check] = _checks(tmp_path, "seg-nano-cpu-b2", "")
    assert all(loss.eager == loss.candidate for loss in check.losses)
    without = {loss.name for loss in check.losses if loss.reference is None}
    assert {name.removesuffix("_enc") for name in without} == {"loss_mask_ce", "loss_mask_dice"}


def test_compiled_without_fusion_the_losses_are_those_of_eager(tmp_path: Path) -> None:
    """So that what Inductor does to them is the rounding, not the batched function."""
    from torch._dynamo.utils import counters

    checked = _checks(tmp_path, BF16, COMPILED_ON_A_CPU.format(backend="aot_eager"))[0]
    loss = next(loss for loss in checked.losses if loss.name == "loss_ce")
    assert loss.candidate == pytest.approx(loss.eager, rel=COMPILED.tolerance)
    assert counters["frames"]["ok"] > 0


@pytest.mark.slow
def test_inductor_rounds_less_than_eager_and_is_right(tmp_path: Path) -> None:
    results = found(tmp_path, BF16, COMPILED_ON_A_CPU.format(backend="inductor"))
    print(*(told for _, told in results.values()), sep="\n")  # for docs/sweep.md
    right, told = results["bfloat16"]
    assert right, told
    assert "are not those of eager, but nearer to float64" in told
    assert results["float32"] == (True, "  float32: 9 losses within 0.0001 of eager")


def test_cast_leaves_what_is_no_floating_tensor() -> None:
    import torch

    nested = {"a": [torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int64)], "b": None}
    wide = cast(nested, torch.float64, "cpu")
    assert [one.dtype for one in wide["a"]] == [torch.float64, torch.int64]
    assert wide["b"] is None
