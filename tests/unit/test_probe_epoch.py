from __future__ import annotations

import importlib.util
import logging
import random
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from factories import CPU_COMPILED, CPU_EAGER
from pytorch_lightning import LightningModule
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop
from tiny import Samples, a_trainer, first_line
from torch._dynamo.output_graph import OutputGraph
from torch.utils.data import DataLoader

from perf.case import Case
from perf.probes import compilation, epoch
from perf.probes.epoch import INSIDE, OUTSIDE, Step, Watch, parse_limit_warning, run_epoch, watch_epoch
from perf.progress import Progress
from perf.record import Signal
from perf.rfdetr_api import Built, build
from perf.shapes import ShapesSpec, write_shapes

HERE = "tests/unit/test_probe_epoch.py"
pytestmark = pytest.mark.filterwarnings("default")
# Older torch runs all of a function eager once it has hit the limit, also for what it had compiled.
after_the_limit = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6), reason="torch 2.6 keeps what was compiled"
)
LIMIT = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    compilation.reset()
    yield
    compilation.reset()


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """A model with one weight, that does ``work`` to the images."""

    def __init__(self, work: Callable[[Any], Any] = torch.sin) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.work = work

    def forward(self, samples: Any) -> Any:
        return self.work(samples.tensors * self.weight)


class Module(LightningModule):  # type: ignore[misc]
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        samples, targets = batch
        return (self.model(samples) - targets).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def batches(*sides: int, padded: bool = False) -> list[tuple[Samples, Any]]:
    return [(Samples(torch.ones(2, 1, n, n), torch.full((2, n, n), padded)), torch.zeros(1)) for n in sides]


