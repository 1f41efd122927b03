"""What an A/B session is asked for: two sides, cases and pairs, from the command line or from its folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.baselines import FOLDER
from perf.case import Case, find_case
from perf.compare import BASE
from perf.dataset import check_unchanged, read_data_set
from perf.gates import WALL_ERROR
from perf.launch import prepared_at_once
from perf.quality_gates import MARGIN
from perf.record import Kind, Record, file_digest, read_any, read_model, write_model
from perf.run_order import CRASH, MANIFEST, Order
from perf.sequential import Look, least_pairs, looks

SIDES: tuple[Literal["base"], Literal["head"]] = ("base", "head")
# Enough for +5 % in 95 of 100 where run medians scatter by 1.7 % (tests/unit/test_procedure.py).
MOST_PAIRS = 10
# Without wall signals there is nothing to wait for. Counts need one run and GPU busy two; of three, one that another
# job disturbed makes no false alarm (tests/unit/test_procedure.py). So two that pass are enough, and a third confirms.
PAIRS_WITHOUT_WALL, PASSING_PAIRS = 3, 2
# Pairs of seeds of a training; docs/convergence.md says what they can tell.
SEED_PAIRS = 8


class Side(BaseModel):
    """What one side measures: ``told`` is what the user asked for, ``python`` the interpreter that has it installed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    told: str
    python: Path
    patch: Path | None = None
    # Of the patch's text: a session that goes on with another one would pool two heads.
    patch_sha256: str = ""


class Manifest(BaseModel):
    """What an A/B session was asked for; kept beside its records, so that it can go on and be judged again.

    ``against`` is the base's case where that is another one; ``margin`` the mAP that a head may lose; ``data`` the data
    set that trainings learn from, where it is not the generated one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: Side
    head: Side
    cases: list[str]
    pairs: int = Field(ge=1)
    gate: list[Kind]
    against: str | None = None
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    data: Path | None = None

    @property
    def timed(self) -> bool:
        """Whether wall time decides."""
        return "wall" in self.gate


class Experiment(NamedTuple):
    """One A/B session: what it was asked for, where its records go and its baselines lie, and who is told.

    ``within`` are the folders that lie between the records folder and this one, where it is part of something larger.
    """

    manifest: Manifest
    cases: Sequence[Case]
    folder: Path
    tell: Callable[[str], None]
    baselines: Path = FOLDER
    timeout: float = 3600.0
    at_once: int | None = None
    within: Path = Path()

    @property
    def runs_at_once(self) -> int:
        """How many runs may prepare beside each other: one where wall time decides, or the lane is the CPU's."""
        if self.manifest.timed:
            return 1
        return self.at_once or prepared_at_once(self.cases[0].lane)

    @property
    def turn(self) -> Path:
        """The lock file by which runs beside each other take turns."""
        return self.folder / "turn.lock"

    def order(self, side: Literal["base", "head"], case: Case, run: int) -> Order:
        """Return the order of one run of one side."""
        what: Side = getattr(self.manifest, side)
        return Order(
            case=self.case_of(side, case),
            # Unique, since run 0 of one session's base and of another's are not one run.
            session=(self.within / self.folder.name / side).as_posix(),
            run=run,
            folder=self.folder / side,
            patch=what.patch,
            python=what.python,
            data=self.manifest.data if case.takes_data else None,
        )

    def case_of(self, side: str, case: Case) -> Case:
        """Return what one side measures for ``case``, which is what the head does."""
        return find_case(self.manifest.against) if self.manifest.against and side == BASE else case

    def records(self, side: str, case: Case) -> list[Record]:
        """Return what one side has of a case so far, by run."""
        folder = self.folder / side / self.case_of(side, case).id
        return read_any(folder)

    def crashed(self, side: Literal["base", "head"], case: Case) -> list[Order]:
        """Return the orders of the runs of one side that ended before they began a record."""
        found = (self.folder / side / self.case_of(side, case).id).glob(f"run-*{CRASH}")
        runs = sorted(int(path.name.removeprefix("run-").removesuffix(CRASH)) for path in found)
        return [self.order(side, case, run) for run in runs]

    def looks(self, case: Case) -> list[Look]:
        """Return the looks at ``case``, the last of them at ``manifest.pairs``; a training is looked at once."""
        most = self.manifest.pairs
        if self.manifest.timed and not case.trains:
            return looks(most, WALL_ERROR / 2, len(self.cases))
        early = () if case.trains or most <= PASSING_PAIRS else (PASSING_PAIRS,)
        return [Look(pairs, WALL_ERROR / 2) for pairs in (*early, most)]


