from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from perf.case import Case, find_case, parse_id
from perf.configs import KNOWN, config_names
from perf.suites import catalogue


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
        (Case(config="nano", strategy="ddp"), "nano-b4-ddp"),
        (
            Case(config="nano", compile=True, devices=8, nodes=2, optimize_ddp="off"),
            "nano-b4-compile-x8-nodes2-optimize-ddp-off",
        ),
        (
            Case(config="nano", compile=True, dynamic="auto", mode="reduce-overhead", suppress_errors=True),
            "nano-b4-compile-dynamic-auto-reduce-overhead-suppress-on",
        ),
        (
            Case(config="nano", multi_scale="per-sample", expanded_scales=False, square=False, measure="epoch"),
            "nano-b4-per-sample-unexpanded-nonsquare-epoch",
        ),
        (Case(config="nano", workers=8, measure="input", data="cells"), "nano-b4-w8-input-on-cells"),
        (Case(config="nano", measure="fit"), "nano-b4-fit"),
        (Case(config="nano", batch_size=64, precision="fp8", measure="throughput"), "nano-b64-fp8-throughput"),
        (Case(config="nano", measure="epochs", steps=3, data="coco2017"), "nano-b4-epochs-s3-on-coco2017"),
        (Case(config="nano", compile=True, workers=8, measure="fit"), "nano-b4-compile-w8-fit"),
        (
            Case(config="nano", measure="fit", steps=50, accumulate=4, augmentation="gpu", data="cells"),
            "nano-b4-fit-s50-gpu-aug-accumulate4-on-cells",
        ),
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
        {"nodes": 2},
        {"strategy": "ddp"},
        {"compile": True, "devices": 2, "optimize_ddp": "on"},
        {"compile": True, "dynamic": "off"},
        {"compile": True, "mode": "reduce-overhead"},
        {"compile": True, "suppress_errors": False},
        {"compile": True, "capture_scalars": False},
        {"expanded_scales": False},
        {"square": False},
        {"measure": "epoch"},
        {"measure": "input"},
        {"measure": "fit"},
        {"measure": "fit", "accumulate": 2},
    ],
)
def test_every_field_shows_in_the_id(change: dict[str, object]) -> None:
    assert Case.model_validate({"config": "nano", **change}).id != Case(config="nano").id


def test_ids_are_safe_as_file_names() -> None:
    assert all(re.fullmatch(r"[a-z0-9_-]+", case_id) for case_id in catalogue())


def test_a_fit_takes_a_data_set_and_trains_nothing_that_is_scored() -> None:
    case = Case(config="nano", measure="fit", accumulate=2, steps=50)

    assert (case.takes_data, case.trains) == (True, False)
    assert case.eager == Case(config="nano")


def test_equal_cases_hash_alike_and_cannot_be_changed() -> None:
    case = Case(config="nano", batch_size=4)

    assert {case: 1}[Case(config="nano")] == 1
    with pytest.raises(ValidationError, match="frozen"):
        case.batch_size = 8


def test_the_eager_case_does_the_same_work() -> None:
    fields: dict[str, Any] = {"config": "nano", "batch_size": 8, "precision": "bf16", "padded": True}
    compiled = Case(**fields, compile=True, backend="eager", dynamic="on", suppress_errors=True, measure="parity")
    assert compiled.eager == Case(**fields)
    assert compiled.eager.eager == compiled.eager


@pytest.mark.parametrize(
    ("case", "ranks", "distributed"),
    [
        (Case(config="nano"), 1, False),
        (Case(config="nano", strategy="ddp"), 1, True),
        (Case(config="nano", devices=4, nodes=2), 8, True),
    ],
)
def test_a_case_says_how_many_processes_it_takes(case: Case, ranks: int, distributed: bool) -> None:
    assert (case.ranks, case.distributed) == (ranks, distributed)


def test_find_case_returns_the_case() -> None:
    assert find_case("nano-b4-compile") == Case(config="nano", compile=True)


CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "config": st.sampled_from(KNOWN),
    "batch_size": st.integers(1, 300),
    "workers": st.integers(0, 64),
    "devices": st.sampled_from([1, 1, 2, 16]),
    "nodes": st.sampled_from([1, 1, 1, 12]),
    "strategy": st.sampled_from(["auto", "auto", "ddp"]),
    "optimize_ddp": st.sampled_from(["torch", "torch", "on", "off", "python-reducer"]),
    "suppress_errors": st.none() | st.booleans(),
    "capture_scalars": st.none() | st.booleans(),
    "steps": st.none() | st.integers(2, 5000),
    "accumulate": st.sampled_from([1, 1, 1, 8]),
    "data": st.just("shapes") | st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True),
}


