"""Events: who may have what measured. Pure: an event and what its sender may do in, a decision out."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.ci.machines import LABELS, Cell, Machine, Tier, cells_of
from perf.matrix import DEFAULT_RFDETR

# What the API calls the permission of whoever may push: "maintain" is told as write, "triage" as read.
MAY_ASK = ("admin", "write")
# What a pull request changes: rfdetr, or this suite, which then has to find nothing between equals.
Subject = Literal["rfdetr", "suite"]
# Between setting a label and the run that it starts: GitHub takes seconds.
SOON, CLOCKS = datetime.timedelta(minutes=10), datetime.timedelta(minutes=1)
_NAME, _SHA = r"^[\w.-]+/[\w.-]+$", r"^[0-9a-f]{40}([0-9a-f]{24})?$"


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Repository(_Read):
    """A repository, ``owner/name``."""

    full_name: str = Field(pattern=_NAME)


class Ref(_Read):
    """A side of a pull request; a fork that was deleted is no repository any more."""

    sha: str = Field(pattern=_SHA)
    repo: Repository | None = None


class Named(_Read):
    """A label."""

    name: str


class Sender(_Read):
    """Who caused an event."""

    login: str = Field(pattern=r"^[A-Za-z0-9_-]+(\[bot\])?$")


class PullRequest(_Read):
    """What of a pull request bears on measuring it."""

    number: int = Field(ge=1)
    state: str
    head: Ref
    base: Ref


class LabelEvent(_Read):
    """A ``pull_request`` event."""

    action: str
    sender: Sender
    pull_request: PullRequest
    label: Named | None = None


class Labelling(_Read):
    """An event of a pull request's history, as far as it is about a label."""

    event: str
    created_at: datetime.datetime
    actor: Sender | None = None
    label: Named | None = None


class Run(_Read):
    """A workflow run that has ended, of a ``workflow_run`` event; ``actor`` caused the event that started it."""

    id: int = Field(ge=1)
    event: str
    status: str = ""
    conclusion: str | None = None
    created_at: datetime.datetime
    actor: Sender | None = None
    head_sha: str = Field(pattern=_SHA)
    head_branch: str | None = None
    head_repository: Repository | None = None
    html_url: str = ""


class RunEvent(_Read):
    """A ``workflow_run`` event."""

    action: str
    workflow_run: Run


class Decision(NamedTuple):
    """What to measure, None for nothing, and why, in a sentence."""

    tier: Tier | None
    why: str


def decide(event: LabelEvent, permission: str) -> Decision:
    """Return what a ``pull_request`` event has measured; ``permission`` is that of its sender, as the API calls it.

    A label is for the commit that is there when it is set: commits pushed later are measured by setting it again.
    """
    label = event.label.name if event.label else ""
    if event.action != "labeled":
        return Decision(None, f"nothing is measured on {event.action!r}: only a label asks for it")
    if label not in LABELS:
        return Decision(None, f"the label asks for nothing; those that do: {', '.join(LABELS)}")
    if permission not in MAY_ASK:
        return Decision(None, f"{event.sender.login} may not push here, so that this label asks for nothing")
    if event.pull_request.state != "open":
        return Decision(None, "the pull request is not open")
    if event.pull_request.head.repo is None or event.pull_request.base.repo is None:
        return Decision(None, "the repository of the pull request is gone")
    return Decision(LABELS[label], f"{event.sender.login} asked for {label}")


def tiers_asked(run: Run, history: Iterable[Labelling]) -> list[Tier]:
    """Return the tiers whose label the run's actor set just before the run began, the smallest first.

    Which labels a pull request has does not say it: one may be from before the last push, or be taken off again.
    A run that its own author started, by a push, is asked for by nobody, whatever it calls itself.
    """
    set_by = {
        one.label.name
        for one in history
        if one.event == "labeled" and one.label and one.actor and one.actor == run.actor
        if -CLOCKS <= run.created_at - one.created_at <= SOON
    }
    return [tier for label, tier in LABELS.items() if label in set_by]


def cells_for(
    tier: Tier, pull: PullRequest, machines: Mapping[str, Machine], subject: Subject, fork: str = ""
) -> list[Cell]:
    """Return the jobs that measure a pull request: its commit against ``fork``, the one that it branched off.

    Raises:
        ValueError: a side without a repository.
    """
    forked = pull.base.model_copy(update={"sha": fork or pull.base.sha})
    base, head = (DEFAULT_RFDETR,) * 2 if subject == "suite" else (_install(forked), _install(pull.head))
    return cells_of(machines, tier, base, head)


def _install(side: Ref) -> str:
    if side.repo is None:
        msg = "a side of the pull request has no repository any more"
        raise ValueError(msg)
    return f"git+https://github.com/{side.repo.full_name}.git@{side.sha}"