def experiment_of(options: argparse.Namespace, tell: Callable[[str], None]) -> Experiment:
    """Return the session that the command line asks for.

    Raises:
        ValueError: an unknown case, a file that is not there, or both sides the same; says which.
    """
    from perf.session import chosen_cases, lane_here, new_name, on_data

    cases = on_data(chosen_cases(options.case, lane_here(options.lane), options.suite), options.data)
    against = _against(options, cases)
    if options.data:
        read_data_set(options.data)  # what is wrong with it is told before anything trains
    sides = [_side(options, side) for side in SIDES]
    alike = against is None or against == cases[0]
    if not options.same and alike and (sides[0].python, sides[0].patch) == (sides[1].python, sides[1].patch):
        msg = (
            "base and head are the same Python and the same patch: give --base-python or --head-python of another "
            "environment (nox -s ab-2.14 makes both), or --head-patch, or --base-case; or --same, to measure "
            "unchanged code"
        )
        raise ValueError(msg)
    gate = sorted({"quality"} if against else options.gate)  # two cases have nothing else in common
    timed = "wall" in gate and not all(case.trains for case in cases)
    least = least_pairs(WALL_ERROR / 2, len(cases))
    manifest = Manifest(
        base=sides[0],
        head=sides[1],
        cases=[case.id for case in cases],
        pairs=options.pairs or _default_pairs(cases, gate, least),
        gate=gate,
        against=against.id if against else None,
        margin=options.margin,
        data=options.data.resolve() if options.data else None,
    )
    folder = _folder(options, f"ab-{new_name()}")
    if options.resume is not None and not (folder / MANIFEST).is_file():
        msg = f"--resume {options.resume}: no A/B session of that name in {options.records}"
        raise ValueError(msg)
    if timed and manifest.pairs < least:
        few = f"at most {manifest.pairs} pairs of runs"
        tell(f"note: {few} prove no change of time, however large; it takes {least} or more")
    return Experiment(manifest, cases, folder.resolve(), tell, options.baselines, options.run_timeout, options.at_once)


def _default_pairs(cases: Sequence[Case], gate: Sequence[str], least: int) -> int:
    if all(case.trains for case in cases):
        return SEED_PAIRS
    return max(MOST_PAIRS, least) if "wall" in gate else PAIRS_WITHOUT_WALL


def _against(options: argparse.Namespace, cases: Sequence[Case]) -> Case | None:
    """Return the base's own case, where one is asked for.

    Raises:
        ValueError: it is no training, or one by another recipe, or there is more than one case to hold against it.
    """
    from perf.recipe import recipe_of
    from perf.session import on_data

    if options.base_case is None:
        return None
    [base] = on_data([find_case(options.base_case)], options.data)
    if len(cases) != 1 or not (base.trains and cases[0].trains):
        msg = f"--base-case {options.base_case}: give one --case, and let both be trainings (...-convergence)"
        raise ValueError(msg)
    theirs, ours = (recipe_of(case).text for case in (base, cases[0]))
    if theirs != ours:
        msg = f"--base-case {base.id}: it trains {theirs}, and {cases[0].id} {ours}: give both the same steps and lane"
        raise ValueError(msg)
    return base


def recorded(folder: Path, baselines: Path) -> Experiment:
    """Return the A/B session whose records are in ``folder``, to be judged again.

    Raises:
        ValueError: as :func:`read_manifest`; or a case that no id of this suite names.
    """
    manifest = read_manifest(folder)
    cases = [find_case(case_id) for case_id in manifest.cases]
    return Experiment(manifest, cases, folder.resolve(), lambda _: None, baselines)


def _folder(options: argparse.Namespace, new: str) -> Path:
    """Return the session's folder; one to go on with may be given by its name or by its path."""
    if options.resume is None:
        return Path(options.records / new)
    return Path(options.resume) if (Path(options.resume) / MANIFEST).is_file() else options.records / options.resume


def _side(options: argparse.Namespace, name: str) -> Side:
    told, python, patch = (getattr(options, f"{name}{what}") for what in ("", "_python", "_patch"))
    for what, file in (("python", python), ("patch", patch)):
        if file and not file.is_file():
            msg = f"--{name}-{what} {file}: no such file"
            raise ValueError(msg)
    # Not resolved: the interpreter of an environment is a link to that of the system.
    return side_of(told, (python or Path(sys.executable)).absolute(), patch and patch.absolute())


def side_of(told: str, python: Path, patch: Path | None = None) -> Side:
    """Return a side with what identifies its patch."""
    return Side(told=told, python=python, patch=patch, patch_sha256=file_digest(patch) if patch else "")


def begin(experiment: Experiment) -> None:
    """Write what the session was asked for, or check that one that goes on is asked for the same.

    Raises:
        ValueError: the folder holds a session that was asked for something else, or learned from other data; says what.
    """
    path = experiment.folder / MANIFEST
    if not path.exists():
        write_model(path, experiment.manifest)
        return
    before, now = read_manifest(experiment.folder).model_dump(), experiment.manifest.model_dump()
    changed = [f"{name} {then}, now {then_now}" for name, then, then_now in _changes(before, now)]
    if changed:
        msg = f"{experiment.folder}: this session was asked for {'; '.join(changed)}; start a new one"
        raise ValueError(msg)
    if experiment.manifest.data:
        records = (one for side in SIDES for case in experiment.cases for one in experiment.records(side, case))
        check_unchanged(experiment.manifest.data, records)


def _changes(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[tuple[str, object, object]]:
    """Return what differs, a side's fields each for itself."""
    found: list[tuple[str, object, object]] = []
    for name in now:
        if isinstance(now[name], dict):
            found += _changes(before[name], now[name], f"{name}'s ")
        elif before[name] != now[name]:
            found.append((f"{prefix}{name}", before[name], now[name]))
    return found


def read_manifest(folder: Path) -> Manifest:
    """Return what the A/B session in ``folder`` was asked for.

    Raises:
        ValueError: no such file, or it cannot be read; names it.
    """
    return read_model(folder / MANIFEST, Manifest)
