from __future__ import annotations

import itertools

import pytest

from perf import suites
from perf.case import Case, Lane
from perf.configs import config_names
from perf.suites import LANES, MULTI_SCALES, SUITES, catalogue, suite


def test_the_catalogue_maps_each_id_to_the_case_that_has_it() -> None:
    assert all(case.id == case_id for case_id, case in catalogue().items())
    cases = set(catalogue().values())
    assert len({case.id for case in cases}) == len(cases) == len(catalogue())


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("name", SUITES)
def test_a_suite_stays_in_its_lane_and_repeats_no_case(name: str, lane: Lane) -> None:
    cases = suite(name, lane)
    assert cases
    assert len(set(cases)) == len(cases)
    assert {case.lane for case in cases} == {lane}


def test_an_unknown_suite_lists_the_known_ones() -> None:
    known = "main, configs, shapes, shapes-backward, settings, parity, distributed"
    with pytest.raises(ValueError, match=f"unknown suite 'all'; known: {known}"):
        suite("all", "cpu")


@pytest.mark.parametrize("lane", LANES)
def test_every_shipped_config_is_compiled(lane: Lane) -> None:
    assert {case.config for case in suite("configs", lane) if case.compile} == set(config_names())


def test_on_a_gpu_every_compiled_config_has_its_eager_twin() -> None:
    cases = suite("configs", "gpu")
    assert {case.model_copy(update={"compile": False}) for case in cases if case.compile} == {
        case for case in cases if not case.compile
    }


def test_a_config_that_is_new_in_rfdetr_is_measured_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "config_names", lambda: (*config_names(), "brand-new"))
    assert Case(config="brand-new", compile=True) in suite("configs", "gpu")


@pytest.mark.parametrize("lane", LANES)
def test_a_fit_is_measured_eager_and_compiled(lane: Lane) -> None:
    eager, compiled = suite("fit", lane)

    assert eager.measure == compiled.measure == "fit"
    assert (eager.compile, compiled.compile, compiled.eager) == (False, True, eager.eager)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("name", ["shapes", "shapes-backward"])
def test_every_regime_of_shapes_is_there(name: str, lane: Lane) -> None:
    regimes = [(case.multi_scale, case.expanded_scales, case.square) for case in suite(name, lane)]
    assert sorted(regimes) == sorted(itertools.product(MULTI_SCALES, (True, False), (True, False)))
    assert {(case.measure, case.compile, case.workers) for case in suite(name, lane)} == {("epoch", True, 0)}
