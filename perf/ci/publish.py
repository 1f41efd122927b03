"""Publishing: which pull request a run is of, and its one comment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from perf.ci.events import Labelling, PullRequest, Ref, Run
from perf.ci.github import GitHub
from perf.report.comment import LIMIT, MARKER

# The author of what a workflow writes with its own token.
BOT = "github-actions[bot]"


def pull_requests_of(github: GitHub, run: Run) -> Iterator[PullRequest]:
    """Yield the open pull requests that ``run`` may be of: of one branch there is one for each base.

    What the run left does not count: they are looked for by the branch and the commit that GitHub itself says the run
    was of.

    Raises:
        OSError: GitHub does not say.
    """
    if run.event != "pull_request" or run.head_repository is None or not run.head_branch:
        return
    owner = run.head_repository.full_name.partition("/")[0]
    for found in github.pages("pulls", state="open", head=f"{owner}:{run.head_branch}"):
        pull = _valid(found)
        same = pull is not None and pull.head.sha == run.head_sha and pull.head.repo is not None
        if pull and same and pull.head.repo and pull.head.repo.full_name == run.head_repository.full_name:
            yield pull


def _valid(found: Any) -> PullRequest | None:
    try:
        return PullRequest.model_validate(found)
    except ValidationError:
        return None


def history(github: GitHub, pull: PullRequest) -> Iterator[Labelling]:
    """Yield what happened to a pull request, without what has another form."""
    for found in github.pages(f"issues/{pull.number}/timeline"):
        try:
            yield Labelling.model_validate(found)
        except ValidationError:
            continue


def fork_point(github: GitHub, pull: PullRequest) -> str:
    """Return the commit at which a pull request branched off, so that it answers for its own changes only.

    What GitHub calls its base is where the base branch was at the last push, which may be commits ahead of that.

    Raises:
        OSError: GitHub does not say.
        ValueError: what it says is no commit.
    """
    found = github.get(f"compare/{pull.base.sha}...{pull.head.sha}", per_page=1)
    return Ref.model_validate(found["merge_base_commit"]).sha


def publish(github: GitHub, number: int, text: str) -> str:
    """Write the suite's comment on a pull request, in place of its earlier one, and return its address.

    Raises:
        ValueError: the text is not a comment of the suite, or too long for one.
        OSError: GitHub refuses.
    """
    if not text.startswith(MARKER) or len(text) > LIMIT:
        msg = f"not a comment of this suite: {len(text)} characters, {text[:40]!r}"
        raise ValueError(msg)
    earlier = _earlier(github, number)
    path = f"issues/comments/{earlier}" if earlier else f"issues/{number}/comments"
    answer: Mapping[str, Any] = github.send("PATCH" if earlier else "POST", path, {"body": text}) or {}
    return str(answer.get("html_url", ""))


def _earlier(github: GitHub, number: int) -> int | None:
    """Return the id of the suite's comment; one that somebody else wrote with its marker is not the suite's."""
    for found in github.pages(f"issues/{number}/comments"):
        author = (found.get("user") or {}).get("login")
        if author == BOT and str(found.get("body") or "").startswith(MARKER):
            return int(found["id"])
    return None
