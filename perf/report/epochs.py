"""Whole epochs -> a table."""

from __future__ import annotations

from perf.epochs import EPOCHS, read_epochs
from perf.record import Record
from perf.report.markdown import table
from perf.run_order import Order

HEADINGS = ("epoch", "minutes", "training s", "images/s", "validation s", "images/s", "other s")


def epochs_text(record: Record, order: Order) -> str:
    """Return a table of all epochs, what stands for them, and where the files are."""
    epochs = read_epochs(order.stem.with_suffix(EPOCHS))
    rows = [
        (
            str(one.epoch),
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
    told = (
        f"{record.case_id}: {time.value / 60:.2f} minutes an epoch, median of those from epoch 1 on\n" if time else ""
    )
    notes = "".join(f"note: {note}\n" for note in record.notes)
    return f"{table(HEADINGS, rows)}{told}{notes}metrics and plots: {order.stem.with_suffix('.out')}\n"
