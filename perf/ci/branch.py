"""Branches: commits that a workflow makes, on a branch that is not the default one."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
AUTHOR = ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")
SECONDS = 300


class Remote(NamedTuple):
    """A repository to push to: its address, the branch that nothing is pushed to, and a token."""

    url: str
    default: str
    token: str = ""


def git(folder: Path, *arguments: str, token: str = "") -> str:
    """Run git in ``folder`` and return what it prints. A token goes in by a variable: arguments can be seen.

    Raises:
        OSError: git fails; says what it printed.
    """
    variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if token:
        secret = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        told = {"KEY_0": "http.extraHeader", "VALUE_0": f"Authorization: Basic {secret}", "COUNT": "1"}
        variables |= {f"GIT_CONFIG_{name}": value for name, value in told.items()}
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=SECONDS, check=False)
    if done.returncode:
        msg = f"git {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}"
        raise OSError(msg)
    return done.stdout


def check_name(branch: str, remote: Remote) -> None:
    """Check that ``branch`` is one that a workflow may push.

    Raises:
        ValueError: it is the default branch, or no plain name.
    """
    if branch in (remote.default, "main", "master") or not NAME.fullmatch(branch) or ".." in branch:
        msg = f"{branch!r} is no branch that this pushes: it is the default one, or no plain name"
        raise ValueError(msg)


def commit(checkout: Path, paths: list[str], message: str) -> bool:
    """Commit what changed below ``paths``, which git calls pathspecs, and return whether anything did."""
    if not git(checkout, "status", "--porcelain", "--untracked-files=all", "--", *paths).strip():
        return False
    git(checkout, "add", "--all", "--", *paths)
    name, address = AUTHOR
    git(checkout, "-c", f"user.name={name}", "-c", f"user.email={address}", "commit", "--quiet", "-m", message)
    return True


def push(checkout: Path, remote: Remote, branch: str) -> None:
    """Push the checkout's commit as ``branch``, which must not be there with other commits already.

    Raises:
        ValueError: as :func:`check_name`.
        OSError: git, or the remote, refuses.
    """
    check_name(branch, remote)
    git(checkout, "push", "--quiet", remote.url, f"HEAD:refs/heads/{branch}", token=remote.token)


def has_branch(checkout: Path, remote: Remote, branch: str) -> bool:
    """Return whether the remote has a branch."""
    told = git(checkout, "ls-remote", "--heads", remote.url, f"refs/heads/{branch}", token=remote.token)
    return bool(told.strip())


def fetch_branch(checkout: Path, remote: Remote, branch: str) -> bool:
    """Make ``checkout`` a repository with the commit of ``branch``, and return whether the remote has that branch."""
    check_name(branch, remote)
    checkout.mkdir(parents=True, exist_ok=True)
    git(checkout, "init", "--quiet")
    there = has_branch(checkout, remote, branch)
    if there:
        git(checkout, "fetch", "--quiet", "--depth=1", remote.url, f"refs/heads/{branch}", token=remote.token)
        git(checkout, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    return there
