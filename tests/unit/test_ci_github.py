from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path

import pytest
from fake_github import BASE_SHA, FORK_SHA, RUN, SHA, FakeGitHub, a_pull, run_event, serving

from perf.ci.artifacts import Limits
from perf.ci.events import PullRequest, Run
from perf.ci.fetch import fetch, job_names
from perf.ci.github import TRIES
from perf.ci.publish import BOT, fork_point, publish, pull_requests_of
from perf.report.comment import LIMIT, MARKER

CELL = "h200-torch-2.11-quick"


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    with serving() as found:
        yield found


def an_archive(name: str = "s/ab.json", content: bytes = b"{}") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, content)
    return out.getvalue()


def test_an_artifact_is_fetched_and_its_store_sees_no_token(fake: FakeGitHub, tmp_path: Path) -> None:
    fake.add_artifact(CELL, an_archive(content=b"old"))
    fake.add_artifact(CELL, an_archive(content=b"new"))
    fake.add_artifact("other", an_archive("../x"))
    fake.jobs = [{"name": "plan", "conclusion": "success"}, {"name": f"perf / {CELL}", "conclusion": "failure"}]
    found = fetch(fake.client(), RUN, [CELL], tmp_path)
    assert (found.problems, found.conclusions) == ({}, {CELL: "failure"})
    assert (tmp_path / CELL / "s" / "ab.json").read_bytes() == b"new"
    tokens = {path: token for _, path, token, _ in fake.requests}
    assert tokens["/store/2"] == ""
    assert {token for path, token in tokens.items() if "store" not in path} == {"Bearer secret"}
    assert job_names(fake.client(), RUN) == {"plan", CELL}


@pytest.mark.parametrize(
    ("archive", "size", "changes", "why"),
    [
        (b"", 10**9, {}, "its artifact is 1000000000 bytes large"),
        (b"x" * 5_000, 10, {}, "larger than 2000 bytes"),
        (an_archive()[:-8], None, {}, "no whole archive"),
        (an_archive("../x.record.json"), None, {}, "outside of its folder"),
        (an_archive(), None, {"expired": True}, "has expired"),
    ],
    ids=["large", "lying", "truncated", "slip", "expired"],
)
def test_what_is_wrong_with_an_artifact_is_kept_and_nothing_of_it(
    fake: FakeGitHub, tmp_path: Path, archive: bytes, size: int | None, changes: dict[str, bool], why: str
) -> None:
    fake.add_artifact(CELL, archive, size, **changes)
    found = fetch(fake.client(), RUN, [CELL], tmp_path, Limits(archive=2_000))
    assert why in found.problems[CELL]
    assert found.conclusions == {CELL: None}
    assert not (tmp_path / CELL).exists()


def test_a_large_artifact_is_not_even_asked_for(fake: FakeGitHub, tmp_path: Path) -> None:
    fake.add_artifact(CELL, b"", 10**9)
    fetch(fake.client(), RUN, [CELL], tmp_path)
    assert not any("zip" in path for _, path, _, _ in fake.requests)


def test_lists_are_read_to_their_end(fake: FakeGitHub) -> None:
    fake.jobs = [{"name": f"job-{index}"} for index in range(230)]
    assert len(job_names(fake.client(), RUN)) == 230


def test_a_list_that_is_too_long_is_no_short_one(fake: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf.ci.github.MOST_PAGES", 2)
    fake.jobs = [{"name": f"job-{index}"} for index in range(199)]
    assert len(job_names(fake.client(), RUN)) == 199
    fake.jobs += [{"name": "last"}] * 2
    with pytest.raises(OSError, match="actions/runs/5/jobs: more than the 200 entries that are read"):
        job_names(fake.client(), RUN)


def test_an_answer_that_breaks_off_is_an_error_of_githubs(fake: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> bytes:
        partial = b"{"
        raise IncompleteRead(partial)

    monkeypatch.setattr("http.client.HTTPResponse.read", breaks)
    with pytest.raises(OSError, match="GET actions/runs/5: the answer broke off"):
        fake.client().get(f"actions/runs/{RUN}")


def test_what_may_pass_is_tried_again_and_a_refusal_is_named(fake: FakeGitHub) -> None:
    fake.refuse["pulls/1"] = 503
    with pytest.raises(OSError, match="GET pulls/1: HTTP Error 503"):
        fake.client().get("pulls/1")
    assert len(fake.requests) == TRIES
    fake.refuse["issues/7/comments"] = 403
    with pytest.raises(PermissionError, match="POST issues/7/comments"):
        fake.client().send("POST", "issues/7/comments", {})
    assert len(fake.requests) == TRIES + 1
    with pytest.raises(FileNotFoundError):
        fake.client().get("nothing")


def a_run(sha: str = SHA, event: str = "pull_request") -> Run:
    return Run.model_validate(run_event(sha, event)["workflow_run"])


def test_the_pull_request_is_that_of_the_commit(fake: FakeGitHub) -> None:
    fake.pulls = [a_pull(3, sha="c" * 40), a_pull(7), {"head": {"ref": "topic", "user": {"login": "someone"}}}]
    [pull] = pull_requests_of(fake.client(), a_run())
    assert pull.number == 7
    assert list(pull_requests_of(fake.client(), a_run(sha="d" * 40))) == []
    assert list(pull_requests_of(fake.client(), a_run(event="push"))) == []
    assert list(pull_requests_of(fake.client(), a_run().model_copy(update={"head_repository": None}))) == []


def test_an_earlier_comment_is_updated_and_somebody_elses_left_alone(fake: FakeGitHub) -> None:
    fake.comments = [
        {"id": 1, "user": {"login": "mallory"}, "body": f"{MARKER} mine"},
        {"id": 2, "user": None, "body": f"{MARKER} gone"},
        {"id": 3, "user": {"login": BOT}, "body": "another tool's"},
    ]
    assert publish(fake.client(), 7, f"{MARKER}\nfirst") == "comment-4"
    assert publish(fake.client(), 7, f"{MARKER}\nsecond") == "comment-4"
    assert [comment["body"] for comment in fake.comments] == [
        f"{MARKER} mine",
        f"{MARKER} gone",
        "another tool's",
        f"{MARKER}\nsecond",
    ]


@pytest.mark.parametrize("text", ["hello", f"{MARKER}{'x' * LIMIT}", ""])
def test_only_a_comment_of_the_suite_is_written(fake: FakeGitHub, text: str) -> None:
    with pytest.raises(ValueError, match="not a comment of this suite"):
        publish(fake.client(), 7, text)
    assert fake.requests == []


def test_a_pull_request_answers_for_what_it_changed_since_it_branched_off(fake: FakeGitHub) -> None:
    pull = PullRequest.model_validate(a_pull())
    assert fork_point(fake.client(), pull) == FORK_SHA
    assert fake.requests[-1][1].endswith(f"/compare/{BASE_SHA}...{SHA}")
    fake.fork_point = "main; rm -rf ~"
    with pytest.raises(ValueError, match="sha"):
        fork_point(fake.client(), pull)


def test_a_download_that_breaks_off_is_a_problem_of_its_artifact(
    fake: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        partial = b""
        raise IncompleteRead(partial)

    monkeypatch.setattr("perf.ci.github.GitHub.download", breaks)
    fake.add_artifact(CELL, b"")
    assert "IncompleteRead" in fetch(fake.client(), RUN, [CELL], tmp_path).problems[CELL]
