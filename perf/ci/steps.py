"""The steps of the workflows, one function each: from the variables of a step to what it leaves and its exit code."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from perf.ci import branch as branches
from perf.ci.artifacts import COMMENT, JOB, PREFIX
from perf.ci.context import Context
from perf.ci.events import (
    MAY_ASK,
    Decision,
    LabelEvent,
    PullRequest,
    Run,
    RunEvent,
    Subject,
    cells_for,
    decide,
    tiers_asked,
)
from perf.ci.fetch import fetch, job_names, planned
from perf.ci.machines import CELL_ID, CELLS, LABELS, NIGHTLY, Cell, Tier, cells_of, chosen, read_machines
from perf.ci.outcome import Job
from perf.ci.publish import fork_point, history, publish, pull_requests_of
from perf.ci.refreshing import body_of, ended, open_branch, open_pull_request, refresh_sessions, sessions_in
from perf.ci.reporting import Place
from perf.ci.reporting import report as reported
from perf.commands.output import say, say_aside
from perf.environment import machine
from perf.matrix import MATRIX, known_failure
from perf.record import parse_json, read_model, write_atomically, write_model
from perf.report.annotations import annotate, changed_lines
from perf.report.comment import Origin
from perf.report.markdown import code
from perf.verdicts import EXIT_BAD_INPUT

NOXFILE = Path(__file__).resolve().parents[2] / "noxfile.py"
PAGE = "report.html"
# What else this suite uploads.
NO_CELLS = ("comment", "report", "trend", "calibration")
UPSTREAM = "git+https://github.com/roboflow/rf-detr.git@develop"
BRANCH = "perf-data"


class Prepared(BaseModel):
    """A comment that is to be written on a pull request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=1)
    text: str


def plan(context: Context, _: argparse.Namespace) -> int:
    """Decide what the label that was set asks for."""
    event = read_model(Path(context["GITHUB_EVENT_PATH"]), LabelEvent)
    asks = event.label is not None and event.label.name in LABELS
    decision = decide(event, _permission(context, event.sender.login) if asks else "none")
    cells = _cells(context, decision.tier, event.pull_request, ()) if decision.tier else []
    _planned(context, cells, decision)
    return 0


def _permission(context: Context, login: str) -> str:
    """Return what somebody may do here; "none" for whom GitHub does not know.

    Raises:
        OSError: GitHub does not say: that is no answer, and must not look like a label that asked for nothing.
    """
    try:
        return str(context.github.get(f"collaborators/{login}/permission").get("permission"))
    except FileNotFoundError:
        return "none"


def _cells(context: Context, tier: Tier, pull: PullRequest, ran: Collection[str]) -> list[Cell]:
    """Return the jobs on the machines that are asked for, and of the others those that ``ran`` all the same."""
    subject, machines = _subject(context), read_machines()
    fork = fork_point(context.github, pull) if subject == "rfdetr" else ""
    asked = chosen(machines, context.get("MACHINES"))
    cells = cells_for(tier, pull, machines, subject, fork)
    return [cell for cell in cells if cell.machine in asked or cell.id in ran]


def _subject(context: Context) -> Subject:
    subject = context.get("SUBJECT", "rfdetr")
    if subject not in get_args(Subject):
        msg = f"SUBJECT={subject}: one of {', '.join(get_args(Subject))}"
        raise ValueError(msg)
    return cast(Subject, subject)


def _planned(context: Context, cells: list[Cell], decision: Decision) -> None:
    context.output(cells=CELLS.dump_json(cells).decode(), wanted=str(bool(cells)).lower())
    context.summary(f"{code(decision.why)}; jobs: {', '.join(code(cell.id) for cell in cells) or 'none'}\n")
    say(f"{decision.why}; jobs: {', '.join(planned(cells)) or 'none'}\n")


def nightly(context: Context, _: argparse.Namespace) -> int:
    """Plan a night: each machine with each torch minor that nox has a session for and that can work."""
    machines = chosen(read_machines(), context.get("MACHINES"))
    minors = [minor for minor in minors_of(_sessions()) if known_failure(minor, compiled=False) is None]
    cells = cells_of(machines, NIGHTLY, "", context.get("HEAD", UPSTREAM), minors)
    _planned(context, cells, Decision(NIGHTLY, f"a night of {context.get('HEAD', UPSTREAM)}"))
    return 0


