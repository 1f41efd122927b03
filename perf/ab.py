"""A/B sessions: base and head on one machine, their runs interleaved ABBA, until every answer is clear.

Each run is a fresh process of its side's own Python. A session that was interrupted goes on where it stopped: runs that
finished are not repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.baselines import FOLDER
from perf.case import Case, find_case
from perf.compare import BASE, HEAD, compare, judgement_of, known_noise, usable_pairs, warm_pairs
from perf.dataset import read_data_set
from perf.errors import error_line
from perf.gates import WALL_ERROR
from perf.judge import GATED, Options
from perf.launch import RunFailed, at_once, left_record, run_in_fresh_process, run_together
from perf.locks import alone
from perf.quality_gates import MARGIN
from perf.record import Kind, Record, explain, parse_json, read_records, write_model
from perf.run_order import MANIFEST, MINOR_VARIABLE, Order
from perf.sequential import Look, first_is_base, least_pairs, looks
from perf.session_gates import OneSession, more_pairs_may_tell
from perf.verdicts import CaseVerdict, Judgement, summarize

SIDES: tuple[Literal["base"], Literal["head"]] = ("base", "head")
# Enough for +5 % in 95 of 100 where run medians scatter by 1.7 % (tests/unit/test_procedure.py).
MOST_PAIRS = 10
# Without wall signals there is nothing to wait for. Counts need one run and GPU busy two; of three, one that another
# job disturbed makes no false alarm (tests/unit/test_procedure.py).
PAIRS_WITHOUT_WALL = 3
# The first runs of a compiled case fill the Inductor cache, and their pairs do not count.
MOST_COLD_PAIRS = 2
# Pairs of seeds of a training; docs/convergence.md says what they can tell.
SEED_PAIRS = 6


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
            data=self.manifest.data if case.trains else None,
        )

    def case_of(self, side: str, case: Case) -> Case:
        """Return what one side measures for ``case``, which is what the head does."""
        return find_case(self.manifest.against) if self.manifest.against and side == BASE else case

    def records(self, side: str, case: Case) -> list[Record]:
        """Return what one side has of a case so far, by run."""
        folder = self.folder / side / self.case_of(side, case).id
        return read_records(folder) if any(folder.rglob("*.record.json")) else []

    def looks(self, case: Case) -> list[Look]:
        """Return the looks at ``case``, the last of them at ``manifest.pairs``; a training is looked at once."""
        if "wall" not in self.manifest.gate or case.trains:
            return [Look(self.manifest.pairs, WALL_ERROR / 2)]
        return looks(self.manifest.pairs, WALL_ERROR / 2, len(self.cases))


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
    if not options.same and not against and (sides[0].python, sides[0].patch) == (sides[1].python, sides[1].patch):
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
        ValueError: it is no training, or there is more than one case to hold against it.
    """
    from perf.session import on_data

    if options.base_case is None:
        return None
    [base] = on_data([find_case(options.base_case)], options.data)
    if len(cases) != 1 or not (base.trains and cases[0].trains):
        msg = f"--base-case {options.base_case}: give one --case, and let both be trainings (...-convergence)"
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
    digest = hashlib.sha256(patch.read_bytes()).hexdigest() if patch else ""
    return Side(told=told, python=python, patch=patch, patch_sha256=digest)


def begin(experiment: Experiment) -> None:
    """Write what the session was asked for, or check that one that goes on is asked for the same.

    Raises:
        ValueError: the folder holds a session that was asked for something else; says what.
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
    path = folder / MANIFEST
    try:
        return Manifest.model_validate(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ValueError(explain(path, error)) from error


def measure(experiment: Experiment) -> Judgement:
    """Measure every case until its answer is clear or its pairs are spent, and return the judgement.

    Raises:
        ValueError: as :func:`begin`; a baseline that cannot be used; or runs of one side that cannot be pooled, as when
            its rfdetr was changed; or another process measures this session.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    with _alone(experiment.folder):
        begin(experiment)
        return _answers(experiment, measure_pairs)


def measure_all(experiment: Experiment) -> None:
    """Measure all pairs of every case, whatever the looks at them would say.

    Raises:
        ValueError: as :func:`measure`.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    with _alone(experiment.folder):
        begin(experiment)
        for case in experiment.cases:
            measure_pairs(experiment, case, experiment.manifest.pairs)


def judge_again(experiment: Experiment) -> Judgement:
    """Return the judgement of the records there are, look by look as they were looked at; measures nothing.

    Raises:
        ValueError: as :func:`measure`.
    """
    return _answers(experiment, lambda *_: None)


Measuring = Callable[[Experiment, Case, int], None]


def _answers(experiment: Experiment, measuring: Measuring) -> Judgement:
    found = [verdict for case in experiment.cases for verdict in answer(experiment, case, measuring)[1]]
    return judgement_of([_reproducible(case, experiment.manifest) for case in found])


def answer(experiment: Experiment, case: Case, measuring: Measuring) -> tuple[Look, list[CaseVerdict]]:
    """Return the look that answers a case, or the last, and the verdict then; before each look is ``measuring``."""
    looks = experiment.looks(case)
    for number, look in enumerate(looks, 1):
        measuring(experiment, case, look.pairs)
        found = judge_look(experiment, case, look)
        experiment.tell(f"{case.id}, look {number} of {len(looks)}: {_answer(found)}")
        if not _open(found):
            break
    return look, found


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Hold the session's lock: two processes would write the records of the same runs."""
    busy = f"{folder}: another process measures this session; wait for it, or start a new one"
    return alone(folder / "ab.lock", busy)


