"""The plan of a sweep: which cell comes next, given what became of those before. Pure.

Everything is a function of the grid and of the cells so far, so that a sweep that was killed goes on where it was.

A series is one config, precision and lever over batch sizes. It begins at rfdetr's default batch, or lower where that
does not fit, and doubles until memory runs out; then batch sizes between two of them are tried where the rate
saturates, or where memory ran out before it did. With a budget the most telling cells come first and the rest is left
out; the order is:

1. the first series (bf16, eager), doubled until two doublings in a row gain less than 2 %: where does a bigger batch
   stop to pay?
2. each other lever in that precision that rfdetr has a keyword for, at the smallest batch within 2 % of the best so
   far, doubled once more as long as that gains 2 %, not where by the memory so far that would leave too little free;
3. the batch sizes between two doublings of the fastest series so far, where its rate saturates or memory runs out, and
   of others that could be faster there;
4. the fastest lever that can be tried in each other precision, at its batch;
5. the lever without a keyword; then all levers at rfdetr's default batch, where launches cost most; then the sizes
   between that are left, as in 3, of all series.

In 2 to 5 only cells count that can be recommended: rfdetr has keywords for them, and they leave some memory free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.case import Case, Lane, Precision
from perf.cells import HEADROOM, Cell, leaves
from perf.levers import Lever, Machine, case_of, settable, unsupported

# What "as fast as" means: batch sizes and settings within this share of the best are not told apart.
TOLERANCE = 0.02
FIRST_BATCH = 4  # rfdetr's default
MOST_BATCH = 1024
# At most so many sizes between two doublings.
REFINEMENTS = 2
# Images per second an image of the batch: more than any GPU has.
_RISING = 1e6


class Grid(BaseModel):
    """What a sweep is over. Without ``batch_sizes`` they are found: doubled until memory runs out, or at ``most``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    configs: tuple[str, ...]
    lane: Lane
    precisions: tuple[Precision, ...]
    levers: tuple[Lever, ...]
    batch_sizes: tuple[int, ...] = ()
    most: int = Field(default=MOST_BATCH, ge=1)


class Series(NamedTuple):
    """The cells that differ in batch size only."""

    config: str
    lane: Lane
    precision: Precision
    lever: Lever

    def case(self, batch_size: int) -> Case:
        """Return the case at one batch size."""
        return case_of(self.config, self.lane, self.precision, self.lever, batch_size)


Cells = dict[str, Cell]


def series_of(grid: Grid, machine: Machine) -> list[Series]:
    """Return the series that can be tried here, the first precision's first."""
    return [s for s in _all_series(grid) if not unsupported(s.config, s.precision, s.lever, machine)]


def refused(grid: Grid, machine: Machine) -> dict[Series, str]:
    """Return the series that cannot be tried here, and why."""
    told = {s: unsupported(s.config, s.precision, s.lever, machine) for s in _all_series(grid)}
    return {series: why for series, why in told.items() if why}


def _all_series(grid: Grid) -> Iterator[Series]:
    for config in grid.configs:
        for precision in grid.precisions:
            for lever in grid.levers:
                yield Series(config, grid.lane, precision, lever)


def next_case(grid: Grid, machine: Machine, cells: Cells, *, telling: bool, skipped: Iterable[str] = ()) -> Case | None:
    """Return the cell to measure next; None where nothing is left.

    ``telling``: only the most telling ones, in their order. ``skipped`` are ids that are not to be measured.
    """
    left = set(skipped)
    wanted = _telling(grid, machine, cells) if telling else _exhaustive(grid, machine, cells)
    return next((case for case in wanted if case.id not in cells and case.id not in left), None)


def _exhaustive(grid: Grid, machine: Machine, cells: Cells) -> Iterator[Case]:
    for series in series_of(grid, machine):
        yield from _given(series, grid, cells) if grid.batch_sizes else _ladder(series, grid, cells)
        if not grid.batch_sizes:
            yield from refinement(series, cells)


