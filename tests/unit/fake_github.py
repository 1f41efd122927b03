"""A server that answers as GitHub's API does, as far as the workflows ask it; and the events and runs to ask of."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from perf.ci.artifacts import PREFIX
from perf.ci.github import GitHub

REPOSITORY, SHA, BASE_SHA, FORK_SHA, RUN = "owner/suite", "a" * 40, "b" * 40, "f" * 40, 5


class FakeGitHub:
    """What the repository holds. ``refuse``: paths that are answered with this status."""

    def __init__(self) -> None:
        self.artifacts: list[dict[str, Any]] = []
        self.archives: dict[int, bytes] = {}
        self.jobs: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []
        self.comments: list[dict[str, Any]] = []
        self.permissions: dict[str, str] = {"ada": "write"}
        self.events: list[dict[str, Any]] = [a_labelling()]
        self.fork_point = FORK_SHA
        self.refuse: dict[str, int] = {}
        self.requests: list[tuple[str, str, str, Any]] = []
        self.run = run_event()["workflow_run"]
        self.url = self.store = ""

    def add_artifact(self, name: str, archive: bytes, size: int | None = None, **changes: Any) -> None:
        """Add an artifact of the run, by the name of its cell."""
        number = len(self.artifacts) + 1
        told = {"id": number, "name": f"{PREFIX}{name}", "size_in_bytes": len(archive) if size is None else size}
        self.artifacts.append(told | {"expired": False} | changes)
        self.archives[number] = archive

    def client(self, token: str = "secret") -> GitHub:
        """Return a client that does not wait between its tries."""
        return GitHub(REPOSITORY, token, self.url, lambda _: None)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Return the status and what is answered."""
        parts = path.removeprefix(f"/repos/{REPOSITORY}/").split("/")
        if (refused := self.refuse.get("/".join(parts))) is not None:
            return refused, {"message": "no"}
        route = (method, *(part for part in parts if not part.isdigit()))
        number = next((int(part) for part in parts if part.isdigit()), 0)
        found = self._routes(query, body or {}, number, parts).get(route)
        return found() if found else (404, {"message": f"{method} {path}"})

    def _routes(
        self, query: dict[str, str], body: dict[str, Any], number: int, parts: list[str]
    ) -> dict[tuple[str, ...], Callable[[], tuple[int, Any]]]:
        return {
            ("GET", "actions", "runs"): lambda: (200, self.run),
            ("GET", "actions", "runs", "artifacts"): lambda: (200, {"artifacts": _page(self.artifacts, query)}),
            ("GET", "actions", "runs", "jobs"): lambda: (200, {"jobs": _page(self.jobs, query)}),
            ("GET", "actions", "artifacts", "zip"): lambda: (302, f"{self.store}/store/{number}"),
            ("GET", "", "store"): lambda: (200, self.archives[number]),
            ("GET", "pulls"): lambda: (200, _page(self._of_branch(query["head"]), query)),
            ("POST", "pulls"): lambda: (201, {"html_url": "https://github.com/owner/suite/pull/9"}),
            ("GET", "pulls", "files"): lambda: (200, _page(self.files, query)),
            ("GET", *parts[:2], "permission"): lambda: self._permission(parts[1]),
            ("GET", "issues", "timeline"): lambda: (200, _page(self.events_of(number), query)),
            ("GET", "compare", parts[-1]): lambda: (200, {"merge_base_commit": {"sha": self.fork_point}}),
            ("GET", "issues", "comments"): lambda: (200, _page(self.comments, query)),
            ("POST", "issues", "comments"): lambda: self._comment(body),
            ("PATCH", "issues", "comments"): lambda: self._changed(number, body),
        }

    def events_of(self, number: int) -> list[dict[str, Any]]:
        """Return the history of a pull request: the same of each."""
        return self.events

    def _of_branch(self, head: str) -> list[dict[str, Any]]:
        owner, _, ref = head.partition(":")
        return [p for p in self.pulls if p["head"]["ref"] == ref and p["head"]["user"]["login"] == owner]

    def _permission(self, login: str) -> tuple[int, Any]:
        return (200, {"permission": self.permissions[login]}) if login in self.permissions else (404, {})

    def _comment(self, body: dict[str, Any]) -> tuple[int, Any]:
        told = {"id": len(self.comments) + 1, "user": {"login": "github-actions[bot]"}, **body}
        self.comments.append(told)
        return 201, {"html_url": f"comment-{told['id']}"}

    def _changed(self, number: int, body: dict[str, Any]) -> tuple[int, Any]:
        self.comments[number - 1].update(body)
        return 200, {"html_url": f"comment-{number}"}


def _page(items: list[Any], query: dict[str, str]) -> list[Any]:
    size, page = int(query["per_page"]), int(query["page"])
    return items[size * (page - 1) : size * page]


def a_pull(number: int = 7, sha: str = SHA) -> dict[str, Any]:
    """A pull request from a fork."""
    return {
        "number": number,
        "state": "open",
        "head": {"sha": sha, "ref": "topic", "user": {"login": "someone"}, "repo": {"full_name": "someone/suite"}},
        "base": {"sha": BASE_SHA, "ref": "main", "repo": {"full_name": REPOSITORY}},
    }


def label_event(label: str = "perf:quick", sender: str = "ada") -> dict[str, Any]:
    """The event of a label that was set."""
    return {"action": "labeled", "label": {"name": label}, "sender": {"login": sender}, "pull_request": a_pull()}


def a_labelling(label: str = "perf:quick", actor: str = "ada", when: str = "2026-11-30T10:00:00Z") -> dict[str, Any]:
    """A label that was set, in the history of a pull request."""
    return {"event": "labeled", "label": {"name": label}, "actor": {"login": actor}, "created_at": when}


def run_event(
    sha: str = SHA, event: str = "pull_request", conclusion: str = "failure", actor: str = "ada"
) -> dict[str, Any]:
    """The event of a workflow run that has ended, some seconds after its label was set."""
    run: dict[str, Any] = {"id": RUN, "event": event, "head_sha": sha, "head_branch": "topic", "conclusion": conclusion}
    run |= {"status": "completed", "actor": {"login": actor}, "created_at": "2026-11-30T10:00:04Z"}
    return {"action": "completed", "workflow_run": run | {"head_repository": {"full_name": "someone/suite"}}}


def write_event(folder: Path, event: dict[str, Any]) -> Path:
    """Write an event to the file that the runner would leave."""
    path = folder / "event.json"
    path.write_text(json.dumps(event), encoding="utf-8")
    return path


@contextmanager
def serving() -> Iterator[FakeGitHub]:
    """Serve a fake: two servers, since artifacts lie in a store of another address."""
    fake = FakeGitHub()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            split = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(split.query))
            fake.requests.append((self.command, split.path, self.headers.get("Authorization", ""), body))
            status, told = fake.answer(self.command, split.path, query, body)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", told)
            payload = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_PATCH = _handle  # noqa: N815  (as the library names them)

        def log_message(self, *_: Any) -> None:
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    fake.url, fake.store = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    try:
        yield fake
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
