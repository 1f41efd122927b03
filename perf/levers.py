"""Levers: the settings that a sweep tries, and why some cannot be tried here. Imports neither torch nor rfdetr."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any, Literal, NamedTuple, get_args

from perf.case import Case, Lane, Precision
from perf.environment import software
from perf.gpus import gpu_capability, gpu_states

Lever = Literal["eager", "compile", "graphs", "both", "reduce-overhead"]
LEVERS: tuple[Lever, ...] = get_args(Lever)
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32", "fp8")
# Transformer Engine's FP8 begins with Ada; rfdetr refuses less (training/trainer.py, _min_fp8_capability).
_FP8 = (8, 9)
_SETTINGS: dict[Lever, dict[str, Any]] = {
    "eager": {},
    "compile": {"compile": True},
    "graphs": {"cuda_graphs": True},
    "both": {"compile": True, "cuda_graphs": True},
    "reduce-overhead": {"compile": True, "mode": "reduce-overhead"},
}
_REPLAY = ("graphs", "both", "reduce-overhead")


class Machine(NamedTuple):
    """What decides which settings can be tried. ``capability`` is the GPU's compute capability; None: not known."""

    lane: Lane
    rfdetr: tuple[int, ...]
    engine: bool = False
    capability: tuple[int, int] | None = None


def machine_here(lane: Lane) -> Machine:
    """Return what this machine and this environment can be asked for.

    Raises:
        ValueError: rfdetr is not installed here.
    """
    try:
        release = str(software()["rfdetr"]).split(".")[:2]
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    engine = importlib.util.find_spec("transformer_engine") is not None
    capability = gpu_capability() if lane == "gpu" and gpu_states() else None
    return Machine(lane, tuple(int(part) for part in release if part.isdigit()), engine, capability)


@functools.cache  # a plan asks for the same cases again after every cell
def case_of(config: str, lane: Lane, precision: Precision, lever: Lever, batch_size: int) -> Case:
    """Return the case of one cell. On a CPU a compile is a capture without Inductor, and fp32 is what rfdetr takes."""
    settings = dict(_SETTINGS[lever])
    if lane == "cpu" and lever == "compile":
        settings["backend"] = "eager"
    return Case(config=config, lane=lane, batch_size=batch_size, precision=precision, measure="throughput", **settings)


def lever_of(case: Case) -> Lever:
    """Return the lever that a cell's case pulls."""
    if case.mode == "reduce-overhead":
        return "reduce-overhead"
    if case.compile:
        return "both" if case.cuda_graphs else "compile"
    return "graphs" if case.cuda_graphs else "eager"


def settable(lever: Lever) -> bool:
    """Return whether rfdetr has keywords for a lever: it has none for Inductor's reduce-overhead."""
    return lever != "reduce-overhead"


def unsupported(config: str, precision: Precision, lever: Lever, machine: Machine) -> str:
    """Return why this setting cannot be tried here, as a sentence's end; empty where it can."""
    return _precision_problem(precision, machine) or _lever_problem(config, precision, lever, machine)


def _precision_problem(precision: Precision, machine: Machine) -> str:
    if machine.lane == "cpu":
        return (
            ""
            if precision in ("auto", "fp32")
            else f"rfdetr trains in fp32 on a CPU, whatever is asked: {precision} is not"
        )
    if precision != "fp8":
        return ""
    if machine.rfdetr < (1, 11):
        return "fp8 came with rfdetr 1.11"
    if not machine.engine:
        return "fp8 needs Transformer Engine, which is not installed (pip install transformer-engine[pytorch])"
    if machine.capability is not None and machine.capability < _FP8:
        return f"fp8 needs compute capability 8.9 or more, this GPU has {'.'.join(map(str, machine.capability))}"
    return ""


def _lever_problem(config: str, precision: Precision, lever: Lever, machine: Machine) -> str:
    """Return what rfdetr's own gates (training/module_model.py) or the machine say against a lever."""
    if lever not in _REPLAY:
        return ""
    if machine.lane == "cpu":
        return "CUDA graphs need an NVIDIA GPU"
    if precision == "fp8" and lever != "graphs":
        return "rfdetr replays fp8 by Transformer Engine's own graphs, without compile"
    if lever == "reduce-overhead":
        return ""
    if machine.rfdetr < (1, 11):
        return "cuda_graphs came with rfdetr 1.11"
    if config.startswith(("seg-", "keypoint-")):
        return "rfdetr captures the training of detection models only"
    if lever == "graphs" and precision in ("fp16", "fp32"):
        return f"rfdetr captures CUDA graphs in bf16 or fp8 only, not in {precision}"
    return ""