def _given(series: Series, grid: Grid, cells: Cells) -> Iterator[Case]:
    """Yield the batch sizes that were asked for, up to the first that does not fit."""
    for batch in sorted(set(grid.batch_sizes)):
        yield series.case(batch)
        if _does_not_fit(series, batch, cells):
            return


def _does_not_fit(series: Series, batch: int, cells: Cells) -> bool:
    cell = cells.get(series.case(batch).id)
    return cell is not None and cell.outcome == "out of memory"


def _too_large(series: Series, batch: int, cells: Cells) -> bool:
    """Return whether a batch does not fit, or leaves too little of the memory to be recommended."""
    cell = cells.get(series.case(batch).id)
    return cell is not None and (cell.outcome == "out of memory" or not leaves(cell, HEADROOM))


def _would_crowd(cell: Cell, batch: int, cells: Cells) -> bool:
    """Return whether a larger batch than ``cell``'s would leave too little memory, if what it takes rises as so far.

    What no batch changes is taken from the config's cell that took least. It saves a budget what would run out.
    """
    if cell.memory is None:
        return False
    of = (one.memory for one in cells.values() if one.case.config == cell.case.config)
    fixed = min(memory for memory in of if memory is not None)
    return fixed + (cell.memory - fixed) * batch / cell.case.batch_size > 1 - HEADROOM


def _ladder(series: Series, grid: Grid, cells: Cells, start: int = FIRST_BATCH) -> Iterator[Case]:
    """Yield doubled batch sizes until one does not fit; halved ones first where the first does not.

    A size that raised ends it too: a larger one would raise alike.
    """
    batch = min(start, grid.most)
    yield series.case(batch)
    while _does_not_fit(series, batch, cells) and batch > 1:
        batch //= 2
        yield series.case(batch)
    while batch * 2 <= grid.most and _worked(series, batch, cells):
        batch *= 2
        yield series.case(batch)


def _worked(series: Series, batch: int, cells: Cells) -> bool:
    """Return whether a larger batch is worth trying after this one; one that is still to come is assumed to work."""
    cell = cells.get(series.case(batch).id)
    return cell is None or cell.outcome in ("measured", "fell back", "not run")


def _telling(grid: Grid, machine: Machine, cells: Cells) -> Iterator[Case]:
    for config in grid.configs:
        possible = [series for series in series_of(grid, machine) if series.config == config]
        if possible:
            yield from _telling_of(possible, grid, cells)


def _telling_of(possible: Sequence[Series], grid: Grid, cells: Cells) -> Iterator[Case]:
    first = possible[0]
    yield from _until_saturated(first, grid, cells)
    alike = [series for series in possible[1:] if series.precision == first.precision]
    theirs = [series for series in alike if settable(series.lever)]
    for series in theirs:
        yield from _climb(series, _knee(first, grid, cells), grid, cells)
    yield from _refinements([first, *theirs], grid, cells)
    yield from _other_precisions(possible, first, grid, cells)
    for series in alike:
        if not settable(series.lever):
            yield from _climb(series, _knee(first, grid, cells), grid, cells)
    for series in alike:
        yield from (series.case(batch) for batch in _start(grid))
    yield from _refinements(possible, grid, cells)


def _refinements(possible: Sequence[Series], grid: Grid, cells: Cells) -> Iterator[Case]:
    """Yield the refinement of the fastest series, and of those that would be faster if they rose with the batch."""
    if grid.batch_sizes:
        return
    of_each = [best(_to_recommend(_measured([series], cells))) for series in possible]
    ranked = sorted((cell for cell in of_each if cell), key=lambda cell: -cell.rate)
    fastest = best(_to_recommend(ranked))
    for cell in ranked:
        for case in refinement(_series_with(cell, possible), cells, grid.most):
            at_most = cell.rate * case.batch_size / cell.case.batch_size
            if cell is fastest or (fastest and at_most > fastest.rate and settable(cell.lever)):
                yield case


