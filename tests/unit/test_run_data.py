from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import CPU_EAGER

from perf import run_data
from perf.case import Case
from perf.photos import PhotoSpec, write_photos
from perf.probes.input_pipeline import InputProbe, one_thread
from perf.record import Signal
from perf.run import Run
from perf.run_order import Order

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(case=CPU_EAGER, session="s1", run=0, folder=tmp_path / "s1")


INPUT = Case(config="nano", lane="cpu", batch_size=2, measure="input")


@pytest.mark.parametrize(
    ("case", "changes", "said"),
    [
        (INPUT, {"untimed": True}, "input is mostly time: measure it without --untimed"),
        (INPUT.model_copy(update={"config": "keypoint-preview"}), {}, "no keypoints; give a data set with them"),
    ],
)
def test_an_input_that_cannot_be_measured_says_what_to_do(
    case: Case, changes: dict[str, Any], said: str, order: Order, benchmark: Any
) -> None:
    with pytest.raises(ValueError, match=said):
        Run(replace(order, case=case, **changes)).measure(benchmark)


def test_an_input_is_measured_without_a_model_and_names_its_data(
    order: Order, benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(probe: InputProbe) -> Iterator[list[Signal]]:
        probe.notes.append("augment_gpu not measured")
        yield probe._own([0, 1])

    monkeypatch.setattr(InputProbe, "measure", measure)
    monkeypatch.setattr(run_data, "PHOTOS", PhotoSpec(images=1, width=64, height=48))
    [own] = write_photos(tmp_path / "own", PhotoSpec(images=1, width=64, height=48), ["png"]).values()
    generated = Run(replace(order, case=INPUT)).measure(benchmark)
    given = Run(replace(order, case=INPUT.model_copy(update={"data": "own"}), data=own, run=1)).measure(benchmark)

    for record in (generated, given):
        names = [signal.name for signal in record.signals]
        assert names == ["getitem", "decode_share", "resize_share", "input_python_calls", "input_c_calls"]
        assert "augment_gpu not measured" in record.notes
    assert generated.environment.workload == "1 generated photographs of 64 x 48 px (version 1)"
    assert given.environment.workload
    assert given.environment.workload.startswith("own ")
