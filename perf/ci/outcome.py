"""Outcomes: what one job left behind -> verdicts. Whatever is wrong with it is a verdict too, and never a pass."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict

from perf.case import Lane
from perf.ci.artifacts import JOB, admit
from perf.ci.machines import Cell
from perf.compare import BASE, HEAD
from perf.environment import Environment
from perf.expected import FILE_NAME, cases_not_run, expected_cases
from perf.judge import Options, judge
from perf.quality_gates import MARGIN
from perf.record import Record, read_any, read_model
from perf.record_files import take
from perf.report.section import Section
from perf.run_order import MANIFEST
from perf.suites import suite
from perf.verdicts import CaseVerdict, SignalVerdict, Verdict, exit_code, worst

# Stands for a case where the answer is about the job.
WHOLE_JOB = "(job)"
# Conclusions of a job by which its runs may be incomplete, whatever they say.
ENDED = {"cancelled": "was cancelled", "timed_out": "was ended for its time", "startup_failure": "did not start"}
UNSETTLED = (None, "success", "failure")


class Job(BaseModel):
    """What a job says of itself: the devices that it found, and what is wrong with them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: list[str]
    problem: str = ""


def job_verdict(cell: Cell, verdict: Verdict, message: str) -> CaseVerdict:
    """Return a verdict about a whole job."""
    row = SignalVerdict(case_id=WHOLE_JOB, signal=cell.id, kind="info", verdict=verdict, message=message)
    device = cell.devices[0].rstrip("*").rstrip("-")
    return CaseVerdict(case_id=WHOLE_JOB, verdict=verdict, runs=0, device=device, torch_minor=cell.torch, signals=[row])


def judge_cell(cell: Cell, folder: Path, baselines: Path, conclusion: str | None = None, problem: str = "") -> Section:
    """Return the verdicts on what the job of ``cell`` left in ``folder``, judged anew.

    ``conclusion`` is how GitHub says that the job ended, and ``problem`` what came between its artifact and here.
    """
    found = [job_verdict(cell, "failed", problem)] if problem else []
    head: list[Record] = []
    base: list[Record] = []
    if conclusion in ENDED:
        found.append(job_verdict(cell, "failed", f"the job {ENDED[conclusion]}: what it left is not all"))
    elif conclusion not in UNSETTLED:
        found.append(job_verdict(cell, "failed", f"the job was not run to its end: GitHub calls it {conclusion!r}"))
    if not problem:
        try:
            cases, head, base = _judged(cell, folder, baselines)
            found += cases
        except Exception as error:  # whoever wrote these files must not keep the verdict from being told
            what = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
            found.append(job_verdict(cell, "failed", f"cannot be judged: {_relative(what, folder)}"))
    if conclusion == "failure" and exit_code(worst(case.verdict for case in found)) == 0:
        found.append(job_verdict(cell, "failed", "the job failed, although what it left passes: its log says why"))
    return Section(cell.id, found, head, base)


def _relative(text: str, folder: Path) -> str:
    return text.replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")


def _judged(cell: Cell, folder: Path, baselines: Path) -> tuple[list[CaseVerdict], list[Record], list[Record]]:
    if not folder.is_dir():
        return [job_verdict(cell, "failed", "the job left no artifact")], [], []
    admit(folder)
    said = _said(cell, folder)
    cases = list(said)
    head: list[Record] = []
    base: list[Record] = []
    sessions = sorted(path.parent for path in folder.rglob(MANIFEST))
    for session in sessions:
        cases += _interleaved(cell, session, baselines)
        head += read_any(session / HEAD)
        base += read_any(session / BASE)
    for session in _others(folder, sessions):
        records = list(take(session).values()) if any(session.rglob("*.record.json")) else []
        cases += _reproduced(_alone(session, records, baselines), _alone_again(cell))
        head += records
    # On a machine that is not the label's nothing was begun: why is the first thing to read.
    cases += [] if said else _lacking(cell, folder, sessions)
    cases += [*_elsewhere(cell, [*head, *base]), *_another(cell, head, base)]
    return cases or [job_verdict(cell, "failed", "the job left no record")], head, base


def _said(cell: Cell, folder: Path) -> list[CaseVerdict]:
    """Return what the job says is wrong with its machine."""
    path = folder / JOB
    if not path.exists():
        return []
    job = read_model(path, Job)
    return [job_verdict(cell, "incompatible", job.problem)] if job.problem else []


def _interleaved(cell: Cell, session: Path, baselines: Path) -> list[CaseVerdict]:
    """Return the verdicts of an A/B session, if it is the one that was asked for."""
    from perf.ab import judge_again
    from perf.experiment import recorded

    experiment = recorded(session, baselines)
    manifest = experiment.manifest
    asked = {"base": (cell.base, manifest.base.told), "head": (cell.head, manifest.head.told)}
    wrong = [f"{name} {told}, asked for was {what}" for name, (what, told) in asked.items() if what != told]
    left_out = [kind for kind in cell.gate.split(",") if kind not in manifest.gate]
    wrong += [f"nothing gates {', '.join(left_out)}"] if left_out else []
    # Fewer pairs pass nothing that more would not, but a wider margin does.
    wrong += [f"a loss of {manifest.margin:g} mAP allowed"] if manifest.margin > MARGIN else []
    cases = [case.id for case in suite(cell.suite, _lane(cell)) if case.id not in manifest.cases] if cell.suite else []
    wrong += [f"without {', '.join(cases)}"] if cases else []
    found = [job_verdict(cell, "failed", f"measured was {'; '.join(wrong)}")] if wrong else []
    return [*found, *_reproduced(judge_again(experiment).cases, _interleaved_again(cell))]


