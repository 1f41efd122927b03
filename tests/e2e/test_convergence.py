"""Real trainings of the reduced Nano on the real rfdetr: a sound one passes, and each that is broken is seen.

All of them run in one fixture, one a core, and are judged against the committed baseline.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from layouts import write_coco, write_yolo
from running import PATCHES, ROOT

from perf.case import find_case
from perf.judge import judge
from perf.launch import RunFailed, at_once, run_together
from perf.probes.convergence import AGREEMENT
from perf.record import Record
from perf.run_order import Order
from perf.verdicts import SignalVerdict

CASE = find_case("nano-cpu-b4-w0-convergence")
# None of the seeds in the baseline.
SEED = 100
BROKEN = ("without_class_loss", "mirrored_boxes", "learning_rate_0")
WRITERS = {"coco": write_coco, "yolo": write_yolo}


def order(folder: Path, name: str) -> Order:
    if name in WRITERS:
        case = CASE.model_copy(update={"data": name, "steps": 60})
        return Order(case, name, SEED, folder / name, data=WRITERS[name](folder / "data" / name, CASE))
    patch = ROOT / PATCHES / f"{name}.py" if name in BROKEN else None
    return Order(CASE, name, SEED, folder / name, patch=patch)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Order]:
    folder = tmp_path_factory.mktemp("records")
    return {name: order(folder, name) for name in ("sound", *BROKEN, *WRITERS)}


@pytest.fixture(scope="module")
def records(orders: dict[str, Order]) -> dict[str, Record]:
    done = run_together(list(orders.values()), at_once("cpu"), lambda _: None, timeout=900)
    assert not [str(found) for found in done.values() if isinstance(found, RunFailed)]
    return {found.session: found for found in done.values() if isinstance(found, Record)}


def verdict(record: Record) -> SignalVerdict:
    [case] = judge([record], ROOT / "baselines").cases
    return next(row for row in case.signals if row.signal == "map")


def test_a_sound_training_learns_and_passes(records: dict[str, Record]) -> None:
    row = verdict(records["sound"])

    assert row.verdict == "pass", row.message
    signal = records["sound"].signal("map")
    assert signal
    assert signal.value > 10 * max(signal.samples[0], 0.01) or signal.value > 0.5


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_training_is_seen(records: dict[str, Record], broken: str) -> None:
    row = verdict(records[broken])

    assert row.verdict == "regressed", row.message
    assert "the floor is" in row.message


@pytest.mark.parametrize("name", ["sound", *BROKEN, *WRITERS])
def test_both_evaluators_agree(records: dict[str, Record], name: str) -> None:
    gap = records[name].signal("evaluator_gap")

    assert gap
    assert gap.value <= AGREEMENT


@pytest.mark.parametrize("name", WRITERS)
def test_every_layout_is_learned_from(records: dict[str, Record], name: str) -> None:
    scores = records[name].signal("map")

    assert scores
    assert scores.value > 0.02  # of 60 steps; without learning it is 0.000
    assert f"{name} " in (records[name].environment.workload or "")


def test_what_it_leaves_is_beside_the_record(records: dict[str, Record], orders: dict[str, Order]) -> None:
    record, stem = records["sound"], orders["sound"].stem

    assert record.evidence == [stem.with_suffix(end).name for end in (".curve.json", ".metrics.csv", ".curve.svg")]
    rows = list(csv.DictReader(stem.with_suffix(".metrics.csv").read_text(encoding="utf-8").splitlines()))
    assert any(row.get("val/ema_mAP_50_95") for row in rows)