def _other_precisions(possible: Sequence[Series], first: Series, grid: Grid, cells: Cells) -> Iterator[Case]:
    """Yield in each other precision the lever that is the fastest in the first one, of those that can be tried."""
    ranked = _to_recommend(_measured([s for s in possible if s.precision == first.precision], cells))
    ranked.sort(key=lambda cell: (-cell.rate, cell.case.batch_size))
    for precision in dict.fromkeys(series.precision for series in possible):
        if precision != first.precision:
            here = {series.lever: series for series in possible if series.precision == precision}
            fastest = next((cell for cell in ranked if cell.lever in here), None)
            if fastest:
                yield from _climb(here[fastest.lever], fastest.case.batch_size, grid, cells)
            else:
                yield from _climb(next(iter(here.values())), _start(grid)[0], grid, cells)


def _to_recommend(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that users can set and that leave some memory free; all of them where there is none of these."""
    return [cell for cell in cells if settable(cell.lever) and leaves(cell, HEADROOM)] or list(cells)


def _start(grid: Grid) -> tuple[int, ...]:
    return grid.batch_sizes[:1] or (min(FIRST_BATCH, grid.most),)


def _sizes(series: Series, grid: Grid, cells: Cells) -> Iterator[Case]:
    return _given(series, grid, cells) if grid.batch_sizes else _ladder(series, grid, cells)


def _until_saturated(series: Series, grid: Grid, cells: Cells) -> Iterator[Case]:
    """Yield the series' sizes until the last two brought less than the tolerance each."""
    flat, before = 0, 0.0
    for case in _sizes(series, grid, cells):
        yield case
        cell = cells.get(case.id)
        if cell is None or not cell.measured:
            continue
        flat = flat + 1 if cell.rate < (1 + TOLERANCE) * before else 0
        before = max(before, cell.rate)
        if flat == 2:
            return


def _climb(series: Series, start: int, grid: Grid, cells: Cells) -> Iterator[Case]:
    """Yield the series at ``start`` or what fits below it, and larger ones while each gains the tolerance."""
    sizes = [batch for batch in _possible_sizes(grid) if batch <= start][::-1] or [start]
    fitting = None
    for batch in sizes:
        yield series.case(batch)
        if not _too_large(series, batch, cells):
            fitting = batch
            break
    larger = [batch for batch in _possible_sizes(grid) if fitting is not None and batch > fitting]
    before = cells.get(series.case(fitting).id) if fitting is not None else None
    for batch in larger:
        if before is None or not before.measured or _too_large(series, batch, cells):
            return
        if _would_crowd(before, batch, cells):
            return
        yield series.case(batch)
        now = cells.get(series.case(batch).id)
        if now is None or now.rate < (1 + TOLERANCE) * before.rate:
            return
        before = now


def _possible_sizes(grid: Grid) -> list[int]:
    doubled = [2**power for power in range(grid.most.bit_length()) if 2**power <= grid.most]
    return sorted(set(grid.batch_sizes)) or doubled


def _knee(series: Series, grid: Grid, cells: Cells) -> int:
    """Return the smallest batch of a series that is as fast as its best; the first size where nothing was measured."""
    found = smallest_near_best(_to_recommend(_measured([series], cells)))
    return found.case.batch_size if found else _start(grid)[0]


def _measured(possible: Sequence[Series], cells: Cells) -> list[Cell]:
    of = {(s.config, s.precision, s.lever) for s in possible}
    return [c for c in cells.values() if c.measured and (c.case.config, c.case.precision, c.lever) in of]


def _series_with(cell: Cell, possible: Sequence[Series]) -> Series:
    return next(s for s in possible if (s.precision, s.lever) == (cell.case.precision, cell.lever))


def best(cells: Iterable[Cell]) -> Cell | None:
    """Return the fastest of these cells; of two alike the smaller batch."""
    return max(cells, key=lambda cell: (cell.rate, -cell.case.batch_size), default=None)


def smallest_near_best(cells: Sequence[Cell], tolerance: float = TOLERANCE) -> Cell | None:
    """Return the cell with the smallest batch within ``tolerance`` of the fastest; of two alike the faster."""
    fastest = best(cells)
    if fastest is None:
        return None
    near = [cell for cell in cells if cell.rate >= (1 - tolerance) * fastest.rate]
    return min(near, key=lambda cell: (cell.case.batch_size, -cell.rate))


def refinement(series: Series, cells: Cells, foreseeing: int = 0) -> Iterator[Case]:
    """Yield the batch size halfway to the smallest that is as fast as the best, from the next smaller one.

    Where the rate still rises at the largest size that leaves some memory free, it is the one halfway to the next.
    ``foreseeing``: up to this size, what would leave too little memory by what smaller ones take is not tried.
    """
    of = [cell for cell in _measured([series], cells) if leaves(cell, HEADROOM)]
    near = smallest_near_best(of)
    tried = [cell for cell in cells.values() if _is_between(cell, series)]
    if near is None or len(tried) >= REFINEMENTS:
        return
    sizes, batch = {cell.case.batch_size for cell in of}, near.case.batch_size
    smaller = max((size for size in sizes if size < batch), default=batch)
    too_large = _end(series, near, cells, foreseeing) if batch == max(sizes) else batch
    between = _between(batch, too_large) or _between(smaller, batch)
    if between is not None and not _too_large(series, between, cells):
        yield series.case(between)


def _end(series: Series, cell: Cell, cells: Cells, foreseeing: int) -> int:
    """Return the smallest size that leaves too little memory, measured or foreseen; where there is none, ``cell``'s."""
    batch = cell.case.batch_size
    ahead = 2 * batch if 2 * batch <= foreseeing and _would_crowd(cell, 2 * batch, cells) else batch
    end = min(_sizes_too_large(series, cells), default=ahead)
    while foreseeing and (middle := _between(batch, end)) and _would_crowd(cell, middle, cells):
        end = middle
    return end


def _sizes_too_large(series: Series, cells: Cells) -> list[int]:
    sizes = {cell.case.batch_size for cell in cells.values()}
    return [size for size in sizes if _too_large(series, size, cells)]


def _is_between(cell: Cell, series: Series) -> bool:
    """Return whether this is a cell of the series at no doubled size."""
    batch = cell.case.batch_size
    return cell.case == series.case(batch) and batch & (batch - 1) != 0


def _between(low: int, high: int) -> int | None:
    """Return a batch size halfway, a multiple of 4; None where there is none, or the two are close already."""
    middle = (low + high) // 2 // 4 * 4
    return middle if low < middle < high and high - low >= max(8, high // 8) else None


def foreseen(grid: Grid, machine: Machine, cells: Cells, *, telling: bool) -> list[Case]:
    """Return the cells that are still to come as far as that can be told now: nothing is known to run out or saturate.

    So it is the most there can be, but for sizes between two doublings. Of the most telling cells it is about as many:
    which they are the rates decide, and here those of the first series rise and the others are as its best.
    """
    if not telling:
        return list(dict.fromkeys(case for case in _exhaustive(grid, machine, cells) if case.id not in cells))
    found, assumed = list[Case](), dict(cells)
    while case := next_case(grid, machine, assumed, telling=True):
        found.append(case)
        assumed[case.id] = Cell(case, "measured", rate=_assumed_rate(case, grid, machine, assumed))
    return found


def _assumed_rate(case: Case, grid: Grid, machine: Machine, cells: Cells) -> float:
    first = next(series for series in series_of(grid, machine) if series.config == case.config)
    if case == first.case(case.batch_size):
        return _RISING * case.batch_size
    found = best(_measured([first], cells))
    return (found.rate if found else 1.0) + 1e-6 * case.batch_size  # of two alike the larger batch
