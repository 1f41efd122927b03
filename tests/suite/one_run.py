"""What a fresh process runs: one case, once. Not collected by itself; perf.launch names this file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perf.case import Case
from perf.cluster import place
from perf.session import Session


def test_one_run(case: Case, perf_session: Session, benchmark: Any, request: Any) -> None:
    from perf.run import Run  # torch and rfdetr come with it

    option = request.config.option
    order = replace(perf_session.order(case, option.one_run), rank=place(case).rank, turn=option.turn)
    record = Run(order).measure(benchmark)
    assert record.status == "finished"
    assert record.signals
