"""Convergence: does the case still learn? It trains from random weights, and pycocotools scores what it detects.

rfdetr's own evaluator scores the same detections, and must agree to :data:`AGREEMENT`: else one of the two is wrong,
and no mAP of this run can be trusted.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.annotations import DataSet
from perf.evidence import METRICS, PLOT
from perf.quality_gates import FIT, MAP
from perf.record import Signal, write_atomically
from perf.report.curve import draw
from perf.rfdetr_api import Built
from perf.rfdetr_train import (
    METRICS_FILE,
    check_images,
    detections_of,
    most_detections,
    postprocessed,
    shipped_score,
    train,
)
from perf.scoring import Detection, Scores, score

AGREEMENT = 1e-3
# The loss of a single step depends on its batch: the last tenth of the steps is averaged.
LAST_SHARE = 0.1
LOSS = "final_loss"


@dataclass(frozen=True)
class Evaluation:
    """One scoring of the eval set, after ``step`` steps. ``rfdetr`` is what rfdetr's own evaluator says of mAP."""

    step: int
    scores: Scores
    rfdetr: float


@dataclass
class Curve:
    """How a training went: the loss of every step, and every evaluation. ``steps`` are done, read or not."""

    steps: int = 0
    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def final_loss(self) -> float:
        """Mean loss of the last steps."""
        last = max(1, round(LAST_SHARE * len(self.losses)))
        return statistics.fmean(self.losses[-last:])

    @property
    def text(self) -> str:
        """How far it has come, in words."""
        last = self.evaluations[-1] if self.evaluations else None
        return f"step {self.steps}" + (f", mAP {last.scores.map:.4f} at step {last.step}" if last else "")

    def write(self, path: Path) -> None:
        """Write the curve to ``path`` as JSON, whole or not at all."""
        evaluations = [{"step": one.step, "rfdetr_map": one.rfdetr, **one.scores._asdict()} for one in self.evaluations]
        write_atomically(path, json.dumps({"losses": self.losses, "evaluations": evaluations}, indent=1) + "\n")


def converge(built: Built, data: DataSet, curve: Curve, path: Path, tell: Callable[[str], None]) -> None:
    """Train ``built`` on ``data`` and fill in the ``curve``, which ``path`` mirrors after every evaluation.

    Raises:
        RuntimeError: rfdetr's evaluator and pycocotools disagree, or the loss is no number, or rfdetr reads other
            images; says both, or the step.
    """
    with postprocessed(built) as calls:
        watch = Watch(built, data, curve, calls, path, tell)
        train(built, [watch.callback()])
    watch.take_losses()
    curve.write(path)


@dataclass
class Watch:
    """Follows a fit: keeps every loss, gathers what is detected, and scores it at the end of each evaluation."""

    built: Built
    data: DataSet
    curve: Curve
    calls: list[list[dict[str, Any]]]
    path: Path
    tell: Callable[[str], None]
    _found: list[Detection] = field(default_factory=list)
    _losses: list[Any] = field(default_factory=list)

    def callback(self) -> Any:
        """Return the Lightning callback that does it."""
        from pytorch_lightning import Callback

        watch = self

        class Follow(Callback):
            def on_train_start(self, trainer: Any, *_: Any) -> None:
                check_images(trainer, watch.data)

            def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
                watch.step(outputs)

            def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
                watch.gather(trainer, outputs["targets"])

            def on_validation_end(self, trainer: Any, *_: Any) -> None:
                watch.evaluate(trainer)

        return Follow()

    def step(self, outputs: Any) -> None:
        """Keep the loss of a step where it is: to read it would wait for the device."""
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self._losses.append(loss.detach().clone())  # a CUDA graph's own memory is written again in the next step
        self.curve.steps += 1

    def take_losses(self) -> None:
        """Read the losses of the steps since the last time.

        Raises:
            RuntimeError: one is not finite; names its step.
        """
        import torch

        fresh = torch.stack(self._losses).float().cpu().tolist() if self._losses else []
        self._losses.clear()
        for loss in fresh:
            if loss != loss or loss in (float("inf"), float("-inf")):
                msg = f"the loss is {loss} in step {len(self.curve.losses) + 1}: this training has diverged"
                raise RuntimeError(msg)
            self.curve.losses.append(loss)

    def gather(self, trainer: Any, targets: Sequence[Any]) -> None:
        """Keep what was detected in a batch: of the weights that rfdetr ships, which it scores last."""
        self._found += detections_of(trainer, self.data, targets, self.calls[-1])
        self.calls.clear()

    def evaluate(self, trainer: Any) -> None:
        """Score what was gathered, and hold rfdetr's own score against it."""
        self.take_losses()
        found = score(self.data, self.data.valid, self._found, most_detections(self.built))
        self._found.clear()
        theirs = shipped_score(trainer)
        self.curve.evaluations.append(Evaluation(len(self.curve.losses), found, theirs))
        self.curve.write(self.path)
        self.tell(f"step {len(self.curve.losses)}: loss {self.curve.losses[-1]:.3f}, mAP {found.map:.4f}")
        check_agreement(found.map, theirs, len(self.curve.losses))


def check_agreement(ours: float, theirs: float, step: int) -> None:
    """Raise RuntimeError with both numbers where the two evaluators disagree."""
    if not abs(ours - theirs) <= AGREEMENT:
        msg = (
            f"after step {step} pycocotools gives mAP {ours:.6f} and rfdetr's evaluator {theirs:.6f} to the same "
            f"detections: more than {AGREEMENT:g} apart, so one of them is wrong"
        )
        raise RuntimeError(msg)


def check_whole(curve: Curve, steps: int) -> None:
    """Raise RuntimeError where the training was not scored after all its ``steps``: something stopped it."""
    scored = curve.evaluations[-1].step if curve.evaluations else None
    if scored is None or scored < steps:
        last = "never scored" if scored is None else f"last scored after step {scored}"
        msg = f"the training ended after {curve.steps} of {steps} steps, and was {last}: something stopped it"
        raise RuntimeError(msg)


def keep(curve: Curve, output: Path, stem: Path) -> list[str]:
    """Copy the metrics that rfdetr wrote to ``output``, and draw the curve, beside the record; return what failed."""
    if (output / METRICS_FILE).is_file():
        shutil.copyfile(output / METRICS_FILE, stem.with_suffix(METRICS))
    try:
        draw(curve, stem.with_suffix(PLOT))
    except Exception as error:  # a picture must not cost the training
        return [f"no plot of the curve: {type(error).__name__}: {error}"]
    return []


def signals(curve: Curve) -> list[Signal]:
    """Return the quality signals of a finished training; their samples are the curve's."""
    last = curve.evaluations[-1]
    maps = [one.scores.map for one in curve.evaluations]
    at50 = [one.scores.ap50 for one in curve.evaluations]
    fits = [one / other if other else 0.0 for one, other in zip(maps, at50, strict=True)]
    return [
        Signal(name=MAP, kind="quality", unit="mAP", direction="higher", value=last.scores.map, samples=maps),
        Signal(name=FIT, kind="quality", unit="", direction="higher", value=fits[-1], samples=fits),
        Signal(name=LOSS, kind="quality", unit="", value=curve.final_loss, samples=curve.losses),
        Signal(name="ap50", kind="info", unit="AP", direction="higher", value=last.scores.ap50, samples=at50),
        Signal(name="evaluator_gap", kind="info", unit="mAP", value=abs(last.scores.map - last.rfdetr)),
    ]
