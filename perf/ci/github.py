"""GitHub's REST API, as little of it as the workflows need, by the standard library: nothing else sees a token."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any, NamedTuple

from perf.record import parse_json

SECONDS, TRIES, CHUNK = 30.0, 3, 1 << 16
# Of an answer that is read into memory, in bytes.
MOST_ANSWER = 16_000_000
PER_PAGE, MOST_PAGES = 100, 20


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Follows to another host without the token: artifacts lie in a store that is not GitHub's API."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following and urllib.parse.urlsplit(req.full_url).netloc != urllib.parse.urlsplit(newurl).netloc:
            following.remove_header("Authorization")
        return following


class GitHub(NamedTuple):
    """One repository, ``owner/name``, seen with a token; every method raises OSError where GitHub says no."""

    repository: str
    token: str
    api: str = "https://api.github.com"
    wait: Callable[[float], None] = time.sleep

    def get(self, path: str, **query: object) -> Any:
        """Return the answer to a path below the repository."""
        return self._json("GET", path, query)

    def send(self, method: str, path: str, body: object) -> Any:
        """Send a body, once: what writes is not repeated."""
        return self._json(method, path, {}, body)

    def pages(self, path: str, key: str | None = None, **query: object) -> Iterator[Any]:
        """Yield the items of a list, page by page; ``key`` is where they are in the answer.

        Raises:
            OSError: also where there are more than are read: what comes last must not seem not to be there.
        """
        for page in range(1, MOST_PAGES + 1):
            answer = self.get(path, per_page=PER_PAGE, page=page, **query)
            items = answer[key] if key else answer
            yield from items
            if len(items) < PER_PAGE:
                return
        msg = f"GitHub: {path}: more than the {MOST_PAGES * PER_PAGE} entries that are read"
        raise OSError(msg)

    def download(self, path: str, file: Path, limit: int) -> None:
        """Write what lies at a path to ``file``.

        Raises:
            ValueError: it is larger than ``limit`` bytes, whatever was said of its size.
        """
        with self._open("GET", path, {}) as answer, file.open("xb") as out:
            left = limit
            while chunk := answer.read(CHUNK):
                left -= len(chunk)
                if left < 0:
                    msg = f"larger than {limit} bytes, of which nothing is read"
                    raise ValueError(msg)
                out.write(chunk)

    def _json(self, method: str, path: str, query: dict[str, object], body: object = None) -> Any:
        try:
            with self._open(method, path, query, body) as answer:
                text = answer.read(MOST_ANSWER + 1)
        except HTTPException as error:
            msg = f"GitHub: {method} {path}: the answer broke off: {error!r}"
            raise OSError(msg) from error
        if len(text) > MOST_ANSWER:
            msg = f"{path}: an answer of more than {MOST_ANSWER} bytes"
            raise OSError(msg)
        return parse_json(text.decode("utf-8")) if text else None

    def _open(self, method: str, path: str, query: dict[str, object], body: object = None) -> HTTPResponse:
        told = f"?{urllib.parse.urlencode(query)}" if query else ""
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.api}/repos/{self.repository}/{path}{told}"
        request = urllib.request.Request(url, data, headers, method=method)
        opener = urllib.request.build_opener(_Redirect)
        for more in reversed(range(TRIES if method == "GET" else 1)):
            try:
                answer: HTTPResponse = opener.open(request, timeout=SECONDS)
            except OSError as error:
                if not more or not _passing(error):
                    raise _named(error, method, path) from error
                self.wait(2.0 ** (TRIES - more))
            else:
                return answer
        raise AssertionError


def _passing(error: OSError) -> bool:
    return not isinstance(error, urllib.error.HTTPError) or error.code >= 500


def _named(error: OSError, method: str, path: str) -> OSError:
    """Return the error as one that names what was asked; a missing thing as FileNotFoundError."""
    code = error.code if isinstance(error, urllib.error.HTTPError) else None
    text = f"GitHub: {method} {path}: {error}"
    return FileNotFoundError(text) if code == 404 else PermissionError(text) if code in (401, 403) else OSError(text)
