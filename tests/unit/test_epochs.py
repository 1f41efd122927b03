from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import a_record
from filelock import FileLock

from perf.case import Case
from perf.cli import main
from perf.epochs import Epoch, epoch_signals, read_epochs, write_epochs
from perf.record import write_record
from perf.report.epochs import draw_metrics, epochs_text
from perf.rfdetr_epochs import EpochClock
from perf.run_order import Order

CASE = Case(config="nano", lane="cpu", batch_size=4, measure="epochs", steps=3, data="coco")


def an_epoch(
    number: int, train: float = 60, validation: float = 30, other: float = 0, first: bool | None = None
) -> Epoch:
    times = {"train": train, "validation": validation, "other": other}
    first = number == 0 if first is None else first
    return Epoch(epoch=number, train_images=600, validation_images=300, first=first, **times)


def test_epoch_0_is_told_apart_and_the_others_are_what_counts() -> None:
    found = {s.name: s for s in epoch_signals([an_epoch(0, 600), an_epoch(1), an_epoch(2, 50, 30, 20)])}

    assert found["first_epoch"].value == 630
    assert found["epoch_time"].samples == [90, 100]
    assert {part.name: part.value for part in found["epoch_time"].parts} == {"train": 55, "validation": 30, "other": 10}
    assert found["train_rate"].samples == [10, 12]
    assert found["validation_rate"].value == 10


def test_the_first_epoch_after_an_interruption_counts_only_where_there_is_no_other() -> None:
    resumed = an_epoch(1, 400, first=True)

    counted = epoch_signals([an_epoch(0, 600), resumed, an_epoch(2)])
    alone = epoch_signals([an_epoch(0, 600), resumed])

    assert counted[0].samples == [90]
    assert alone[0].samples == [430]


def test_epoch_0_alone_says_nothing() -> None:
    with pytest.raises(ValueError, match="train at least two epochs"):
        epoch_signals([an_epoch(0)])


def test_epochs_are_kept(tmp_path: Path) -> None:
    write_epochs(tmp_path / "e.json", [an_epoch(0), an_epoch(1)])

    assert read_epochs(tmp_path / "e.json") == [an_epoch(0), an_epoch(1)]
    assert read_epochs(tmp_path / "none.json") == []


def trainer(epoch: int) -> Any:
    loader = SimpleNamespace(dataset=range(6))
    return SimpleNamespace(current_epoch=epoch, num_training_batches=5, val_dataloaders=loader)