def _reproducible(case: CaseVerdict, manifest: Manifest) -> CaseVerdict:
    """Return the verdict with the command that measures both sides again."""
    minor = os.environ.get(MINOR_VARIABLE)
    words = [f"nox -s ab-{minor} --" if minor else "rfdetr-perf ab"]
    for name, side in ((BASE, manifest.base), (HEAD, manifest.head)):
        words.append(f"--{name} {shlex.quote(side.told)}")
        words += [] if minor else [f"--{name}-python {shlex.quote(str(side.python))}"]
        words += [f"--{name}-patch {shlex.quote(str(side.patch))}"] if side.patch else []
    words += [f"--base-case {manifest.against}"] if manifest.against else []
    words += [f"--case {case.case_id}", f"--pairs {manifest.pairs}"]
    words += [f"--margin {manifest.margin:g}"] if manifest.margin != MARGIN else []
    words += [f"--data {shlex.quote(str(manifest.data))}"] if manifest.data else []
    words += [f"--gate {','.join(manifest.gate)}"] if set(manifest.gate) != GATED and not manifest.against else []
    rows = [row.model_copy(update={"reproduce": " ".join(words)}) for row in case.signals]
    return case.model_copy(update={"signals": rows})


def measure_pairs(experiment: Experiment, case: Case, wanted: int) -> None:
    """Measure pair after pair until ``wanted`` count, or a run fails; of a training all pairs, several runs at once."""
    if case.trains:
        _train_pairs(experiment, case, wanted)
        return
    for pair in range(wanted + MOST_COLD_PAIRS):
        base, head = (experiment.records(side, case) for side in (BASE, HEAD))
        if warm_pairs(base, head) >= wanted:
            return
        experiment.tell(f"{case.id}: pair {pair + 1}, {warm_pairs(base, head)} of {wanted} that the next look needs")
        orders = [experiment.order(side, case, pair) for side in _turn(pair)]
        # Both, though the first may fail: what the other then does is half of the answer.
        finished = [_measure_run(order, experiment.tell, experiment.timeout) for order in orders]
        if not all(finished):
            return


def _train_pairs(experiment: Experiment, case: Case, wanted: int) -> None:
    """Train both sides with the same ``wanted`` seeds, unless they were; one that failed stays failed."""
    orders = [experiment.order(side, case, seed) for seed in range(wanted) for side in SIDES]
    fresh = [order for order in orders if _earlier(order) is None]
    experiment.tell(f"{case.id}: {wanted} seeds a side, {len(fresh)} of {len(orders)} trainings to go")
    done = run_together(fresh, experiment.at_once or at_once(case.lane), experiment.tell, experiment.timeout)
    for order, found in done.items():
        if isinstance(found, RunFailed):
            experiment.tell(f"{order.folder.name}: {order.case.id} run {order.run} failed: {found}")


def _turn(pair: int) -> tuple[Literal["base", "head"], ...]:
    return ("base", "head") if first_is_base(pair) else ("head", "base")


def _measure_run(order: Order, tell: Callable[[str], None], timeout: float) -> bool:
    """Measure one run unless it was, and return whether it finished.

    A run that failed stays failed: to repeat it until it does not would hide what fails now and then.
    """
    side = order.folder.name
    what = f"{side}: {order.case.id} run {order.run}"
    if (before := _earlier(order)) is not None:
        if before.status != "finished":
            tell(f"{what} failed before: {error_line(before.error or '')}; a new session measures it again")
        return before.status == "finished"
    try:
        run_in_fresh_process(order, lambda line: tell(f"{side}: {line}"), timeout)
    except RunFailed as failure:
        tell(f"{what} failed: {failure}")
        return False
    return True


def _earlier(order: Order) -> Record | None:
    """Return the record of a run that has ended by itself; None for none, and for one that was interrupted."""
    record = left_record(order)
    if record is None:
        return None
    interrupted = record.status == "running" or "KeyboardInterrupt" in error_line(record.error or "")
    return None if interrupted else record


def judge_look(experiment: Experiment, case: Case, look: Look) -> list[CaseVerdict]:
    """Judge one case at one look, with the error that this look may spend."""
    base, head = (experiment.records(side, case) for side in (BASE, HEAD))
    # No further than this look, though an interrupted session may have gone on.
    beyond = {record.run for record in usable_pairs(base, head)[0][look.pairs :]}
    base, head = ([record for record in side if record.run not in beyond] for side in (base, head))
    noise = known_noise(head, experiment.baselines) if "device" in experiment.manifest.gate else {}
    margin = experiment.manifest.margin
    session = OneSession(wall_error=2 * look.level, cases=len(experiment.cases), margin=margin, noise=noise)
    options = Options(
        gate=frozenset(experiment.manifest.gate), records_path=experiment.folder / HEAD, one_session=session
    )
    against = {case.id: experiment.case_of(BASE, case).id}
    return compare(base, head, options, expected=[case.id], against=against).cases


def _open(cases: Sequence[CaseVerdict]) -> bool:
    """Return whether more pairs can change the answer: a wall signal is undecided, and nothing has failed."""
    rows = [row for case in cases for row in case.signals]
    if any(row.verdict in ("failed", "not-compiled") for row in rows):
        return False
    return any(more_pairs_may_tell(row) for row in rows)


def _answer(cases: Sequence[CaseVerdict]) -> str:
    walls = [row for case in cases for row in case.signals if row.kind in ("wall", "quality") and row.verdict]
    return "; ".join(f"{row.signal} {row.verdict}: {row.message}" for row in walls) or summarize(cases)