def _reproduced(cases: Sequence[CaseVerdict], command: str) -> list[CaseVerdict]:
    """Return verdicts with our own command to measure a case again: that of a record is the pull request's own text."""
    found = []
    for case in cases:
        told = f"{command} --case {shlex.quote(case.case_id)}"
        rows = [row.model_copy(update={"reproduce": told if row.reproduce else ""}) for row in case.signals]
        found.append(case.model_copy(update={"signals": rows}))
    return found


def _interleaved_again(cell: Cell) -> str:
    told = ["--base", cell.base, "--head", cell.head, "--gate", cell.gate, "--pairs", str(cell.pairs)]
    return shlex.join(["nox", "-s", f"ab-{cell.torch}", "--", *(["--same"] if cell.base == cell.head else []), *told])


def _alone_again(cell: Cell) -> str:
    return shlex.join(["nox", "-s", f"perf-{cell.torch}", "--", "--rfdetr", cell.head])


def _lane(cell: Cell) -> Lane:
    return "cpu" if cell.takes("cpu") else "gpu"


def _others(folder: Path, sessions: Sequence[Path]) -> list[Path]:
    """Return the folders of the sessions that are no A/B sessions."""
    names = {path.parent for path in folder.rglob(FILE_NAME)}
    loose = {path.parent for path in folder.rglob("*.record.json")}
    within = [*sessions, *names]
    # A record beside no session file, as an interrupted session leaves it, lies in a folder of its case.
    names |= {path.parent for path in loose if not any(path.is_relative_to(session) for session in within)}
    return sorted(path for path in names if not any(path.is_relative_to(session) for session in sessions))


def _alone(session: Path, records: Sequence[Record], baselines: Path) -> list[CaseVerdict]:
    expected = expected_cases(session, records, baselines)
    not_run = cases_not_run(session, records)
    options = Options(records_path=session)
    return judge(records, baselines, expected=expected, not_run=not_run, options=options).cases


def _lacking(cell: Cell, folder: Path, sessions: Sequence[Path]) -> list[CaseVerdict]:
    """Return a verdict for each part of the job that left nothing: a session that was not even begun."""
    found = []
    if cell.base and not sessions:
        message = f"base was not held against head: there is no {MANIFEST}"
        found.append(job_verdict(cell, "failed", message))
    records = folder.rglob("*.record.json")
    there = {path.parent.name for path in records if not any(path.is_relative_to(session) for session in sessions)}
    # Those that the machine could not take have a verdict of their own, with why.
    there |= set(cases_not_run(folder, []))
    missing = [case.id for case in suite(cell.also, _lane(cell)) if case.id not in there] if cell.also else []
    if missing:
        found.append(job_verdict(cell, "failed", f"the head alone: no record of {', '.join(missing)}"))
    return found


def _elsewhere(cell: Cell, records: Sequence[Record]) -> list[CaseVerdict]:
    """Return a verdict where records are of another device or torch than the job's label promises."""
    places = {(record.environment.device, record.environment.torch_minor) for record in records}
    wrong = sorted((device, minor) for device, minor in places if not cell.takes(device) or minor != cell.torch)
    told = [f"{device} with torch {minor}" for device, minor in wrong]
    promised = f"{' or '.join(cell.devices)} with torch {cell.torch}"
    message = f"measured on {', '.join(told)}, and the label {cell.machine} promises {promised}"
    return [job_verdict(cell, "incompatible", message)] if told else []


def _another(cell: Cell, head: Sequence[Record], base: Sequence[Record]) -> list[CaseVerdict]:
    """Return a verdict where records are of another rfdetr than the job was to install, whatever its session says."""
    sides = (("head", cell.head, head), ("base", cell.base, base))
    told = {
        f"{name} {_installed(record)}, asked for was {asked}": None
        for name, asked, records in sides
        for record in records
        if not _is_of(record.environment, asked)
    }
    return [job_verdict(cell, "failed", f"measured was {'; '.join(told)}")] if told else []


def _installed(record: Record) -> str:
    environment = record.environment
    return f"{environment.rfdetr_source}@{environment.rfdetr_commit}".removesuffix("@None")


def _is_of(environment: Environment, asked: str) -> bool:
    """Return whether this is the rfdetr that ``asked`` names: a commit, a release, or whatever a branch had."""
    commit = re.search(r"@([0-9a-f]{40}(?:[0-9a-f]{24})?)$", asked)
    if commit:
        return environment.rfdetr_commit == commit[1]
    try:
        version = Version(asked)
    except InvalidVersion:
        return environment.rfdetr_commit is not None
    return environment.rfdetr_source.startswith("release ") and Version(environment.rfdetr) == version