def test_a_training_that_goes_on_forgets_the_epoch_that_it_repeats(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    write_epochs(path, [an_epoch(0), an_epoch(1)])
    clock = EpochClock(path, 4, lambda _: None)

    clock.begin(1)
    clock.trained()
    clock.validating()
    clock.validated()
    clock.end(trainer(1))
    assert [one.epoch for one in read_epochs(path)] == [0, 1]
    clock.close()

    last = read_epochs(path)[-1]
    assert (last.train_images, last.validation_images) == (20, 6)
    assert min(last.train, last.validation, last.other) > 0
    assert last.seconds < 1
    assert last.first


def test_what_comes_after_the_last_batch_is_validation_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("perf.rfdetr_epochs.time.perf_counter", lambda: now[0])

    def after(seconds: float, what: Callable[[], None]) -> None:
        now[0] += seconds
        what()

    clock = EpochClock(tmp_path / "e.json", 4, lambda _: None)
    for epoch in range(2):
        after(0, partial(clock.begin, epoch))
        after(10, clock.trained)
        after(1, clock.validating)  # one between two batches is no training either
        after(5, clock.validated)
        after(20, clock.trained)
        after(0.5, clock.validating)
        after(7, clock.validated)
        after(3, partial(clock.end, trainer(epoch)))  # the best weights are written
        after(2, clock.close)  # and the last ones

    told = [(one.train, one.validation, one.other, one.seconds, one.first) for one in clock.epochs]
    assert told == [(31, 12, 5.5, 48.5, True), (31, 12, 5.5, 48.5, False)]


def test_the_table_has_a_row_an_epoch(tmp_path: Path) -> None:
    order = Order(CASE, "s", 0, tmp_path)
    epochs = [an_epoch(0, 600), an_epoch(1), an_epoch(2)]
    write_epochs(order.stem.with_suffix(".epochs.json"), epochs)

    shown = epochs_text(a_record(epoch_signals(epochs), CASE), order)

    assert "| 1 | 1.50 | 60.0 | 10 | 30.0 | 10 | 0.0 |" in shown
    assert "nano-cpu-b4-epochs-s3-on-coco: 1.50 minutes an epoch, median of epochs 1, 2\n" in shown
    write_epochs(order.stem.with_suffix(".epochs.json"), [an_epoch(0), an_epoch(1, 300, first=True), an_epoch(2)])
    shown = epochs_text(a_record(epoch_signals(epochs), CASE), order)
    assert "| 1, resumed | 5.50 |" in shown
    assert "median of epoch 2\n" in shown


GRAPHS = Case(config="nano", precision="bf16", cuda_graphs=True, measure="epochs", steps=3, data="coco")
DISABLED = "rfdetr: Disabling CUDA graphs because of this; training will run eagerly."


@pytest.mark.parametrize(
    ("case", "precision", "notes", "told"),
    [
        (GRAPHS, "bf16-mixed", [DISABLED], f"CUDA graphs were asked for and none was replayed; {DISABLED}"),
        (GRAPHS, "bf16-mixed", ["rfdetr: Captured CUDA graph 1 for input shape (4, 3). Backend: PyTorch."], ""),
        (GRAPHS, "16-mixed", ["rfdetr: Captured CUDA graph 1 for input"], "bf16 was asked for, and 16-mixed is in use"),
        (CASE.model_copy(update={"compile": True}), "32-true", [], "compile is on and the model ran eager"),
        (CASE, "32-true", [], ""),
    ],
)
def test_a_training_that_fell_back_is_not_told_as_what_was_asked_for(
    tmp_path: Path, case: Case, precision: str, notes: list[str], told: str
) -> None:
    order, epochs = Order(case, "s", 0, tmp_path), [an_epoch(0), an_epoch(1)]
    write_epochs(order.stem.with_suffix(".epochs.json"), epochs)
    record = a_record(epoch_signals(epochs), case, precision=precision, notes=notes)

    shown = epochs_text(record, order)

    assert ("warning:" in shown) == bool(told)
    assert not told or f"warning: it did not train as asked: {told}\n" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--lever", "graphs"], "CUDA graphs need an NVIDIA GPU"),
        (["--precision", "bf16"], "rfdetr trains in fp32 on a CPU"),
        (["--epochs", "1"], "--epochs 1: at least 2"),
        (["--resume", "gone"], "--resume gone: no training of nano-cpu-b4-epochs-s3-on-coco"),
    ],
)
def test_what_cannot_be_trained_is_said_before_the_tree_is_read(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rfdetr")

    assert main(["epoch", "--lane", "cpu", "--coco-root", str(tmp_path / "coco"), *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("root", "changed", "told"),
    [
        ("other/coco", "", "this training was begun with --case nano-cpu-b4-epochs-s3-on-coco --data "),
        ("coco", "torch 2.13.0, now 2.14.1", "this training was begun with torch 2.13.0, now 2.14.1; give another"),
    ],
)
def test_a_training_does_not_go_on_with_another_tree_or_other_software(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    root: str,
    changed: str,
    told: str,
) -> None:
    pytest.importorskip("rfdetr")
    monkeypatch.setattr("perf.coco_tree.check_tree", lambda *_: SimpleNamespace(text="a tree"))
    monkeypatch.setattr("perf.sweep.changed_here", lambda _: changed)
    order = Order(CASE, "e", 0, tmp_path / "e", data=(tmp_path / "coco").resolve())
    write_record(order.record_path, a_record([], CASE, status="failed", command=order.command))

    arguments = ["epoch", "--lane", "cpu", "--coco-root", str(tmp_path / root), "--records", str(tmp_path)]

    assert main([*arguments, "--resume", "e"]) == 2
    assert told in capsys.readouterr().err
    with FileLock(tmp_path / "e" / "epoch.lock"):
        assert main([*arguments, "--resume", "e"]) == 2
    assert "another process trains there" in capsys.readouterr().err


def test_metrics_are_drawn_and_what_cannot_be_is_a_note(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("epoch,train/loss,val/mAP_50_95\n0,,0.1\n0,9.5,\n1,8.5,\n1,,0.2\n")

    assert draw_metrics(metrics) == []
    assert "<svg" in (tmp_path / "loss.svg").read_text()
    assert (tmp_path / "map.svg").stat().st_size > 1000
    [loss, score] = draw_metrics(tmp_path / "none.csv")
    assert loss.startswith("no loss.svg: FileNotFoundError")
    assert score.startswith("no map.svg")
