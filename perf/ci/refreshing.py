"""Refreshing by a person: the records of a run -> baselines on a branch, and a pull request that shows the changes."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perf.ci.artifacts import admit
from perf.ci.branch import Remote, check_name, commit, git, has_branch, push
from perf.ci.events import Run
from perf.ci.github import GitHub
from perf.commands.refresh import REFRESH
from perf.compare import HEAD
from perf.expected import FILE_NAME
from perf.record import read_records
from perf.report.markdown import code
from perf.run_order import MANIFEST

# GitHub takes 65536 characters; the reason is a person's own, and its first words say what it is.
MOST_BODY, MOST_REASON = 60_000, 2_000


def sessions_in(folder: Path) -> list[Path]:
    """Return the folders of records below ``folder`` that one refresh takes: of an A/B session that of its head.

    Raises:
        ValueError: a file that must not be read; names it.
    """
    admit(folder)
    interleaved = [path.parent for path in folder.rglob(MANIFEST)]
    alone = [path.parent for path in folder.rglob(FILE_NAME)]
    alone = [path for path in alone if not any(path.is_relative_to(session) for session in interleaved)]
    heads = [session / HEAD for session in interleaved]
    return sorted(path for path in (*heads, *alone) if any(path.rglob("*.record.json")))


def refresh_sessions(sessions: Sequence[Path], baselines: Path, cases: Sequence[str], told: Sequence[str]) -> str:
    """Refresh the baselines with the records of each session, and return what changed as Markdown.

    ``cases`` are the only ones that are taken, where there are any; ``told`` is what else the command is told.

    Raises:
        ValueError: records that may not become a baseline; names each, and what to do.
    """
    bodies = []
    for session, wanted in shared_out(sessions, cases).items():
        body = session.with_name(f"{session.name}.changes.md")
        asked = ["--baselines", str(baselines), "--markdown", str(body), *told]
        asked += [f"--case={case}" for case in wanted]
        REFRESH.run(_parsed([str(session), *asked]))
        bodies.append(body.read_text(encoding="utf-8"))
    return "\n".join(bodies)


def shared_out(sessions: Sequence[Path], cases: Sequence[str]) -> dict[Path, list[str]]:
    """Return which cases to take of each session: of two with the same one on the same machine, that with more runs.

    Raises:
        ValueError: no session has one of ``cases``; names it, and those that there are.
    """
    runs = Counter(
        (record.environment.device, record.environment.torch_minor, record.case_id, session)
        for session in sessions
        for record in read_records(session)
    )
    there = sorted({case for _, _, case, _ in runs})
    if missing := [case for case in cases if case not in there]:
        msg = f"no record of {', '.join(missing)}: the run has {', '.join(there)}"
        raise ValueError(msg)
    best: dict[tuple[str, str, str], Path] = {}
    for (device, minor, case, session), _ in sorted(runs.items(), key=lambda item: item[1]):
        best[device, minor, case] = session
    found: dict[Path, list[str]] = {}
    for (_, _, case), session in sorted(best.items()):
        if case in (cases or there):
            found.setdefault(session, []).append(case)
    return found


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rfdetr-perf refresh")
    REFRESH.declare(parser)
    return parser.parse_args(arguments)


def ended(github: GitHub, run: int) -> Run:
    """Return what GitHub says of a run that has ended.

    Raises:
        OSError: there is no such run.
        ValueError: it goes on.
    """
    found = Run.model_validate(github.get(f"actions/runs/{run}"))
    if found.status != "completed":
        msg = f"run {run} has not ended, GitHub calls it {found.status!r}: wait for it"
        raise ValueError(msg)
    return found


def body_of(run_page: str, run: Run, reason: str, by: str, changes: str) -> str:
    """Return the body of the pull request."""
    source = f"{run.head_repository.full_name if run.head_repository else 'gone'}@{run.head_branch}"
    head = (
        f"Baselines from the records of {code(run_page)}, asked for by {code(by)}. That run was started by "
        f"{code(run.event)} for {code(run.head_sha)} of {code(source)}, and ended with {code(str(run.conclusion))}.\n\n"
        f"Reason: {code(_short(reason))}\n\nNothing is approved until a person merges this.\n\n"
    )
    cut = "\n\nCut to what a description may hold; the diff has all of it.\n" if len(changes) > MOST_BODY else ""
    whole = changes if not cut else changes[:MOST_BODY].rpartition("\n")[0]
    return f"{head}{whole}{cut}"


def _short(reason: str) -> str:
    return reason if len(reason) <= MOST_REASON else f"{reason[:MOST_REASON]}… (all of it is in the commit)"


def open_branch(checkout: Path, baselines: Path, remote: Remote, branch: str, message: str) -> bool:
    """Commit the changed baselines on a branch of their own and push it; return whether anything changed.

    Raises:
        ValueError: a branch that must not be pushed, or that is there already; says what to do.
        OSError: git, or the remote, refuses.
    """
    check_name(branch, remote)
    if has_branch(checkout, remote, branch):
        msg = f"{branch} is there already: merge or close its pull request, delete the branch, and start this again"
        raise ValueError(msg)
    git(checkout, "checkout", "--quiet", "--detach")
    changed = commit(checkout, [f":(glob){baselines.as_posix()}/**/*.json"], message)
    if changed:
        push(checkout, remote, branch)
    return changed


def open_pull_request(github: GitHub, remote: Remote, branch: str, title: str, body: str) -> str:
    """Open a pull request for a branch, and return its address.

    Raises:
        OSError: GitHub refuses; says what to do, since the branch is there by now.
    """
    try:
        answer = github.send("POST", "pulls", {"title": title, "head": branch, "base": remote.default, "body": body})
    except OSError as error:
        what = "open it by hand, the summary has its text; docs/ci.md says which setting lets a workflow do it"
        msg = f"{branch} is pushed, but no pull request is open: {error}; {what}"
        raise OSError(msg) from error
    return str(answer["html_url"])
