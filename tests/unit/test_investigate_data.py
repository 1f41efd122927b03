from __future__ import annotations

from pathlib import Path

import pytest

from perf import investigate_data
from perf.case import Case
from perf.dataset import read_data_set
from perf.investigate import on, reads
from perf.investigate_data import generated_data
from perf.photos import PhotoSpec
from perf.probes.fit import FIT_PLANS

FIT = Case(config="nano", lane="cpu", batch_size=2, measure="fit")
TRAINED = Case(config="nano", lane="cpu", batch_size=4, measure="convergence")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(investigate_data.SPECS, "cpu", PhotoSpec(images=4, width=64, height=48))


def test_the_photographs_are_a_data_set_that_lasts_for_the_fit(tmp_path: Path) -> None:
    found = read_data_set(generated_data(tmp_path, FIT))

    assert found.layout == "roboflow"
    assert len(found.train.images) >= FIT_PLANS["cpu"].updates * FIT.batch_size
    assert len({image.path for image in found.train.images}) == 4
    assert len(found.valid.images) == 1
    assert found.valid.annotations
    assert [path.name for path in tmp_path.iterdir()] == ["photographs"]


def test_it_is_written_once(tmp_path: Path) -> None:
    first = generated_data(tmp_path, FIT)
    (first / "mark").touch()

    assert generated_data(tmp_path, FIT) == first
    assert (first / "mark").exists()


def test_nothing_is_left_of_one_that_was_not_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(investigate_data, "list_again", fail)
    with pytest.raises(OSError):  # noqa: PT011
        generated_data(tmp_path, FIT)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_learned_from_generated_photographs(tmp_path: Path) -> None:
    generated, given = tmp_path / "photographs", tmp_path / "cells"

    assert [case.id for case in on([FIT, TRAINED], generated)] == [
        "nano-cpu-b2-fit-on-photographs",
        "nano-cpu-b4-convergence",
    ]
    assert [case.data for case in on([FIT, TRAINED], given)] == ["cells", "cells"]
    assert on([Case(config="nano")], generated) == [Case(config="nano")]
    with pytest.raises(ValueError, match="none of these cases trains"):
        on([Case(config="nano")], given)
    assert not reads(Case(config="nano"), given)