def _sessions() -> str:
    command = [sys.executable, "-m", "nox", "--noxfile", str(NOXFILE), "--list", "--json", "-k", "perf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"nox --list failed: {done.stderr.strip() or done.stdout.strip()}"
        raise ValueError(msg)
    return done.stdout


def minors_of(listing: str) -> list[str]:
    """Return the torch minors that nox's list of sessions, as JSON, has a session to measure with.

    Raises:
        ValueError: it has none.
    """
    names = [str(session["name"]) for session in json.loads(listing)]
    found = [name.removeprefix("perf-") for name in names if name.startswith("perf-")]
    found = [minor for minor in found if minor in MATRIX]
    if not found:
        msg = f"nox lists no session perf-MINOR: {listing[:200]!r}"
        raise ValueError(msg)
    return found


def check_device(context: Context, _: argparse.Namespace) -> int:
    """Check this machine against the label of its runner; what is found is left for the verdict."""
    [cell] = CELLS.validate_python([parse_json(context["CELL"])])
    problem = ""
    try:
        found = [machine("cpu" if cell.takes("cpu") else "gpu")[0]]
    except ValueError as error:
        found, problem = [], str(error)
    if found and not cell.takes(found[0]):
        problem = f"the runner has {found[0]}, and its label {cell.machine} promises {' or '.join(cell.devices)}"
    write_model(Path(context["RECORDS"]) / JOB, Job(devices=found, problem=problem))
    say(f"{problem or found[0]}\n")
    return EXIT_BAD_INPUT if problem else 0


def report(context: Context, options: argparse.Namespace) -> int:
    """Judge what the jobs of this run left: summary, page, annotations; the exit code is the worst verdict's."""
    run, cells = int(context["GITHUB_RUN_ID"]), context.cells
    origin = _origin(cells, context.run_page(run))
    page = options.folder / PAGE
    found = reported(_place(context, run), cells, options.folder / "artifacts", options.baselines, origin, page)
    context.summary(found.comment)
    context.command(annotate(found.sections, _changed(context)))
    say(f"{page}: written; exit code {found.exit_code}\n")
    return found.exit_code


def _place(context: Context, run: int) -> Place:
    repository = context["GITHUB_REPOSITORY"]
    return Place(context.github, run, context.get("SUITE", repository).lower() == repository.lower())


def _origin(cells: list[Cell], link: str) -> Origin:
    return Origin(cells[0].head, cells[0].base, link) if cells else Origin(link=link)


def _changed(context: Context) -> dict[str, set[int]]:
    """Return the lines that the pull request of this run shows; none where it is of none, or GitHub does not say."""
    if context.get("GITHUB_EVENT_NAME") != "pull_request":
        return {}
    try:
        event = read_model(Path(context["GITHUB_EVENT_PATH"]), LabelEvent)
        return changed_lines(list(context.github.pages(f"pulls/{event.pull_request.number}/files")))
    except (OSError, ValueError) as error:
        say_aside(f"no annotations: {error}")
        return {}


def prepare_comment(context: Context, options: argparse.Namespace) -> int:
    """Judge what another run left, on our own: nothing that its jobs say of themselves is believed."""
    run = read_model(Path(context["GITHUB_EVENT_PATH"]), RunEvent).workflow_run
    found = ((pull, _asked(context, pull, run)) for pull in pull_requests_of(context.github, run))
    pull, cells = next(((pull, cells) for pull, cells in found if cells), (None, []))
    if pull is None:
        say("nobody who may push asked for this run by a label, or no open pull request is at its commit\n")
        context.output(number="")
        return 0
    folder, origin = options.folder / "artifacts", _origin(cells, context.run_page(run.id))
    told = reported(_place(context, run.id), cells, folder, options.baselines, origin, None)
    write_model(options.folder / COMMENT, Prepared(number=pull.number, text=told.comment))
    context.summary(told.comment)
    context.output(number=str(pull.number))
    return 0


def _asked(context: Context, pull: PullRequest, run: Run) -> list[Cell]:
    """Return the jobs that were asked for: of several labels those of the tier that the run has jobs of.

    A run that succeeded without one of these jobs was of another label, and says nothing of what was measured before.
    """
    tiers = tiers_asked(run, history(context.github, pull))
    if run.actor is None or not tiers or _permission(context, run.actor.login) not in MAY_ASK:
        return []
    jobs = job_names(context.github, run.id)
    plans = [_cells(context, tier, pull, jobs) for tier in tiers]
    of_this = [cells for cells in plans if jobs & set(planned(cells))]
    otherwise = plans[-1:] if run.conclusion != "success" else []
    return next(iter([*of_this, *otherwise]), [])


def comment(context: Context, options: argparse.Namespace) -> int:
    """Write the comment that an earlier job of this run left. The only step that may."""
    run = int(context["GITHUB_RUN_ID"])
    fetched = fetch(context.github, run, ["comment"], options.folder)
    if problem := fetched.problems.get("comment"):
        raise ValueError(problem)
    text = (fetched.folders["comment"] / COMMENT).read_text(encoding="utf-8")
    prepared = Prepared.model_validate(parse_json(text))
    try:
        say(f"{publish(context.github, prepared.number, prepared.text)}\n")
    except OSError as error:
        # The summary has the same text.
        context.summary(prepared.text)
        say_aside(f"the comment was refused, see the summary: {error}")
        return 1
    return 0


def trend(context: Context, options: argparse.Namespace) -> int:
    """Add what the jobs of this run left to the data branch, and show which signals changed."""
    from perf.record import read_records
    from perf.trend import append, unnamed

    remote, branch = _remote(context), context.get("BRANCH", BRANCH)
    data = options.folder / "data"
    branches.fetch_branch(data, remote, branch)
    cells = planned(context.cells)
    fetched = fetch(context.github, int(context["GITHUB_RUN_ID"]), cells, options.folder / "artifacts")
    problems = dict(fetched.problems)
    for name in cells:
        try:
            for session in sessions_in(fetched.folders[name]):
                records = read_records(session)
                append(data, records)
                for why in unnamed(records):
                    say_aside(f"{name}: {why}")
        except (ValueError, OSError) as error:
            problems.setdefault(name, str(error))
    if branches.commit(data, [":(glob)**/*.jsonl"], f"Add run {context['GITHUB_RUN_ID']}"):
        branches.push(data, remote, branch)
    try:
        _say_trend(context, options.folder, data)
    except ValueError as error:
        problems["trend"] = str(error)
    for name, problem in problems.items():
        context.summary(f"- {'not shown' if name == 'trend' else 'not added'}: {code(name)}: {code(problem)}\n")
        say_aside(f"{name}: {problem}")
    return 1 if problems else 0


def _say_trend(context: Context, folder: Path, data: Path) -> None:
    from perf.commands.trend import changed_trends
    from perf.report.trend import document, lines

    trends = changed_trends(data)
    write_atomically(folder / "trend.html", document(trends))
    for line in [line for one in trends for line in lines(one)] or ["no signal changed"]:
        context.summary(f"- {code(line)}\n")


def _remote(context: Context) -> branches.Remote:
    url = context.get("REMOTE") or f"{context['GITHUB_SERVER_URL']}/{context['GITHUB_REPOSITORY']}.git"
    return branches.Remote(url, context["DEFAULT_BRANCH"], context.get("GH_TOKEN"))


def refresh(context: Context, options: argparse.Namespace) -> int:
    """Approve the records of a run on a branch of their own, and ask a person to merge it."""
    if not re.fullmatch(r"[1-9][0-9]{0,18}", context["RUN_ID"]):
        msg = f"RUN_ID={context['RUN_ID']}: no id of a workflow run, which is the number at the end of its address"
        raise ValueError(msg)
    run, reason, by = int(context["RUN_ID"]), context["REASON"], context["GITHUB_ACTOR"]
    remote, github = _remote(context), context.github
    source = ended(github, run)
    cells = _left(context, run)
    fetched = fetch(github, run, cells, options.folder / "artifacts")
    if fetched.problems:
        raise ValueError("\n".join(f"{name}: {problem}" for name, problem in fetched.problems.items()))
    sessions = [session for name in cells for session in sessions_in(fetched.folders[name])]
    changes = refresh_sessions(sessions, options.baselines, context.get("CASES").split(), _approval(context))
    branch, title = f"refresh/run-{run}", f"Refresh baselines from run {run}"
    message = f"{title}\n\n{' '.join(reason.split())}\n\nApproved-by: {by}"
    if not open_branch(Path.cwd(), options.baselines, remote, branch, message):
        say("nothing changes: no pull request\n")
        return 0
    body = body_of(context.run_page(run), source, reason, by, changes)
    context.summary(body)
    say(f"{open_pull_request(github, remote, branch, title, body)}\n")
    return 0


def _approval(context: Context) -> list[str]:
    """Return what `rfdetr-perf refresh` is told, but for the records and the cases."""
    # In one word each: a reason may begin with a hyphen, as options do.
    told = [f"--reason={context['REASON']}", f"--approved-by={context['GITHUB_ACTOR']}"]
    told += [f"--device={context['DEVICE']}"] if context.get("DEVICE") else []
    return told + (["--allow-fewer-runs"] if context.get("ALLOW_FEWER_RUNS") == "true" else [])


def _left(context: Context, run: int) -> list[str]:
    """Return the ids of the jobs that left an artifact in a run.

    Raises:
        ValueError: none did.
    """
    artifacts = context.github.pages(f"actions/runs/{run}/artifacts", "artifacts")
    names = {str(found["name"]).removeprefix(PREFIX) for found in artifacts if str(found["name"]).startswith(PREFIX)}
    cells = sorted(name for name in names if re.fullmatch(CELL_ID, name) and name not in NO_CELLS)
    if not cells:
        msg = f"run {run} left no artifact of this suite"
        raise ValueError(msg)
    return cells