def trained(
    model: Any, data: list[tuple[Samples, Any]], *, case: Case = CPU_COMPILED
) -> tuple[Built, Callable[..., None]]:
    """Return a built case of ``model`` and the function that fits it to ``data``."""
    trainer = a_trainer()
    built = Built(case=case, model_config=None, train_config=None, module=Module(model), trainer=trainer)

    def fit(callback: Any = None) -> None:
        trainer.callbacks.extend([callback] if callback else [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as rfdetr_data.fit_epoch does
            trainer.fit(built.module, DataLoader(data, batch_size=None))

    return built, fit


def static(model: Any, backend: str = "eager") -> Any:
    return torch.compile(model, backend=backend, dynamic=False)


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., dict[str, Signal]]:
    def watch(model: Any, data: list[tuple[Samples, Any]], **options: Any) -> dict[str, Signal]:
        built, fit = trained(model, data, **options)
        found = watch_epoch(built, fit, Progress(tmp_path / "progress", "test"))
        return {signal.name: signal for signal in found}

    return watch


Watched = Callable[..., dict[str, Signal]]


def parts(signal: Signal) -> list[tuple[str, float]]:
    return [(part.name, part.value) for part in signal.parts]


def test_shapes_come_in_the_order_of_their_first_steps_with_their_padding(watched: Watched) -> None:
    data = [*batches(6, 4, 6), *batches(4, padded=True), (Samples(torch.ones(2, 1, 4, 8)), torch.zeros(1))]
    found = watched(Scaled(), data, case=CPU_EAGER)

    assert parts(found["shapes"]) == [("2x1x6x6", 2), ("2x1x4x4", 1), ("2x1x4x4 padded", 1), ("2x1x4x8", 1)]
    assert (found["shapes"].kind, found["shapes"].value) == ("info", 5)
    assert (found["distinct_shapes"].kind, found["distinct_shapes"].value) == ("count-strict", 3)


def test_an_epoch_that_does_not_compile_has_times_and_no_eager_steps(watched: Watched) -> None:
    found = watched(Scaled(), batches(4, 6), case=CPU_EAGER)

    assert found["graphs"].value == found["frames"].value == found["recompile_limit_hits"].value == 0
    assert found["eager_steps"].value == 0
    assert 0 < found["first_step"].value < found["epoch_time"].value < 60
    assert "pos_embed_time" not in found


class Replayed(Scaled):
    """A model that a CUDA graph replays after its first step: nobody calls it."""

    def __call__(self, samples: Any) -> Any:
        if self.training and not hasattr(self, "captured"):
            self.captured = True
            return super().__call__(samples)
        return self.forward(samples)


def test_a_step_that_is_replayed_without_a_call_has_its_shape_too(watched: Watched) -> None:
    found = watched(Replayed(), batches(4, 6, 4), case=CPU_EAGER)

    assert parts(found["shapes"]) == [("2x1x4x4", 2), ("2x1x6x6", 1)]
    assert found["distinct_shapes"].value == 2


class Slow(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        time.sleep(0.05)
        return super().__getitem__(index)


def test_the_loader_is_waited_for_and_what_comes_before_it_is_asked_is_no_wait_for_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watched(Scaled(), Slow(batches(4, 4, 4)), case=CPU_EAGER)["input_wait"].value >= 50

    advance = _TrainingEpochLoop.advance

    def meet(self: Any, fetcher: Any) -> None:  # as ranks do there
        time.sleep(0.05)
        advance(self, fetcher)

    monkeypatch.setattr(_TrainingEpochLoop, "advance", meet)
    found = watched(Scaled(), batches(4, 4, 4), case=CPU_EAGER)["input_wait"]
    assert len(found.samples) == 2
    assert found.value < 25


def test_below_the_limit_every_step_is_compiled(watched: Watched) -> None:
    found = watched(static(Scaled()), batches(4, 6, 4, 6))

    assert (found["graphs"].value, found["recompiles"].value, found["model_frames"].value) == (2, 1, 2)
    assert found["recompile_limit"].value == 8
    assert found["recompile_limit_hits"].parts == found["eager_steps"].parts == []


@after_the_limit
def test_beyond_the_limit_new_shapes_run_eager_and_old_ones_do_not(watched: Watched) -> None:
    with torch._dynamo.config.patch({LIMIT: 2}):
        found = watched(static(Scaled()), batches(4, 6, 8, 4, 8, 10))

    [hit] = found["recompile_limit_hits"].parts
    assert (hit.name, hit.value, hit.where) == (f"{HERE}:forward", 1, [first_line(Scaled.forward)])
    assert found["recompile_limit"].value == 2
    assert (found["eager_steps"].kind, found["eager_steps"].value) == ("count-strict", 3)
    assert parts(found["eager_steps"]) == [("2x1x8x8", 2), ("2x1x10x10", 1)]


@after_the_limit
def test_a_part_of_a_step_that_runs_eager_makes_the_step_eager(watched: Watched) -> None:
    def breaking(x: Any) -> Any:
        y = x.sum((2, 3))  # of one shape for all sizes
        torch._dynamo.graph_break()
        return y.sin()

    with torch._dynamo.config.patch({LIMIT: 1}):
        found = watched(static(Scaled(breaking)), batches(4, 6, 4))

    # The frame that hit the limit runs eager; what it calls after its break has its own graph.
    assert found["recompile_limit_hits"].value >= 1
    assert parts(found["eager_steps"]) == [("2x1x6x6", 1)]


def test_a_frame_without_a_graph_of_its_own_is_judged_by_all_graphs_of_the_step() -> None:
    outer, inner = ("forward", "m.py", 1), ("inner", "m.py", 9)
    watch = Watch(steps=[Step(shape=(1,)), Step(shape=(2,)), Step(shape=(3,))], with_graph={inner}, hits={outer: 1})
    for step, calls in zip(watch.steps, (2, 1, 2), strict=True):
        step.graph_calls[inner] = calls

    assert [watch.is_eager(index) for index in range(3)] == [False, True, False]


def test_fewer_calls_before_the_limit_is_hit_are_not_eager() -> None:
    frame = ("forward", "m.py", 1)
    watch = Watch(steps=[Step(), Step()], with_graph={frame}, hits={frame: 1})
    watch.steps[1].graph_calls[frame] = 1

    assert [watch.is_eager(index) for index in range(2)] == [False, False]


def bicubic(x: Any) -> Any:
    return torch.nn.functional.interpolate(x, size=(3, 3), mode="bicubic", antialias=True)


def bilinear(x: Any) -> Any:
    return torch.nn.functional.interpolate(x, size=(3, 3), mode="bilinear")


@torch.compiler.disable  # type: ignore[untyped-decorator]
def bicubic_outside(x: Any) -> Any:
    return bicubic(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("work", [bilinear, bicubic, bicubic_outside])
def test_watching_changes_neither_counts_nor_weights(
    work: Callable[[Any], Any], backend: str, watched: Watched
) -> None:
    data = batches(4, 6, 4, 8)
    model = static(Scaled(work), backend)
    trained(model, data)[1]()
    plain = {signal.name: signal for signal in compilation.signals(model)}
    compilation.reset()
    seen = static(Scaled(work), backend)
    found = watched(seen, data)

    assert plain["graphs"].value >= 3
    assert {name: found[name] for name in plain} == plain
    if work is bilinear:  # else one step more is made, to time the interpolation
        assert torch.equal(seen.weight, model.weight)


@pytest.mark.parametrize(
    ("work", "backend", "where"),
    [
        (bicubic, "eager", INSIDE),
        (bicubic, "aot_eager", INSIDE),
        (bicubic_outside, "eager", OUTSIDE),
        (bicubic_outside, "aot_eager", OUTSIDE),
    ],
)
def test_interpolations_are_counted_inside_and_outside_of_graphs(
    work: Callable[[Any], Any], backend: str, where: str, watched: Watched
) -> None:
    found = watched(static(Scaled(work), backend), batches(4, 6, 4))

    calls = found["pos_embed_interpolations"]
    assert (calls.kind, calls.value, parts(calls)) == ("info", 3, [(where, 3)])
    assert parts(found["pos_embed_time"]) == [("2x1x4x4", found["pos_embed_time"].value)]
    assert 0 < found["pos_embed_time"].value < 1000
    assert found["shapes"].value == 3  # the step that is timed is not the epoch's


def test_other_interpolation_is_not_counted(watched: Watched) -> None:
    found = watched(static(Scaled(bilinear)), batches(4, 6))

    assert found["pos_embed_interpolations"].value == 0
    assert "pos_embed_time" not in found


@after_the_limit
def test_interpolation_in_a_step_beyond_the_limit_is_outside(watched: Watched) -> None:
    with torch._dynamo.config.patch({LIMIT: 1}):
        found = watched(static(Scaled(bicubic)), batches(4, 6, 4))

    assert parts(found["pos_embed_interpolations"]) == [(INSIDE, 2), (OUTSIDE, 1)]


def test_nothing_stays_patched_after_an_epoch_that_failed(watched: Watched) -> None:
    real, functional = OutputGraph.call_user_compiler, torch._C._nn._upsample_bicubic2d_aa
    handlers = list(logging.getLogger("torch._dynamo.convert_frame").handlers)

    def failing(x: Any) -> Any:
        msg = "no step"
        raise ArithmeticError(msg)

    with pytest.raises(ArithmeticError, match="no step"):
        watched(Scaled(failing), batches(4))
    assert OutputGraph.call_user_compiler is real
    assert torch._C._nn._upsample_bicubic2d_aa is functional
    assert logging.getLogger("torch._dynamo.convert_frame").handlers == handlers


def test_hits_are_seen_where_the_log_is_silenced(watched: Watched) -> None:
    logger = logging.getLogger("torch._dynamo.convert_frame")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with torch._dynamo.config.patch({LIMIT: 1}):
            found = watched(static(Scaled()), batches(4, 6))
        assert logger.level == logging.CRITICAL
    finally:
        logger.setLevel(before)
    assert found["recompile_limit_hits"].value == 1


@pytest.mark.parametrize("name", ["recompile_limit", "accumulated_recompile_limit", "cache_size_limit"])
def test_dynamos_warning_names_the_frame(name: str) -> None:
    message = (
        f"torch._dynamo hit config.{name} (8)\n   function: 'forward' (/x/site-packages/rfdetr/m (1).py:12)\n"
        "   last reason: 0/7: size mismatch\nTo log all recompilation reasons, use ..."
    )
    assert parse_limit_warning(message) == ("forward", "/x/site-packages/rfdetr/m (1).py", 12)


@pytest.mark.parametrize("message", ["", "torch._dynamo hit config.fail_fast (8)", "WON'T CONVERT f m.py line 3"])
def test_other_messages_name_none(message: str) -> None:
    assert parse_limit_warning(message) is None


def test_parts_of_one_function_that_hit_are_one_part() -> None:
    frames = [("torch_dynamo_resume_in_f_at_3", "m.py", 3), ("torch_dynamo_resume_in_f_at_9", "m.py", 9)]
    signals = {s.name: s for s in epoch.limit_signals(Watch(hits=dict.fromkeys(frames, 0)))}

    [part] = signals["recompile_limit_hits"].parts
    assert (part.name, part.value, part.where) == ("m.py:f (resumed)", 2, ["m.py:3", "m.py:9"])


@pytest.mark.skipif(importlib.util.find_spec("rfdetr") is None, reason="needs rfdetr")
def test_rfdetrs_own_epoch_draws_its_sizes_by_the_global_step(tmp_path: Path) -> None:
    from perf.rfdetr_data import scales

    case = Case(config="nano", lane="cpu", batch_size=2, multi_scale="per-batch", workers=0, measure="epoch")
    data = write_shapes(tmp_path, ShapesSpec(images_train=12, images_valid=1))
    built = build(case, tmp_path)
    seen: list[int] = []
    built.module.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].tensors.shape[-1]))
    found = {s.name: s for s in run_epoch(built, data, Progress(tmp_path / "progress", "test"))}

    assert scales(built) == [64, 96, 128, 160, 192, 224, 256, 288]
    assert seen[:6] == [random.Random(step).choice(scales(built)) for step in range(6)]
    assert dict(parts(found["shapes"])) == {f"2x3x{n}x{n}": seen[:6].count(n) for n in seen[:6]}
    assert found["pos_embed_interpolations"].value == sum(side != 128 for side in seen[:6]) > 0
    assert 0 < found["pos_embed_time"].value < 1000
