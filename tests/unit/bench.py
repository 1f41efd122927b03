"""A folder of records and one of baselines, and the command line on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from factories import a_baseline, a_record, a_signal

from perf.baselines import write_baseline
from perf.cli import main
from perf.record import Record, Signal, write_record

OPS = a_signal("aten_ops", 1000, "count-volume")
WORSE = a_signal("aten_ops", 2000, "count-volume")


class Bench:
    """A folder of records and one of baselines."""

    def __init__(self, root: Path) -> None:
        self.records, self.baselines = root / "records", root / "baselines"

    def record(self, *signals: Signal, **changes: Any) -> Record:
        record = a_record(signals, **changes)
        write_record(self.records / f"{record.case_id}-{record.run}.record.json", record)
        return record

    def approve(self, *records: Record) -> Path:
        return write_baseline(self.baselines, a_baseline(records))

    def run(self, command: str, *options: str) -> int:
        return main([command, str(self.records), "--baselines", str(self.baselines), *options])
