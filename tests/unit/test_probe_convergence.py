"""The watch of a training, on a stand-in of rfdetr's trainer; tests/e2e/test_convergence.py trains the real one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perf.annotations import Annotation, DataSet, Image, Split
from perf.evidence import METRICS, PLOT
from perf.probes.convergence import Curve, Evaluation, Watch, check_agreement, check_whole, keep, signals
from perf.scoring import Scores

BOX = (10.0, 10.0, 20.0, 20.0)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    split = Split("valid", tmp_path / "v.json", [Image(7, tmp_path / "a.png", 64, 64)], [Annotation(7, 2, BOX, "one")])
    return DataSet(tmp_path, "roboflow", {2: "cell"}, split, split, "")


def trainer(data: DataSet, **metrics: float) -> Any:
    """What rfdetr's trainer has after a validation: its data set with its own numbers, and its scores."""
    coco = SimpleNamespace(imgs={0: {"file_name": "a.png"}}, label2cat={0: 2})
    datamodule = SimpleNamespace(_dataset_val=SimpleNamespace(coco=coco, root=str(data.root)))
    named = {name.replace("_", "/", 1): torch.tensor(value) for name, value in metrics.items()}
    return SimpleNamespace(datamodule=datamodule, callback_metrics=named)


def watch(data: DataSet, calls: list[Any], tmp_path: Path, told: list[str] | None = None) -> Watch:
    built: Any = SimpleNamespace(train_config=SimpleNamespace(eval_max_dets=500))
    return Watch(built, data, Curve(), calls, tmp_path / "curve.json", (told if told is not None else []).append)


def results(box: tuple[float, float, float, float] = BOX) -> list[dict[str, Any]]:
    x, y, width, height = box
    boxes = torch.tensor([[x, y, x + width, y + height]])
    return [{"boxes": boxes, "scores": torch.tensor([0.9]), "labels": torch.tensor([0])}]


TARGETS = [{"image_id": torch.tensor([0])}]


def test_detections_are_scored_in_the_data_set_s_own_numbers(data: DataSet, tmp_path: Path) -> None:
    told: list[str] = []
    followed = watch(data, [results()], tmp_path, told)
    followed.step({"loss": torch.tensor(3.0)})
    followed.step(torch.tensor(2.0))

    followed.gather(trainer(data), TARGETS)
    followed.evaluate(trainer(data, val_mAP_50_95=1.0))

    [evaluation] = followed.curve.evaluations
    assert (evaluation.step, evaluation.rfdetr) == (2, 1)
    assert list(evaluation.scores) == pytest.approx([1, 1, 1])
    assert told == ["step 2: loss 2.000, mAP 1.0000"]
    written = json.loads((tmp_path / "curve.json").read_text())
    assert written["losses"] == [3.0, 2.0]
    assert written["evaluations"] == [
        {"step": 2, "rfdetr_map": 1, "map": pytest.approx(1), "ap50": pytest.approx(1), "ap75": pytest.approx(1)}
    ]


def test_the_averaged_weights_count_where_rfdetr_scores_both(data: DataSet, tmp_path: Path) -> None:
    followed = watch(data, [results((40, 40, 20, 20)), results()], tmp_path)
    followed.step(torch.tensor(2.0))

    followed.gather(trainer(data), TARGETS)
    followed.evaluate(trainer(data, val_mAP_50_95=0.0, val_ema_mAP_50_95=1.0))

    assert followed.curve.evaluations[0].scores.map == pytest.approx(1)


def test_evaluators_that_disagree_fail_the_run_with_both_numbers(data: DataSet, tmp_path: Path) -> None:
    followed = watch(data, [results()], tmp_path)
    followed.step(torch.tensor(2.0))
    followed.gather(trainer(data), TARGETS)

    with pytest.raises(
        RuntimeError, match=r"after step 1 pycocotools gives mAP 1\.000000 and rfdetr's evaluator 0\.99"
    ):
        followed.evaluate(trainer(data, val_mAP_50_95=0.99))
    assert (tmp_path / "curve.json").is_file()


