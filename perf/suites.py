"""Suites: named sets of cases, a lane at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from perf.case import Case, Dynamic, Lane, Mode, MultiScale
from perf.configs import config_names


def _main(lane: Lane) -> list[Case]:
    base = _base(lane)
    return [base, _with(base, compile=True)]


def _base(lane: Lane, config: str = "nano") -> Case:
    return Case(config=config, lane=lane, batch_size=2 if lane == "cpu" else 4)


def _compiled(lane: Lane, config: str = "nano") -> Case:
    """Return the compiled case of a config; on a CPU a capture without Inductor: seconds instead of minutes."""
    return _with(_base(lane, config), compile=True, backend="eager" if lane == "cpu" else "inductor")


def _with(case: Case, **changes: object) -> Case:
    return Case.model_validate({**case.model_dump(), **changes})


def _configs(lane: Lane) -> list[Case]:
    """Every shipped config compiled; on a GPU the eager twin too, which says when compiling pays back."""
    compiled = [_compiled(lane, config) for config in config_names()]
    return compiled if lane == "cpu" else [case for c in compiled for case in (_base(lane, c.config), c)]


MULTI_SCALES: tuple[MultiScale, ...] = ("off", "per-batch", "per-sample")


def _shapes(lane: Lane) -> list[Case]:
    """Every combination of the settings that decide which shapes reach the model, over one epoch."""
    # No worker: the data set draws from this process' random numbers, so that an epoch is the same every time.
    epoch = _with(_compiled(lane), workers=0, measure="epoch")
    return [
        _with(epoch, multi_scale=scale, expanded_scales=expanded, square=square)
        for scale, expanded, square in itertools.product(MULTI_SCALES, (True, False), (True, False))
    ]


def _backward(lane: Lane) -> list[Case]:
    """The same with the backward captured too: Inductor has it anyway, and on two cores it takes minutes a case."""
    return [_with(case, backend="aot_eager") if lane == "cpu" else case for case in _shapes(lane)]


DYNAMICS: tuple[Dynamic, ...] = ("on", "off", "auto")
MODES: tuple[Mode, ...] = ("default", "reduce-overhead", "max-autotune-no-cudagraphs")


def _settings(lane: Lane) -> list[Case]:
    """What ``torch.compile`` and Dynamo can be told, each on the work of the same compiled step."""
    base = _compiled(lane)
    cases = [base, *(_with(base, dynamic=dynamic) for dynamic in DYNAMICS)]
    cases += [_with(base, suppress_errors=on) for on in (True, False)]
    cases += [_with(base, capture_scalars=on) for on in (True, False)]
    inductor = _with(base, backend="inductor")
    # A cold Inductor compile of the reduced model takes minutes on two cores.
    dynamics: tuple[Dynamic, ...] = ("rfdetr", *DYNAMICS) if lane == "gpu" else ("rfdetr",)
    cases += [_with(inductor, mode=mode, dynamic=dynamic) for mode in MODES[1:] for dynamic in dynamics]
    return [*cases, _with(inductor, cuda_graphs=True)]


def _parity(lane: Lane) -> list[Case]:
    """The compiled step against the eager one: in the precision in use and in fp32."""
    if lane == "cpu":  # whose precision in use is fp32
        nano = _with(_base(lane), compile=True, measure="parity")
        return [nano, *(_with(_compiled(lane, c), backend="aot_eager", measure="parity") for c in config_names())]
    cases = [_with(_compiled(lane, config), measure="parity") for config in config_names()]
    return [case for c in cases for case in (c, _with(c, precision="fp32"))]


def _distributed(lane: Lane) -> list[Case]:
    """One process, the same through DDP, and two: eager and compiled, and what Dynamo's DDPOptimizer changes."""
    plain = [_base(lane), _compiled(lane)]
    through = [_with(case, strategy="ddp") for case in plain]
    two = [_with(case, devices=2) for case in plain]
    whole = _with(two[-1], optimize_ddp="off")
    # A data set read by rfdetr's own loader: a fixed batch has nothing to wait for.
    epoch = _with(_base(lane), measure="epoch", workers=0 if lane == "cpu" else 2)
    return [*plain, *through, *two, whole, *(_with(epoch, devices=devices) for devices in (1, 2))]


def _convergence(lane: Lane) -> list[Case]:
    """Whole trainings, eager and compiled, from random weights."""
    if lane == "cpu":  # no worker: eight small images, and two cores to train two seeds on
        base = _with(_base(lane), batch_size=4, workers=0, measure="convergence")
        return [base, _with(base, compile=True, backend="eager")]
    base = _with(_base(lane), batch_size=16, measure="convergence")
    return [base, _with(base, compile=True)]


def _fit(lane: Lane) -> list[Case]:
    """The real training loop over a real loader, eager and compiled: where its time goes."""
    return [_with(case, measure="fit") for case in (_base(lane), _compiled(lane))]


def _quick(lane: Lane) -> list[Case]:
    """What a pull request is measured with first: Nano eager and compiled, and a compiled segmentation model."""
    return [_base(lane), _compiled(lane), _compiled(lane, "seg-nano")]


def _collapse(lane: Lane) -> list[Case]:
    """The shortest training that tells whether it still learns."""
    return _convergence(lane)[:1]


def _input(lane: Lane) -> list[Case]:
    """Samples read as a training reads them, without one."""
    return [_with(_base(lane), measure="input")]


DEFAULT_SUITE = "main"
_MAKERS: dict[str, Callable[[Lane], list[Case]]] = {
    DEFAULT_SUITE: _main,
    "configs": _configs,
    "shapes": _shapes,
    "shapes-backward": _backward,
    "settings": _settings,
    "parity": _parity,
    "distributed": _distributed,
    "convergence": _convergence,
    "fit": _fit,
    "quick": _quick,
    "collapse": _collapse,
    "input": _input,
}
SUITES = tuple(_MAKERS)
LANES: tuple[Lane, ...] = ("gpu", "cpu")


def suite(name: str, lane: Lane) -> tuple[Case, ...]:
    """Return the cases of a suite on one lane.

    Raises:
        ValueError: no such suite; the message lists the known ones.
    """
    if name not in _MAKERS:
        msg = f"unknown suite {name!r}; known: {', '.join(SUITES)}"
        raise ValueError(msg)
    return tuple(dict.fromkeys(_MAKERS[name](lane)))


def catalogue() -> dict[str, Case]:
    """Return every case of every suite by id, in a stable order."""
    return {case.id: case for name in SUITES for lane in LANES for case in suite(name, lane)}
