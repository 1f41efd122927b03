"""What to train with, from the cells of sweeps. Pure.

The recommended setting is the fastest one that was measured and keeps the headroom: no cell is guessed from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perf.case import Case
from perf.cells import HEADROOM, Cell, leaves
from perf.input_rate import fewest_workers, input_bound, loader_rates
from perf.levers import LEVERS, settable
from perf.record import Record
from perf.sweep_plan import FIRST_BATCH, TOLERANCE, best, smallest_near_best

# COCO 2017 train.
IMAGES = 118_287
# rfdetr's default.
WORKERS = 2
# A change is worth naming that gains so much.
WORTH = 0.05


class Payback(NamedTuple):
    """When a lever's first step is paid back: ``epochs`` of so many images; None: never, it is no faster.

    ``eager`` is what it is held against; ``cold`` whether the first step included a cold compile.
    """

    eager: Cell
    cell: Cell
    epochs: float | None
    cold: bool


class Change(NamedTuple):
    """One thing to change: what, how many times as fast that is, and the two cells that say so (None: the loader's)."""

    what: str
    gain: float
    before: Cell | None = None
    after: Cell | None = None


class Advice(NamedTuple):
    """What the cells of one config on one device say.

    ``fastest`` keeps the headroom and is what is recommended; None where no cell was measured that does.
    ``smallest`` has the smallest batch within 2 % of it. ``levers`` are the fastest of each lever, with the headroom
    where one has it. ``changes`` are what to change first, largest gain first, against ``default``; that is None where
    no cell differs from it in batch size or lever alone. ``loader`` says what so many workers yield in images per
    second, and ``workers`` how many to take.
    """

    config: str
    cells: Sequence[Cell]
    fastest: Cell | None
    smallest: Cell | None
    levers: Sequence[Cell]
    payback: Payback | None
    default: Cell | None
    changes: Sequence[Change]
    loader: Mapping[int, float]
    workers: int | None
    busy_note: str


def advise(
    cells: Sequence[Cell],
    *,
    headroom: float = HEADROOM,
    images: int = IMAGES,
    loader: Mapping[str, Mapping[int, float]] | None = None,
) -> list[Advice]:
    """Return the advice for each config among ``cells``, which are of one device.

    ``loader``: images per second that rfdetr's loader gave, by config, whose size it resizes to, and number of workers.
    """
    configs = dict.fromkeys(cell.case.config for cell in cells)
    of = {config: [cell for cell in cells if cell.case.config == config] for config in configs}
    return [_advice(config, found, headroom, images, (loader or {}).get(config, {})) for config, found in of.items()]


def _advice(config: str, cells: Sequence[Cell], headroom: float, images: int, loader: Mapping[int, float]) -> Advice:
    allowed = candidates(cells, headroom)
    fastest = best(allowed)
    smallest = smallest_near_best(allowed)
    return Advice(
        config,
        cells,
        fastest,
        smallest,
        _fastest_of_levers(cells, headroom),
        payback(fastest, cells, images, headroom) if fastest else None,
        compared(allowed, fastest) if fastest else None,
        changes(allowed, fastest, loader) if fastest else [],
        loader,
        workers_for(fastest.rate, loader) if fastest else None,
        _busy_note(fastest),
    )


def _fastest_of_levers(cells: Sequence[Cell], headroom: float) -> list[Cell]:
    """Return the fastest cell of each lever that was measured, with the headroom where one has it."""
    found = []
    for lever in LEVERS:
        of = [cell for cell in cells if cell.measured and cell.lever == lever]
        found.append(best([cell for cell in of if leaves(cell, headroom)] or of))
    return [cell for cell in found if cell]


def candidates(cells: Iterable[Cell], headroom: float) -> list[Cell]:
    """Return the cells that can be recommended: measured, with the headroom, and settable.

    rfdetr has no keyword for Inductor's reduce-overhead: it is measured and shown, and nobody can ask for it.
    """
    return [c for c in cells if c.measured and leaves(c, headroom) and settable(c.lever)]


def payback(chosen: Cell, cells: Iterable[Cell], images: int, headroom: float = HEADROOM) -> Payback | None:
    """Return when the compile of ``chosen`` is paid back, or that of the fastest cell that has an eager one beside it.

    That is the one of the same batch size and precision; None where there is no such pair. The fastest pulls the lever
    of ``chosen`` and has the headroom where one does; the eager one, that it is held against, need not.
    """
    measured = [cell for cell in cells if cell.measured and settable(cell.lever)]
    pairs = [cell for cell in measured if cell.case.compile and _twin(cell, measured)]
    kept = [cell for cell in pairs if leaves(cell, headroom)]
    alike = [cell for cell in kept if cell.lever == chosen.lever]
    compiled = chosen if chosen in pairs else best(alike or kept or pairs)
    eager = _twin(compiled, measured) if compiled else None
    if compiled is None or eager is None or compiled.first_step is None or eager.first_step is None:
        return None
    saved = images / eager.rate - images / compiled.rate
    cost = max(0.0, compiled.first_step - eager.first_step)
    return Payback(eager, compiled, cost / saved if saved > 0 else None, compiled.cold)


def _twin(cell: Cell, cells: Iterable[Cell]) -> Cell | None:
    """Return the eager cell of the same batch size and precision."""
    same = (cell.case.batch_size, cell.case.precision)
    return next((c for c in cells if c.lever == "eager" and (c.case.batch_size, c.case.precision) == same), None)


def changes(allowed: Sequence[Cell], fastest: Cell, loader: Mapping[int, float]) -> list[Change]:
    """Return what to change first of rfdetr's defaults (batch 4, eager, 2 workers), largest gain first.

    Each is held against the default alone, at what of the sweep can be recommended. Workers come first where the loader
    is slower than the default step: nothing else helps then.
    """
    default = _default(allowed, fastest)
    found = [] if default is None else [*_batch(default, allowed), *_levers(default, allowed)]
    found = sorted((one for one in found if one.gain >= 1 + WORTH), key=lambda one: -one.gain)
    slow = _workers(default.rate if default else fastest.rate, fastest.rate, loader)
    return [*([slow] if slow else []), *found]


def compared(allowed: Sequence[Cell], fastest: Cell) -> Cell | None:
    """Return the cell nearest to rfdetr's defaults; None where no other shows what one change of it brings."""
    default = _default(allowed, fastest)
    others = [] if default is None else [*_eager_like(default, allowed), *_twins(default, allowed)]
    return default if any(cell is not default for cell in others) else None


def _default(allowed: Sequence[Cell], fastest: Cell) -> Cell | None:
    """Return the cell nearest to rfdetr's defaults: eager, at the smallest batch from 4 on, in the usual precision."""
    eager = [cell for cell in allowed if cell.lever == "eager"]
    usual = [c for c in eager if c.case.precision == ("bf16" if _has(eager, "bf16") else fastest.case.precision)]
    return min(usual, key=lambda c: (c.case.batch_size < FIRST_BATCH, c.case.batch_size), default=None)


def _has(cells: Iterable[Cell], precision: str) -> bool:
    return any(cell.case.precision == precision for cell in cells)


def _batch(default: Cell, allowed: Sequence[Cell]) -> list[Change]:
    larger = smallest_near_best(_eager_like(default, allowed))
    if larger is None or larger is default:
        return []
    return [Change(f"batch_size={larger.case.batch_size}", larger.rate / default.rate, default, larger)]


def _eager_like(default: Cell, allowed: Sequence[Cell]) -> list[Cell]:
    return [c for c in allowed if c.lever == "eager" and c.case.precision == default.case.precision]


_NAMES = {
    "compile": "compile=True",
    "graphs": "cuda_graphs=True",
    "both": "compile=True and cuda_graphs=True",
}


def _levers(default: Cell, allowed: Sequence[Cell]) -> list[Change]:
    twins = _twins(default, allowed)
    return [Change(_NAMES[cell.lever], cell.rate / default.rate, default, cell) for cell in twins]


def _twins(default: Cell, allowed: Sequence[Cell]) -> list[Cell]:
    """Return the cells of other levers at the same batch size and precision."""
    same = (default.case.batch_size, default.case.precision)
    return [c for c in allowed if c.lever != "eager" and (c.case.batch_size, c.case.precision) == same]


def _workers(now: float, wanted: float, loader: Mapping[int, float]) -> Change | None:
    """Return the change of workers where those of the default cannot feed the default step."""
    count = workers_for(wanted, loader)
    if not count or WORKERS not in loader or not input_bound(loader[WORKERS], now) or count == WORKERS:
        return None
    return Change(f"num_workers={count}", min(now, loader[count]) / loader[WORKERS])


def workers_for(rate: float, loader: Mapping[int, float]) -> int | None:
    """Return the fewest workers measured that feed ``rate`` images per second, or else those that yield most.

    None where the loader was not measured with any.
    """
    of = {workers: found for workers, found in loader.items() if workers}  # without one the step waits for each image
    return fewest_workers(of, rate) or max(of, key=lambda count: (of[count], -count), default=None)


def _busy_note(cell: Cell | None) -> str:
    if cell is None or cell.busy is None:
        return ""
    share = f"the GPU is busy for {100 * cell.busy:.0f} % of a step"
    return share if cell.busy >= 0.8 else f"{share}: the host is the limit, and a faster CPU would help"


def best_loader_rates(records: Iterable[Record]) -> dict[str, dict[int, float]]:
    """Return the loader's images per second by config and workers: the best of the finished records with it."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        for workers, rate in loader_rates(record.signals).items() if record.status == "finished" else ():
            of = found.setdefault(record.case.config, {})
            of[workers] = max(rate, of.get(workers, 0.0))
    return found


class Check(NamedTuple):
    """How far the recommended setting of some cells is from the best of all cells. ``share`` is of the best's rate.

    None is ``recommended`` where no cell was measured that can be: then ``share`` is 0.
    """

    recommended: Cell | None
    best: Cell
    share: float

    @property
    def holds(self) -> bool:
        """Whether it is within 2 % of the best."""
        return self.share >= 1 - TOLERANCE


def check(partial: Sequence[Cell], exhaustive: Sequence[Cell], headroom: float = HEADROOM) -> list[Check]:
    """Hold what is recommended from ``partial`` cells against the best of an ``exhaustive`` sweep, config by config.

    The rate of the recommended setting is that which the exhaustive sweep measured, where it tried it: two sessions of
    one setting differ by the host's noise. One that was not measured there, though it was tried, has none.
    """
    found = []
    for advice in advise(partial, headroom=headroom):
        fastest = best(c for c in candidates(exhaustive, headroom) if c.case.config == advice.config)
        if fastest:
            found.append(Check(advice.fastest, fastest, _rate_in(exhaustive, advice.fastest) / fastest.rate))
    return found


def _rate_in(exhaustive: Sequence[Cell], recommended: Cell | None) -> float:
    if recommended is None:
        return 0.0
    tried = next((c for c in exhaustive if c.case == recommended.case), recommended)
    return tried.rate if tried.measured else 0.0


def model_arguments(case: Case) -> dict[str, object]:
    """Return the keywords of the model's constructor for a setting."""
    found: dict[str, object] = {}
    if case.compile:
        found["compile"] = True
    if case.cuda_graphs:
        found["cuda_graphs"] = True
    return found


def train_arguments(case: Case, workers: int | None = None) -> dict[str, object]:
    """Return the keywords of ``train()`` for a setting, as it was measured: one size, no accumulation."""
    found: dict[str, object] = {"batch_size": case.batch_size, "grad_accum_steps": 1}
    if case.precision != "auto":
        found["amp_dtype"] = None if case.precision == "fp32" else case.precision
    if workers is not None:
        found["num_workers"] = workers
    return {**found, "multi_scale": False}
