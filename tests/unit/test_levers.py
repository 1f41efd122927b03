from __future__ import annotations

import itertools
from importlib import metadata

import pytest

from perf.case import Precision, parse_id
from perf.cli import main
from perf.levers import LEVERS, PRECISIONS, Lever, Machine, case_of, lever_of, machine_here, unsupported

H200 = Machine("gpu", (1, 11), engine=True, capability=(9, 0))
PLAIN = Machine("gpu", (1, 11), engine=False, capability=(9, 0))


def test_a_cell_s_case_tells_its_lever_and_has_an_id() -> None:
    for precision, lever in itertools.product(PRECISIONS, LEVERS):
        case = case_of("nano", "gpu", precision, lever, 64)
        assert lever_of(case) == lever
        assert parse_id(case.id) == case


def test_on_a_cpu_a_compile_is_a_capture() -> None:
    assert case_of("nano", "cpu", "fp32", "compile", 2).id == "nano-cpu-b2-fp32-compile-eager-throughput"


@pytest.mark.parametrize(
    ("config", "precision", "lever", "machine", "why"),
    [
        ("nano", "bf16", "both", H200, ""),
        ("nano", "fp8", "graphs", H200, ""),
        ("nano", "fp16", "both", H200, ""),
        ("seg-nano", "bf16", "compile", H200, ""),
        ("seg-nano", "bf16", "reduce-overhead", H200, ""),
        ("nano", "fp32", "compile", Machine("cpu", (1, 11)), ""),
        ("nano", "fp8", "eager", PLAIN, "Transformer Engine, which is not installed"),
        ("nano", "fp8", "eager", H200._replace(capability=(8, 0)), "8.9 or more, this GPU has 8.0"),
        ("nano", "fp8", "eager", H200._replace(rfdetr=(1, 10)), "fp8 came with rfdetr 1.11"),
        ("nano", "fp8", "both", H200, "without compile"),
        ("nano", "fp8", "reduce-overhead", H200, "without compile"),
        ("nano", "fp16", "graphs", H200, "in bf16 or fp8 only, not in fp16"),
        ("nano", "bf16", "graphs", H200._replace(rfdetr=(1, 10)), "cuda_graphs came with rfdetr 1.11"),
        ("seg-nano", "bf16", "both", H200, "detection models only"),
        ("keypoint-preview", "bf16", "graphs", H200, "detection models only"),
        ("nano", "bf16", "eager", Machine("cpu", (1, 11)), "rfdetr trains in fp32 on a CPU"),
        ("nano", "fp32", "graphs", Machine("cpu", (1, 11)), "need an NVIDIA GPU"),
        ("nano", "fp32", "reduce-overhead", Machine("cpu", (1, 11)), "need an NVIDIA GPU"),
    ],
)
def test_what_cannot_be_tried_is_said(
    config: str, precision: Precision, lever: Lever, machine: Machine, why: str
) -> None:
    told = unsupported(config, precision, lever, machine)

    assert why in told
    assert bool(why) == bool(told)


def test_without_rfdetr_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(_: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", missing)

    assert main(["sweep", "--lane", "cpu", "--plan"]) == 2
    assert "rfdetr is not installed in this environment" in capsys.readouterr().err


def test_the_machine_here_is_that_of_the_installed_rfdetr() -> None:
    pytest.importorskip("rfdetr")

    found = machine_here("cpu")

    assert found.lane == "cpu"
    assert found.rfdetr >= (1, 9)
    assert found.capability is None
