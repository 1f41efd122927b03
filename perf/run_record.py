"""A run's record while it is made, and the file that mirrors it, written anew after every probe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from perf import environment, gpus
from perf.cluster import cluster
from perf.gates import PROOF
from perf.probes import compilation
from perf.progress import Progress
from perf.record import PATCHED, TIMED, Record, Signal, file_digest, write_record
from perf.rfdetr_api import Built, flags
from perf.run_order import Order
from perf.turns import BESIDE, Turn


class RunRecord:
    """The record of a run in progress, on disk from the beginning, and what tells how far it has come."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.progress = Progress(order.progress_path, f"{order.case.id} run {order.run}")
        self.turn = Turn(order.turn, self.progress.say)
        self.turn.join()  # importing torch would disturb one that measures
        self.progress.say("importing torch")
        self.record = Record(
            case_id=order.case.id,
            case=order.case,
            session=order.session,
            run=order.run,
            command=order.command,
            environment=_fingerprint(order),
            untimed=order.untimed,
            gpu_before=gpus.gpu_states() if order.case.lane == "gpu" else [],
        )
        self.model: Any = None
        if order.turn:
            self.record.notes.append(BESIDE)
        self._write()

    def take(self, built: Built) -> None:
        """Note what rfdetr was told, which a reader needs to make sense of any number."""
        self.model = built.module.model
        self.record.flags = flags(built)
        self.record.precision = str(built.trainer.precision)

    def add(self, signals: Iterable[Signal]) -> None:
        """Add ``signals``, and write."""
        self.record.signals.extend(signals)
        self._write()

    def wanted(self, signals: Iterable[Signal]) -> list[Signal]:
        """Return ``signals`` without those that depend on the machine's speed, where the run only counts."""
        return [one for one in signals if one.kind not in TIMED or not self.order.untimed]

    def add_proof(self) -> None:
        """Add what proves that a compiled case compiled."""
        if self.order.case.compile:
            self.add(one for one in compilation.signals(self.model) if one.name in PROOF)

    def end(self, status: Any, error: str | None = None) -> None:
        """Write the record for the last time: ``finished``, or ``failed`` with its ``error``."""
        self.record.status, self.record.error = status, error
        if error:
            self._keep_compilation()
        self.record.finished = datetime.now(UTC)
        if self.order.case.lane == "gpu":
            self.record.gpu_after = gpus.gpu_states()
        self._write()
        self.progress.say(status)

    def _keep_compilation(self) -> None:
        """Add what was compiled until now to the record of a failed run: where it broke is what a reader wants."""
        if not self.order.case.compile or self.model is None or self.record.signal("graphs"):
            return
        with contextlib.suppress(Exception):  # the run's own error is the one to tell
            self.record.signals.extend(compilation.signals(self.model))

    def _write(self) -> None:
        write_record(self.order.record_path, self.record)


def _fingerprint(order: Order) -> environment.Environment:
    found = environment.collect(order.case.lane)
    found = found.model_copy(update={"cluster": cluster(order.case)})
    if order.patch is None:
        return found
    # A patched rfdetr is not the release it was installed as, and must not become a baseline.
    digest = file_digest(order.patch)[:8]  # two texts of one name are two changes
    source = f"{found.rfdetr_source}{PATCHED}{order.patch.name} ({digest})"
    return found.model_copy(update={"rfdetr_source": source, "rfdetr_dirty": True})