def choice(name: str) -> st.SearchStrategy[Any]:
    kind = Case.model_fields[name].annotation
    return CHOICES[name] if name in CHOICES else st.booleans() if kind is bool else st.sampled_from(get_args(kind))


def a_case(fields: dict[str, Any]) -> Case | None:
    try:
        return Case.model_validate(fields)
    except ValidationError:  # settings that need compile
        return None


# A few settings at a time: most draws of all of them at once contradict each other.
few = st.lists(st.sampled_from(list(Case.model_fields)), max_size=6, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({"config": choice("config"), **{name: choice(name) for name in names}})
)


@given(few.map(a_case))
def test_an_id_tells_the_whole_case(case: Case | None) -> None:
    assume(case)
    assert case
    assert parse_id(case.id) == case
    assert find_case(case.id) == case


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nano",
        "nano-b",
        "nano-b0",
        "nano-b04",
        "nano-b4-",
        "nano-b4-w2",
        "nano-b4-eager",
        "nano-b4-graphs-compile",
        "Nano-b4",
        "nano-b4-compile-dynamic-maybe",
        "nano-b4-parity",
        "nano-b4 ",
    ],
)
def test_what_is_no_id_is_no_case(text: str) -> None:
    assert parse_id(text) is None


def test_an_unknown_id_names_the_closest_few_and_where_all_are() -> None:
    with pytest.raises(ValueError, match="unknown case 'nano-b4-compiled'; the closest: nano-b4-compile, ") as caught:
        find_case("nano-b4-compiled")

    named = [case_id for case_id in re.split("[;,:] ", str(caught.value)) if case_id in catalogue()]
    assert len(named) == 3
    assert str(caught.value).endswith("; rfdetr-perf cases lists them all")


def test_an_id_that_is_like_none_is_told_where_all_are() -> None:
    with pytest.raises(ValueError, match=r"^unknown case 'nosuch'; rfdetr-perf cases lists them all$"):
        find_case("nosuch")


def test_an_unknown_config_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="case 'tiny-b4': unknown config 'tiny'; known: nano, small, ") as caught:
        find_case("tiny-b4")

    assert all(config in str(caught.value) for config in config_names())


@pytest.mark.parametrize(
    "fields",
    [
        {"config": "nano", "backend": "eager"},
        {"config": "nano", "dynamic": "on"},
        {"config": "nano", "mode": "reduce-overhead"},
        {"config": "nano", "suppress_errors": False},
        {"config": "nano", "measure": "parity"},
        {"config": "Nano"},
        {"config": "../nano"},
        {"config": "nano", "batch_size": 0},
        {"config": "nano", "devices": 0},
        {"config": "nano", "devices": 2, "strategy": "ddp"},
        {"config": "nano", "devices": 2, "optimize_ddp": "off"},
        {"config": "nano", "compile": True, "optimize_ddp": "off"},
        {"config": "nano", "compile": True, "devices": 2, "measure": "parity"},
        {"config": "nano", "workers": -1},
        {"config": "nano", "lane": "tpu"},
        {"config": "nano", "speed": "fast"},
    ],
)
def test_impossible_cases_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Case.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"steps": 10}, "steps and data are of a training"),
        ({"data": "cells"}, "steps and data are of a training"),
        ({"augmentation": "gpu"}, "needs a data set"),
        ({"measure": "convergence", "padded": True}, "padded is of the fixed batch"),
        ({"measure": "convergence", "devices": 2}, "a training is scored in one process"),
        ({"measure": "convergence", "data": "Blood Cells"}, "should match pattern"),
        ({"measure": "input", "steps": 10}, "steps and data are of a training"),
        ({"measure": "input", "padded": True}, "padded is of the fixed batch"),
        ({"measure": "input", "compile": True}, "input is read without a model"),
        ({"measure": "input", "precision": "bf16"}, "input is read without a model"),
        ({"measure": "input", "devices": 2}, "input is read without a model"),
        ({"measure": "convergence", "accumulate": 2}, "accumulate is of a fit"),
        ({"measure": "fit", "padded": True}, "padded is of the fixed batch"),
        ({"measure": "fit", "devices": 2}, "measure='fit' is of one process"),
    ],
)
def test_what_a_training_alone_has_is_refused_elsewhere(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Case(config="nano", **fields)


def test_a_training_says_what_it_learns_from_in_its_id() -> None:
    case = Case(config="nano", batch_size=16, measure="convergence", steps=1000, augmentation="gpu", data="blood-cells")

    assert case.id == "nano-b16-convergence-s1000-gpu-aug-on-blood-cells"
    assert case.trains
    assert not case.eager.trains
