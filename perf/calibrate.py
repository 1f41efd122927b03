"""Calibration: what the judge of an A/B session can see on this machine, and how often it is wrong.

Both sides are the same rfdetr. First both are unchanged: what is claimed then is a false alarm, and how runs scatter is
the noise. Then the head is slowed by a known amount. What so few runs cannot tell, the rates, is simulated with the
noise that was measured (:mod:`perf.simulation`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from perf.ab import answer, measure_all
from perf.case import Case
from perf.compare import BASE, HEAD, usable_pairs, warm_pairs
from perf.environment import Environment
from perf.experiment import Experiment, Manifest, side_of
from perf.judge import GATED
from perf.pool import by_signal
from perf.record import TIMED, Record, Signal, write_atomically
from perf.stats import log_changes, noise_of
from perf.verdicts import CaseVerdict

UNCHANGED = 0.0
STEP, BUSY = "step_time", "gpu_busy"
_TO_SECONDS = {"s": 1.0, "ms": 1e-3}


class Plan(NamedTuple):
    """What to calibrate: cases, ``pairs`` of runs each, ``slowdowns`` in percent, where records go, who is told.

    A slowed trial takes ``slowed_pairs``; None: as many as the unchanged one.
    """

    cases: Sequence[Case]
    pairs: int
    slowdowns: Sequence[float]
    folder: Path
    baselines: Path
    tell: Callable[[str], None]
    python: Path
    timeout: float = 3600.0
    slowed_pairs: int | None = None


class Scatter(NamedTuple):
    """How the runs of one signal scatter with unchanged code.

    ``runs`` are in ``unit``. ``sd`` is the standard deviation of log(run) within a side, ``paired`` that of log(head /
    base) of a pair over sqrt(2): what a run would scatter by if nothing were shared within a pair. None: no ratio.
    """

    name: str
    kind: str
    unit: str
    runs: list[float]
    sd: float | None
    paired: float | None


class Trial(NamedTuple):
    """One real experiment: the head slowed by ``percent`` (0: unchanged), and the verdict after ``pairs`` pairs."""

    case: Case
    percent: float
    pairs: int
    verdict: CaseVerdict


class Calibration(NamedTuple):
    """What was found on one device: by case each signal's scatter over ``pairs`` unchanged pairs, and every trial."""

    environment: Environment
    pairs: int
    scatter: dict[str, list[Scatter]]
    trials: list[Trial]


def calibrate(plan: Plan) -> Calibration:
    """Measure every case unchanged and slowed, resuming what was measured already.

    Raises:
        ValueError: a run failed, so that there is nothing to calibrate with; names the case.
    """
    scatter: dict[str, list[Scatter]] = {}
    trials: list[Trial] = []
    environments: list[Environment] = []
    for case in plan.cases:
        unchanged = _experiment(plan, case, UNCHANGED, None)
        trials.append(_trial(unchanged, case, UNCHANGED))
        base, head = (unchanged.records(side, case) for side in (BASE, HEAD))
        scatter[case.id] = _scatter(base, head, case)
        environments += [record.environment for record in base]
        for percent in plan.slowdowns:
            patch = _write_patch(plan.folder / f"{case.id}-plus-{percent:g}.py", scatter[case.id], percent / 100)
            trials.append(_trial(_experiment(plan, case, percent, patch), case, percent))
    return Calibration(environments[0], plan.pairs, scatter, trials)


def _experiment(plan: Plan, case: Case, percent: float, patch: Path | None) -> Experiment:
    name, pairs = ("unchanged", plan.pairs) if patch is None else (f"plus-{percent:g}", plan.slowed_pairs or plan.pairs)
    manifest = Manifest(
        base=side_of("this rfdetr", plan.python),
        head=side_of(f"the same, {name}", plan.python, patch),
        cases=[case.id],
        pairs=pairs,
        gate=sorted(GATED),
    )
    folder = plan.folder.resolve()
    within = Path(folder.name, case.id)
    return Experiment(manifest, [case], folder / case.id / name, plan.tell, plan.baselines, plan.timeout, within=within)


def _trial(experiment: Experiment, case: Case, percent: float) -> Trial:
    """Measure all pairs, and say what the looks at them would have: the first clear answer stands."""
    measure_all(experiment)
    pairs, asked = warm_pairs(*(experiment.records(side, case) for side in (BASE, HEAD))), experiment.manifest.pairs
    if pairs < asked:
        msg = f"{case.id}: no calibration, since a run failed: {pairs} of {asked} pairs; see {experiment.folder}"
        raise ValueError(msg)
    look, [verdict] = answer(experiment, case, lambda *_: None)
    return Trial(case, percent, look.pairs, verdict)


def _scatter(base: Sequence[Record], head: Sequence[Record], case: Case) -> list[Scatter]:
    earlier, now = usable_pairs(base, head)
    if len(earlier) < 2:
        msg = f"{case.id}: {len(earlier)} pairs of runs tell nothing of their scatter; take 2 or more"
        raise ValueError(msg)
    before, after = by_signal(earlier), by_signal(now)
    return [
        _scatter_of(before[name], after[name]) for name in before if name in after and before[name][0].kind in GATED
    ]


def _scatter_of(base: Sequence[Signal], head: Sequence[Signal]) -> Scatter:
    first, second = ([signal.value for signal in side] for side in (base, head))
    timed = base[0].kind in TIMED and min(*first, *second) > 0 and len(first) == len(second)
    spreads = [noise_of(side) for side in (first, second)]
    sd = statistics.fmean([spread.variance for spread in spreads]) ** 0.5 if timed else None
    paired = statistics.stdev(log_changes(first, second)) / 2**0.5 if timed else None
    return Scatter(base[0].name, base[0].kind, base[0].unit, [*first, *second], sd, paired)


def _write_patch(path: Path, scatter: Sequence[Scatter], share: float) -> Path:
    """Write a patch file that adds ``share`` of the step's time to the host's and of its busy time to the GPU's."""
    host, gpu = (share * _median_seconds(scatter, name) for name in (STEP, BUSY))
    text = (
        f'"""Slows every training step by {host:.6g} s of the host and {gpu:.6g} s of the GPU."""\n\n'
        f"from perf.rfdetr_slowdown import slow_down\n\nslow_down({host!r}, {gpu!r})\n"
    )
    if not path.exists():  # of a session that goes on: what it measured was slowed by what stands there
        write_atomically(path, text)
    return path.absolute()


def _median_seconds(scatter: Sequence[Scatter], name: str) -> float:
    found = next((signal for signal in scatter if signal.name == name), None)
    return statistics.median(found.runs) * _TO_SECONDS[found.unit] if found else 0.0
