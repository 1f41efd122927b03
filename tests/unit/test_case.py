from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from perf.case import CONFIGS, SUITE, Case, catalogue, find_case


def test_catalogue_maps_each_id_to_the_case_that_has_it() -> None:
    assert all(case.id == case_id for case_id, case in catalogue().items())


def test_no_two_cases_of_the_catalogue_share_an_id() -> None:
    cases = set(catalogue().values())

    assert len({case.id for case in cases}) == len(cases) == len(catalogue())


def test_the_suite_is_part_of_the_catalogue_and_in_its_lane() -> None:
    for lane, cases in SUITE.items():
        assert cases
        assert all(case.lane == lane and case.id in catalogue() for case in cases)


# Baselines are filed under these: another text for the same case would orphan them.
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Case(config="nano"), "nano-b4"),
        (Case(config="nano", compile=True), "nano-b4-compile"),
        (Case(config="nano", lane="cpu", batch_size=2, compile=True), "nano-cpu-b2-compile"),
        (Case(config="nano", lane="cpu", batch_size=2, compile=True, backend="eager"), "nano-cpu-b2-compile-eager"),
        (
            Case(config="seg-small", precision="bf16", cuda_graphs=True, multi_scale="per-batch", padded=True),
            "seg-small-b4-bf16-graphs-per-batch-padded",
        ),
        (Case(config="base", workers=0, devices=2), "base-b4-w0-x2"),
    ],
)
def test_ids_are_stable(case: Case, expected: str) -> None:
    assert case.id == expected


@pytest.mark.parametrize(
    "change",
    [
        {"config": "small"},
        {"lane": "cpu"},
        {"batch_size": 8},
        {"precision": "fp32"},
        {"compile": True},
        {"compile": True, "backend": "aot_eager"},
        {"cuda_graphs": True},
        {"multi_scale": "per-sample"},
        {"padded": True},
        {"workers": 0},
        {"devices": 2},
    ],
)
def test_every_field_shows_in_the_id(change: dict[str, object]) -> None:
    assert Case.model_validate({"config": "nano", **change}).id != Case(config="nano").id


def test_ids_are_safe_as_file_names() -> None:
    assert all(re.fullmatch(r"[a-z0-9_-]+", case_id) for case_id in catalogue())


def test_equal_cases_hash_alike_and_cannot_be_changed() -> None:
    case = Case(config="nano", batch_size=4)

    assert {case: 1}[Case(config="nano")] == 1
    with pytest.raises(ValidationError, match="frozen"):
        case.batch_size = 8


def test_find_case_returns_the_case() -> None:
    assert find_case("nano-b4-compile") == Case(config="nano", compile=True)


def test_an_unknown_id_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown case 'nano-b5'; known cases: ") as caught:
        find_case("nano-b5")

    assert all(case_id in str(caught.value) for case_id in catalogue())


def test_an_unknown_config_lists_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="unknown config 'tiny'; known: nano, small, ") as caught:
        Case(config="tiny")

    assert all(config in str(caught.value) for config in CONFIGS)


@pytest.mark.parametrize(
    "fields",
    [
        {"config": "nano", "backend": "eager"},
        {"config": "nano", "batch_size": 0},
        {"config": "nano", "devices": 0},
        {"config": "nano", "workers": -1},
        {"config": "nano", "lane": "tpu"},
        {"config": "nano", "speed": "fast"},
    ],
)
def test_impossible_cases_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Case.model_validate(fields)
