"""Refreshing by a person: the records of a run -> baselines on a branch, and a pull request that shows the changes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perf.ci.artifacts import admit
from perf.ci.branch import Remote, check_name, commit, git, push
from perf.ci.github import GitHub
from perf.commands.refresh import REFRESH
from perf.compare import HEAD
from perf.expected import FILE_NAME
from perf.record import read_records
from perf.report.markdown import code
from perf.run_order import MANIFEST

MOST_BODY = 60_000


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
    for session in sessions:
        there = {record.case_id for record in read_records(session)}
        wanted = [case for case in cases if case in there]
        if cases and not wanted:
            continue
        body = session.with_name(f"{session.name}.changes.md")
        asked = ["--baselines", str(baselines), "--markdown", str(body), *told]
        asked += [word for case in wanted for word in ("--case", case)]
        REFRESH.run(_parsed([str(session), *asked]))
        bodies.append(body.read_text(encoding="utf-8"))
    return "\n".join(bodies)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rfdetr-perf refresh")
    REFRESH.declare(parser)
    return parser.parse_args(arguments)


def body_of(run_page: str, reason: str, by: str, changes: str) -> str:
    """Return the body of the pull request."""
    head = (
        f"Baselines from the records of {code(run_page)}, asked for by {code(by)}.\n\n"
        f"Reason: {code(reason)}\n\nNothing is approved until a person merges this.\n\n"
    )
    cut = "\n\nCut to what a description may hold; the diff has all of it.\n" if len(changes) > MOST_BODY else ""
    whole = changes if not cut else changes[:MOST_BODY].rpartition("\n")[0]
    return f"{head}{whole}{cut}"


def open_branch(checkout: Path, baselines: Path, remote: Remote, branch: str, message: str) -> bool:
    """Commit the changed baselines on a branch of their own and push it; return whether anything changed.

    Raises:
        ValueError: a branch that must not be pushed.
        OSError: git, or the remote, refuses.
    """
    check_name(branch, remote)
    git(checkout, "checkout", "--quiet", "--detach")
    changed = commit(checkout, [f":(glob){baselines.as_posix()}/**/*.json"], message)
    if changed:
        push(checkout, remote, branch)
    return changed


def open_pull_request(github: GitHub, remote: Remote, branch: str, title: str, body: str) -> str:
    """Open a pull request for a branch, and return its address."""
    answer = github.send("POST", "pulls", {"title": title, "head": branch, "base": remote.default, "body": body})
    return str(answer["html_url"])
