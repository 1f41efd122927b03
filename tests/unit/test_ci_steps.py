"""The steps of the workflows, with the variables that a workflow sets, on a recorded artifact and a local server."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_github import (
    FORK_SHA,
    REPOSITORY,
    RUN,
    SHA,
    FakeGitHub,
    a_labelling,
    a_pull,
    label_event,
    run_event,
    serving,
    write_event,
)
from recorded import ARCHIVE, a_cell, baselines

from perf.baselines import read_baseline
from perf.ci import steps
from perf.ci.branch import Remote, check_name, commit, fetch_branch, git, push
from perf.ci.context import Context
from perf.ci.events import Run
from perf.ci.machines import CELLS
from perf.gpus import device_slug
from perf.report.comment import MARKER
from perf.trend import read


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    with serving() as found:
        yield found


class Bench:
    """A step's variables and files."""

    def __init__(self, folder: Path, fake: FakeGitHub) -> None:
        self.folder, self.fake = folder, fake
        self.variables = {
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": fake.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_RUN_ID": str(RUN),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "GH_TOKEN": "secret",
            "CELLS": CELLS.dump_json([a_cell()]).decode(),
            "DEFAULT_BRANCH": "main",
            "MACHINES": "cpu",
            "SUBJECT": "suite",
        }

    def event(self, name: str, event: dict[str, Any]) -> None:
        self.variables |= {"GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(write_event(self.folder, event))}

    def run(self, step: str, **variables: str) -> int:
        told = argparse.Namespace(folder=self.folder / "ci", baselines=baselines())
        code: int = getattr(steps, step)(Context(self.variables | variables), told)
        return code

    def file(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def outputs(self) -> dict[str, str]:
        lines = self.file("output").splitlines()
        return {lines[i].partition("<<")[0]: lines[i + 1] for i in range(0, len(lines), 3)}


@pytest.fixture
def bench(tmp_path: Path, fake: FakeGitHub) -> Bench:
    return Bench(tmp_path, fake)


@pytest.mark.parametrize(
    ("label", "permission", "wanted", "why"),
    [
        ("perf:quick", "write", "true", "ada asked for perf:quick"),
        ("perf:full", "admin", "true", "ada asked for perf:full"),
        ("perf:quick", "read", "false", "ada may not push here"),
        ("perf:quick", None, "false", "ada may not push here"),
        ("bug", "admin", "false", "the label asks for nothing"),
    ],
)
def test_plan(bench: Bench, label: str, permission: str | None, wanted: str, why: str) -> None:
    bench.event("pull_request", label_event(label))
    bench.fake.permissions = {"ada": permission} if permission else {}
    assert bench.run("plan") == 0
    outputs = bench.outputs()
    assert outputs["wanted"] == wanted
    cells = CELLS.validate_json(outputs["cells"])
    assert [cell.id for cell in cells] == ([f"cpu-torch-2.14-{label[5:]}"] if wanted == "true" else [])
    assert why in bench.file("summary")
    assert len(bench.fake.requests) == (label != "bug")


def test_where_github_does_not_say_who_asks_the_plan_fails(bench: Bench) -> None:
    bench.event("pull_request", label_event())
    bench.fake.refuse["collaborators/ada/permission"] = 403
    with pytest.raises(PermissionError, match="collaborators/ada/permission"):
        bench.run("plan")
    assert bench.outputs() == {}


def test_a_plan_for_rfdetr_installs_the_two_commits(bench: Bench) -> None:
    bench.event("pull_request", label_event())
    bench.fake.permissions = {"ada": "write"}
    bench.run("plan", SUBJECT="rfdetr", MACHINES="h200 l4")
    cells = CELLS.validate_json(bench.outputs()["cells"])
    assert [cell.machine for cell in cells] == ["l4", "h200"]
    assert {cell.head for cell in cells} == {f"git+https://github.com/someone/suite.git@{SHA}"}
    # Not what GitHub calls the base, which may be ahead of where the branch left it.
    assert {cell.base for cell in cells} == {f"git+https://github.com/{REPOSITORY}.git@{FORK_SHA}"}
    with pytest.raises(ValueError, match="SUBJECT=all: one of rfdetr, suite"):
        bench.run("plan", SUBJECT="all")


def test_a_night_takes_every_minor_of_noxs_own_list_that_can_work(bench: Bench) -> None:
    assert bench.run("nightly") == 0
    cells = CELLS.validate_json(bench.outputs()["cells"])
    assert [cell.torch for cell in cells] == [f"2.{minor}" for minor in range(4, 16)]
    assert {(cell.base, cell.also, cell.head) for cell in cells} == {("", "main", steps.UPSTREAM)}
    with pytest.raises(ValueError, match="no session perf-MINOR"):
        steps.minors_of('[{"name": "lint"}]')


def test_a_machine_is_checked_against_its_label(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"RECORDS": str(bench.folder / "records")}
    assert bench.run("check_device", CELL=a_cell().model_dump_json(), **found) == 0
    monkeypatch.setattr(steps, "machine", lambda lane: (device_slug("NVIDIA L4"), "cpu"))
    h200 = a_cell("h200").model_dump_json()
    assert bench.run("check_device", CELL=h200, **found) == 2
    assert "the runner has nvidia-l4, and its label h200 promises nvidia-h200*" in capsys.readouterr().out
    assert json.loads(bench.file("records/job.json")) == {
        "devices": ["nvidia-l4"],
        "problem": "the runner has nvidia-l4, and its label h200 promises nvidia-h200*",
    }


def test_a_machine_without_a_gpu_is_not_one_with(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(lane: str) -> tuple[str, str]:
        msg = "NVML shows no GPU"
        raise ValueError(msg)

    monkeypatch.setattr(steps, "machine", none)
    assert bench.run("check_device", CELL=a_cell("h200").model_dump_json(), RECORDS=str(bench.folder)) == 2
    assert "no GPU" in json.loads(bench.file("job.json"))["problem"]


def recorded(fake: FakeGitHub) -> None:
    fake.add_artifact(a_cell().id, ARCHIVE.read_bytes())
    fake.jobs = [{"name": f"perf / {a_cell().id}", "conclusion": "failure"}]


def changed(folder: Path, change: Callable[[Path], None]) -> bytes:
    """Return the recorded artifact after a change of what is in it."""
    inside = folder / "inside"
    shutil.unpack_archive(ARCHIVE, inside)
    change(inside)
    return Path(shutil.make_archive(str(folder / "changed"), "zip", inside)).read_bytes()


def test_the_report_of_a_recorded_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(bench.fake)
    line = "tests/e2e/patches/extra_graph_break.py"
    bench.fake.files = [{"filename": line, "patch": "@@ -1 +8,9 @@"}, {"filename": "README.md", "patch": "@@ -1 +1 @@"}]
    bench.event("pull_request", label_event())
    assert bench.run("report") == 1
    summary = bench.file("summary")
    assert summary.startswith(f"{MARKER}\n**6 of 31 signals regressed on CPU, torch 2.14: ")
    # A patch is in no release and no commit: no command is offered that would be refused.
    assert "refresh, once approved" not in summary
    commands = [told for told in capsys.readouterr().out.splitlines() if told.startswith("::")]
    assert commands
    assert all(told.startswith(f"::error file={line},line=1") for told in commands)
    page = bench.file("ci/report.html")
    assert "Figures of nano-cpu-b2-compile-eager" in page
    assert "graph breaks and recompiles since the first" in page


def test_the_refresh_command_is_the_workflow_that_a_person_starts(bench: Bench) -> None:
    def unpatched(folder: Path) -> None:
        for path in folder.rglob("*.record.json"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(", patched by extra_graph_break.py (41f5aed0)", ""), encoding="utf-8")

    bench.fake.add_artifact(a_cell().id, changed(bench.folder, unpatched))
    assert bench.run("report") == 1
    command = f"gh workflow run refresh.yml -f run-id={RUN} -f cases=nano-cpu-b2-compile-eager -f reason=..."
    assert f"- refresh, once approved: `{command}`" in bench.file("summary")


def test_a_report_of_a_run_that_left_nothing_is_a_failure(bench: Bench) -> None:
    bench.fake.jobs = [{"name": a_cell().id, "conclusion": "cancelled"}]
    assert bench.run("report") == 1
    assert "2 of 2 signals failed on CPU, torch 2.14" in bench.file("summary")
    assert "the job was cancelled" in bench.file("summary")
    assert "the job left no artifact" in bench.file("summary")


def test_a_report_without_the_list_of_files_has_no_annotations(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.event("pull_request", label_event())
    bench.fake.refuse["pulls/7/files"] = 403
    assert bench.run("report") == 1
    assert "no annotations: GitHub: GET pulls/7/files" in capsys.readouterr().err


def comment_artifact(bench: Bench) -> None:
    """Do what the workflow's upload does."""
    archive = shutil.make_archive(str(bench.folder / "comment"), "zip", bench.folder / "ci", "comment.json")
    bench.fake.add_artifact("comment", Path(archive).read_bytes())


def test_a_comment_is_prepared_and_then_written_and_updated(bench: Bench) -> None:
    recorded(bench.fake)
    bench.fake.pulls = [a_pull()]
    bench.event("workflow_run", run_event())
    assert bench.run("prepare_comment") == 0
    assert bench.outputs() == {"number": "7"}
    assert {method for method, *_ in bench.fake.requests} == {"GET"}
    comment_artifact(bench)
    assert bench.run("comment") == 0
    assert bench.run("comment") == 0
    [written] = bench.fake.comments
    assert written["body"].startswith(f"{MARKER}\n**6 of 31 signals regressed")
    assert f"https://github.com/{REPOSITORY}/actions/runs/{RUN}" in written["body"]


@pytest.mark.parametrize(
    ("archive", "size", "told"),
    [
        (ARCHIVE.read_bytes()[:5_000], None, "no whole archive"),
        (b"", 10**9, "1000000000 bytes large"),
        (None, None, "the job left no artifact"),
    ],
    ids=["truncated", "large", "missing"],
)
def test_a_bad_artifact_is_a_failed_verdict_in_the_comment(
    bench: Bench, archive: bytes | None, size: int | None, told: str
) -> None:
    if archive is not None:
        bench.fake.add_artifact(a_cell().id, archive, size)
    bench.fake.pulls = [a_pull()]
    bench.event("workflow_run", run_event())
    assert bench.run("prepare_comment") == 0
    text = json.loads(bench.file("ci/comment.json"))["text"]
    assert "**1 of 1 signal failed on CPU, torch 2.14: cpu-torch-2.14-quick, " in text
    assert told in text


@pytest.mark.parametrize(
    ("pulls", "history", "event"),
    [
        ([], [a_labelling()], run_event()),
        ([a_pull(sha="e" * 40)], [a_labelling()], run_event()),
        ([a_pull()], [a_labelling("bug")], run_event()),
        ([a_pull()], [a_labelling(when="2026-11-30T09:00:00Z")], run_event()),
        ([a_pull()], [a_labelling()], run_event(actor="someone")),
        ([a_pull()], [a_labelling(actor="someone")], run_event(actor="someone")),
        ([a_pull()], [a_labelling()], run_event(event="push")),
        ([a_pull()], [a_labelling()], run_event(conclusion="success")),
        ([a_pull()], [{"event": "labeled"}, {"event": "closed", "created_at": "2026-11-30T10:00:00Z"}], run_event()),
    ],
    ids=["closed", "other commit", "no label", "before", "push after", "may not", "push", "another label", "odd"],
)
def test_nothing_is_written_where_nothing_was_asked_for(
    bench: Bench, pulls: list[dict[str, Any]], history: list[dict[str, Any]], event: dict[str, Any]
) -> None:
    # What a pull request can forge by changing the workflow that runs on it: all of what its run left.
    recorded(bench.fake)
    if event["workflow_run"]["conclusion"] == "success":
        bench.fake.jobs = []
    bench.fake.permissions["someone"] = "read"
    bench.fake.pulls, bench.fake.events = pulls, history
    bench.event("workflow_run", event)
    assert bench.run("prepare_comment") == 0
    assert not (bench.folder / "ci" / "comment.json").exists()


def test_of_two_tiers_the_one_that_ran_is_told(bench: Bench) -> None:
    recorded(bench.fake)
    bench.fake.pulls, bench.fake.events = [a_pull()], [a_labelling("perf:full"), a_labelling("perf:quick")]
    bench.event("workflow_run", run_event())
    bench.run("prepare_comment")
    assert "cpu-torch-2.14-full" not in bench.file("ci/comment.json")
    bench.fake.jobs = []
    bench.run("prepare_comment")
    assert "cpu-torch-2.14-full" in bench.file("ci/comment.json")


def test_of_two_pull_requests_of_one_branch_the_one_with_the_label_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(bench.fake)
    bench.fake.pulls = [a_pull(8), a_pull(7)]
    bench.event("workflow_run", run_event())
    monkeypatch.setattr(bench.fake, "events_of", lambda number: [a_labelling()] if number == 7 else [])
    assert bench.run("prepare_comment") == 0
    assert bench.outputs() == {"number": "7"}


def test_a_machine_that_measured_and_is_not_among_those_asked_for_is_told(bench: Bench) -> None:
    recorded(bench.fake)
    bench.fake.jobs.append({"name": "perf / l4-torch-2.11-quick", "conclusion": "failure"})
    bench.fake.pulls = [a_pull()]
    bench.event("workflow_run", run_event())
    bench.run("prepare_comment")
    assert "`l4-torch-2.11-quick`: `the job left no artifact`" in json.loads(bench.file("ci/comment.json"))["text"]


def test_where_a_comment_is_refused_the_summary_has_the_text(bench: Bench) -> None:
    (bench.folder / "ci").mkdir()
    told = json.dumps({"number": 7, "text": f"{MARKER}\nhello"})
    (bench.folder / "ci" / "comment.json").write_text(told, encoding="utf-8")
    comment_artifact(bench)
    bench.fake.refuse["issues/7/comments"] = 403
    assert bench.run("comment") == 1
    assert bench.file("summary") == f"{MARKER}\nhello"


def test_a_comment_that_no_job_left_is_not_written(bench: Bench) -> None:
    with pytest.raises(OSError, match=r"comment\.json"):
        bench.run("comment")


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository with the baselines of the recorded cases, as they were before."""
    bare, work = tmp_path / "remote.git", tmp_path / "work"
    subprocess.run(["git", "init", "--quiet", "--bare", "-b", "main", str(bare)], check=True)
    place = work / "baselines" / "cpu" / "torch-2.14"
    place.mkdir(parents=True)
    for name in ("nano-cpu-b2", "nano-cpu-b2-compile-eager", "seg-nano-cpu-b2-compile-eager"):
        shutil.copy(baselines() / "cpu" / "torch-2.14" / f"{name}.json", place)
    (work / "README.md").write_text("hello\n", encoding="utf-8")
    git(work, "init", "--quiet", "-b", "main")
    assert commit(work, ["."], "First")
    git(work, "push", "--quiet", str(bare), "HEAD:refs/heads/main")
    return bare


def more_calls(folder: Path) -> None:
    """Let the head be what the base was, with more calls: what a patch does may not become a baseline."""
    [session] = folder.glob("ab-*")
    shutil.rmtree(session / "head")
    shutil.copytree(session / "base", session / "head")
    for path in session.glob("head/*/*.record.json"):
        told = json.loads(path.read_text(encoding="utf-8"))
        told["environment"] |= {"suite_dirty": False}
        for signal in told["signals"]:
            if signal["name"] == "python_calls" and path.parent.name == "nano-cpu-b2":
                signal.update(value=30_000, parts=[])
        path.write_text(json.dumps(told), encoding="utf-8")
    shutil.rmtree(folder / "collapse")


def test_a_refresh_opens_a_branch_with_the_right_diff(
    bench: Bench, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fake.add_artifact(a_cell().id, changed(tmp_path, more_calls))
    before = git(remote, "rev-parse", "main")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(remote), str(clone))
    monkeypatch.chdir(clone)
    bench.variables |= {
        "REMOTE": str(remote),
        "RUN_ID": str(RUN),
        "REASON": "more calls\n@octocat <b>fixes #1</b>",
        "GITHUB_ACTOR": "ada",
        "ALLOW_FEWER_RUNS": "true",
    }
    told = argparse.Namespace(folder=tmp_path / "ci", baselines=Path("baselines"))
    assert steps.refresh(Context(bench.variables), told) == 0

    branch = f"refresh/run-{RUN}"
    assert git(remote, "rev-parse", "main") == before
    assert git(remote, "diff", "--name-only", "main", branch).split() == ["baselines/cpu/torch-2.14/nano-cpu-b2.json"]
    (tmp_path / "seen" / "cpu" / "torch-2.14").mkdir(parents=True)
    path = tmp_path / "seen" / "cpu" / "torch-2.14" / "nano-cpu-b2.json"
    path.write_text(git(remote, "show", f"{branch}:baselines/cpu/torch-2.14/nano-cpu-b2.json"), encoding="utf-8")
    baseline = read_baseline(path)
    calls = baseline.signal("python_calls")
    assert calls is not None
    assert (calls.value, baseline.approvals[-1].by) == (30_000, "ada")
    [posted] = [body for method, path, _, body in bench.fake.requests if method == "POST"]
    assert (posted["head"], posted["base"], posted["title"]) == (branch, "main", f"Refresh baselines from run {RUN}")
    assert "### `nano-cpu-b2`\n\n1 signal changes\n" in posted["body"]
    assert "| `python_calls` | " in posted["body"]
    assert " calls | 30000 calls | +42.76 % | - | +42.76 % |" in posted["body"]
    assert "`more calls @octocat <b>fixes #1</b>`" in posted["body"]
    assert "secret" not in git(remote, "log", "-p", branch)


@pytest.fixture
def refreshing(bench: Bench, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return the refresh of a run with more calls, each time in a checkout of its own."""
    bench.fake.add_artifact(a_cell().id, changed(tmp_path, more_calls))

    def run(number: int = 0, **more: str) -> int:
        clone = tmp_path / f"clone-{number}"
        git(tmp_path, "clone", "--quiet", str(remote), str(clone))
        monkeypatch.chdir(clone)
        asked = {"REMOTE": str(remote), "RUN_ID": str(RUN), "REASON": "x", "GITHUB_ACTOR": "ada"}
        told = argparse.Namespace(folder=tmp_path / f"ci-{number}", baselines=Path("baselines"))
        return steps.refresh(Context(bench.variables | asked | {"ALLOW_FEWER_RUNS": "true"} | more), told)

    return run


def test_a_second_refresh_of_a_run_says_what_to_do(refreshing: Callable[..., int], remote: Path) -> None:
    assert refreshing() == 0
    before = git(remote, "rev-parse", f"refresh/run-{RUN}")
    with pytest.raises(ValueError, match=f"refresh/run-{RUN} is there already: merge or close its pull request"):
        refreshing(1)
    assert git(remote, "rev-parse", f"refresh/run-{RUN}") == before


@pytest.mark.parametrize("reason", ["-1 sync", "--dry-run", "--allow-dirty=x", "-x"])
def test_a_reason_that_looks_like_an_option_is_a_reason(
    refreshing: Callable[..., int], remote: Path, bench: Bench, reason: str
) -> None:
    assert refreshing(REASON=reason) == 0
    stored = git(remote, "show", f"refresh/run-{RUN}:baselines/cpu/torch-2.14/nano-cpu-b2.json")
    assert json.loads(stored)["approvals"][-1]["reason"] == reason
    assert f"Reason: `{reason}`" in bench.file("summary")


def test_a_body_is_one_that_github_takes_whatever_the_reason() -> None:
    from perf.ci.refreshing import body_of

    run = Run.model_validate(run_event()["workflow_run"])
    body = body_of("https://github.com/owner/suite/actions/runs/5", run, "x`" * 30_000, "ada", "| row |\n" * 10_000)
    assert len(body) < 65_536
    assert "all of it is in the commit" in body
    assert "Cut to what a description may hold" in body


def test_where_no_pull_request_may_be_opened_it_is_said_what_to_do(
    refreshing: Callable[..., int], bench: Bench
) -> None:
    bench.fake.refuse["pulls"] = 403
    with pytest.raises(OSError, match=r"refresh/run-5 is pushed, but no pull request is open: .* open it by hand"):
        refreshing()
    assert "### `nano-cpu-b2`" in bench.file("summary")


@pytest.mark.parametrize("run", ["abc", "-1", "0", "5/../../..", "5 6", "9" * 40])
def test_a_run_id_that_is_none_is_refused(refreshing: Callable[..., int], run: str) -> None:
    with pytest.raises(ValueError, match="no id of a workflow run"):
        refreshing(RUN_ID=run)


def test_a_run_that_goes_on_or_is_not_there_is_refused(refreshing: Callable[..., int], bench: Bench) -> None:
    bench.fake.run |= {"status": "in_progress", "conclusion": None}
    with pytest.raises(ValueError, match="run 5 has not ended, GitHub calls it 'in_progress'"):
        refreshing()
    bench.fake.refuse["actions/runs/6"] = 404
    with pytest.raises(FileNotFoundError, match="actions/runs/6"):
        refreshing(1, RUN_ID="6")


def test_the_pull_request_says_whose_run_it_was(refreshing: Callable[..., int], bench: Bench) -> None:
    refreshing()
    told = f"started by `pull_request` for `{SHA}` of `someone/suite@topic`, and ended with `failure`"
    assert told in bench.file("summary")


def test_of_two_sessions_with_a_case_that_with_more_runs_is_taken(tmp_path: Path) -> None:
    from perf.ci.refreshing import shared_out

    inside = tmp_path / "inside"
    shutil.unpack_archive(ARCHIVE, inside)
    [ab] = inside.glob("ab-*")
    for number in range(1, 3):
        place = inside / "configs" / "nano-cpu-b2" / f"run-{number}.record.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ab / "base" / "nano-cpu-b2" / "run-0.record.json", place)
    sessions = [ab / "head", inside / "configs"]
    assert shared_out(sessions, []) == {
        inside / "configs": ["nano-cpu-b2"],
        ab / "head": ["nano-cpu-b2-compile-eager", "seg-nano-cpu-b2-compile-eager"],
    }
    assert shared_out(sessions, ["nano-cpu-b2"]) == {inside / "configs": ["nano-cpu-b2"]}


def test_a_refresh_that_changes_nothing_opens_nothing(
    bench: Bench, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(bench.fake)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(remote), str(clone))
    monkeypatch.chdir(clone)
    told = argparse.Namespace(folder=tmp_path / "ci", baselines=Path("baselines"))
    asked = {"REMOTE": str(remote), "RUN_ID": "5", "REASON": "x", "GITHUB_ACTOR": "ada"}
    with pytest.raises(ValueError, match=r"patched by extra_graph_break\.py"):
        steps.refresh(Context(bench.variables | asked), told)
    with pytest.raises(ValueError, match=r"no record of no-such-case: the run has nano-cpu-b2, "):
        steps.refresh(Context(bench.variables | asked | {"CASES": "nano-cpu-b2 no-such-case"}), told)
    assert git(remote, "branch", "--format=%(refname:short)").split() == ["main"]
    bench.fake.artifacts = []
    with pytest.raises(ValueError, match="run 5 left no artifact of this suite"):
        steps.refresh(Context(bench.variables | asked), told)


@pytest.mark.parametrize("name", ["main", "trunk", "-x", "a..b", "../x", "a b", "a;b", "", "refs/heads/main~1"])
def test_a_branch_that_must_not_be_pushed_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no branch that this pushes"):
        check_name(name, Remote("x", "trunk"))
    with pytest.raises(ValueError, match="is no branch that this pushes"):
        push(tmp_path, Remote("x", "trunk"), name)


def test_what_git_says_is_told_without_the_token(tmp_path: Path, remote: Path) -> None:
    with pytest.raises(OSError, match="git push: ") as caught:
        git(tmp_path / "work", "push", str(tmp_path / "nowhere"), "HEAD", token="secret")
    assert "secret" not in str(caught.value)


def test_a_night_is_added_to_the_data_branch_and_nothing_else(bench: Bench, remote: Path, tmp_path: Path) -> None:
    recorded(bench.fake)
    before = git(remote, "rev-parse", "main")
    for number in range(2):
        assert bench.run("trend", REMOTE=str(remote), GITHUB_RUN_ID=str(RUN + number)) == 0
        shutil.rmtree(bench.folder / "ci")
    assert git(remote, "rev-parse", "main") == before
    assert git(remote, "log", "--format=%s", "perf-data").splitlines() == [f"Add run {RUN}"]
    data = tmp_path / "seen"
    assert fetch_branch(data, Remote(str(remote), "main"), "perf-data")
    # Base and head were measured in one session: neither's runs are the other's.
    nights = read(data / "cpu" / "torch-2.14" / "nano-cpu-b2.jsonl")
    assert {Path(night.session).name for night in nights} <= {"base", "head"}


def test_a_night_with_a_bad_artifact_adds_the_others_and_fails(bench: Bench, remote: Path) -> None:
    bench.fake.add_artifact(a_cell().id, b"no zip")
    assert bench.run("trend", REMOTE=str(remote)) == 1
    assert "not added: `cpu-torch-2.14-quick`: `its artifact cannot be used: " in bench.file("summary")


def test_a_data_branch_with_a_broken_line_takes_the_other_cases_and_says_which_it_is(
    bench: Bench, remote: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    path = work / "cpu" / "torch-2.14" / "nano-cpu-b2.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("{\n", encoding="utf-8")
    assert commit(work, ["cpu"], "Break")
    push(work, Remote(str(remote), "main"), "perf-data")
    bench.fake.add_artifact(a_cell().id, changed(tmp_path, more_calls))
    assert bench.run("trend", REMOTE=str(remote)) == 1
    added = git(remote, "diff", "--name-only", "perf-data~1", "perf-data").split()
    assert added == [f"cpu/torch-2.14/{case}nano-cpu-b2-compile-eager.jsonl" for case in ("", "seg-")]
    assert re.search(r"not added: `cpu-torch-2.14-quick`: `\S+/nano-cpu-b2\.jsonl:1: ", bench.file("summary"))
    assert re.search(r"not shown: `trend`: `\S+/nano-cpu-b2\.jsonl:1: ", bench.file("summary"))


def test_a_variable_that_no_workflow_set_is_named() -> None:
    with pytest.raises(ValueError, match="REASON is not set"):
        Context({})["REASON"]