@pytest.mark.parametrize(
    ("ours", "theirs", "agree"), [(0.5, 0.5009, True), (0.5, 0.502, False), (0.5, math.nan, False)]
)
def test_a_thousandth_apart_is_agreement(ours: float, theirs: float, agree: bool) -> None:
    if agree:
        check_agreement(ours, theirs, 1)
        return
    with pytest.raises(RuntimeError, match="one of them is wrong"):
        check_agreement(ours, theirs, 1)


def test_an_rfdetr_that_scored_nothing_is_told(data: DataSet, tmp_path: Path) -> None:
    followed = watch(data, [], tmp_path)
    followed.step(torch.tensor(2.0))

    with pytest.raises(RuntimeError, match="rfdetr logged no val/ema_mAP_50_95"):
        followed.evaluate(trainer(data, val_F1=0.5))


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_told_with_its_step(data: DataSet, tmp_path: Path, loss: float) -> None:
    followed = watch(data, [], tmp_path)
    for value in (3.0, 2.0, loss, 1.0):
        followed.step(torch.tensor(value))

    with pytest.raises(RuntimeError, match="in step 3: this training has diverged"):
        followed.take_losses()


def a_curve() -> Curve:
    evaluations = [Evaluation(step, Scores(step / 20, 0.9, 0.1), step / 20 + 1e-4) for step in (10, 20)]
    return Curve(20, [float(20 - step) for step in range(20)], evaluations)


def test_signals_are_the_last_map_and_the_mean_of_the_last_losses() -> None:
    found = {signal.name: signal for signal in signals(a_curve())}

    assert (found["map"].value, found["map"].samples, found["map"].direction) == (1.0, [0.5, 1.0], "higher")
    assert (found["final_loss"].value, len(found["final_loss"].samples)) == (1.5, 20)
    assert {name for name, signal in found.items() if signal.kind == "quality"} == {"map", "map_to_ap50", "final_loss"}
    assert found["map_to_ap50"].samples == [0.5 / 0.9, 1.0 / 0.9]
    assert found["evaluator_gap"].value == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("curve", "told"),
    [
        (Curve(15, [1.0] * 15, a_curve().evaluations[:1]), "15 of 20 steps, and was last scored after step 10"),
        (Curve(), "0 of 20 steps, and was never scored"),
    ],
)
def test_a_training_that_ended_early_is_no_measurement(curve: Curve, told: str) -> None:
    check_whole(a_curve(), 20)

    with pytest.raises(RuntimeError, match=f"ended after {told}"):
        check_whole(curve, 20)


def test_a_curve_says_how_far_it_has_come() -> None:
    assert a_curve().text == "step 20, mAP 1.0000 at step 20"
    assert Curve(3).text == "step 3"


def test_metrics_are_kept_and_the_curve_is_drawn(tmp_path: Path) -> None:
    output, stem = tmp_path / "out", tmp_path / "run-0"
    output.mkdir()
    (output / "metrics.csv").write_text("step\n1\n")

    assert keep(a_curve(), output, stem) == []

    assert stem.with_suffix(METRICS).read_text() == "step\n1\n"
    picture = stem.with_suffix(PLOT).read_text()
    assert "<svg" in picture
    assert "</svg>" in picture


def test_a_plot_that_cannot_be_drawn_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        msg = "No module named 'matplotlib'"
        raise ImportError(msg)

    monkeypatch.setattr("perf.probes.convergence.draw", none)

    assert keep(a_curve(), tmp_path, tmp_path / "run-0") == [
        "no plot of the curve: ImportError: No module named 'matplotlib'"
    ]


def test_a_training_that_never_began_has_no_plot(tmp_path: Path) -> None:
    assert keep(Curve(), tmp_path, tmp_path / "run-0") == []
    assert list(tmp_path.iterdir()) == []
