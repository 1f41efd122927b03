"""Whole epochs -> a table, and pictures of what rfdetr logged. Those need matplotlib, which comes with rfdetr."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from perf.cells import fallback
from perf.epochs import EPOCHS, Epoch, read_epochs, steady
from perf.record import Record
from perf.report.markdown import table
from perf.run_order import Order

HEADINGS = ("epoch", "minutes", "training s", "images/s", "validation s", "images/s", "other s")


def epochs_text(record: Record, order: Order) -> str:
    """Return a table of all epochs, what stands for them, and where the files are."""
    epochs = read_epochs(order.stem.with_suffix(EPOCHS))
    rows = [
        (
            f"{one.epoch}, resumed" if one.first and one.epoch else str(one.epoch),
            f"{one.seconds / 60:.2f}",
            f"{one.train:.1f}",
            f"{one.train_images / one.train:.4g}",
            f"{one.validation:.1f}",
            f"{one.validation_images / one.validation:.4g}" if one.validation else "-",
            f"{one.other:.1f}",
        )
        for one in epochs
    ]
    time = record.signal("epoch_time")
    which = _numbers(steady(epochs))
    told = f"{record.case_id}: {time.value / 60:.2f} minutes an epoch, median of {which}\n" if time else ""
    if problem := fallback(record):
        told += f"warning: it did not train as asked: {problem}\n"
    notes = "".join(f"note: {note}\n" for note in record.notes)
    return f"{table(HEADINGS, rows)}{told}{notes}metrics and plots: {order.stem.with_suffix('.out')}\n"


def _numbers(epochs: Sequence[Epoch]) -> str:
    return f"epoch{'s' if len(epochs) > 1 else ''} {', '.join(str(one.epoch) for one in epochs)}"


# What rfdetr logs once an epoch, by picture; the averaged weights' score where it logs that.
_CURVES = {
    "loss.svg": ("train/loss", "train/loss_ce", "train/loss_bbox", "train/loss_giou", "val/loss"),
    "map.svg": ("val/ema_mAP_50_95", "val/ema_mAP_50", "val/mAP_50_95", "val/mAP_50"),
}


def draw_metrics(metrics: Path) -> list[str]:
    """Draw the losses and scores in rfdetr's ``metrics.csv`` beside it; return what could not be drawn, and why."""
    notes = []
    for name, columns in _CURVES.items():
        try:
            _draw(metrics, columns, metrics.with_name(name))
        except Exception as error:  # a picture must not cost the training
            notes.append(f"no {name}: {type(error).__name__}: {error}")
    return notes


def _draw(metrics: Path, columns: tuple[str, ...], path: Path) -> None:
    from matplotlib.figure import Figure

    rows = list(csv.DictReader(metrics.read_text(encoding="utf-8").splitlines()))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="epoch")
    for column in columns:
        points = [(int(row["epoch"]), float(row[column])) for row in rows if row.get(column)]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=column)
    axes.legend()
    figure.savefig(path, format="svg")
