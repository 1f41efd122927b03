"""The workflows themselves: what each may do, and that each of their lines runs, here and without GitHub."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_github import REPOSITORY, RUN, FakeGitHub, a_pull, label_event, run_event, serving, write_event
from recorded import ARCHIVE, a_cell, baselines

from perf.ci.machines import CELLS, LABELS, QUICK, read_machines
from perf.cli import main
from perf.commands.ci import STEPS
from perf.matrix import MATRIX

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
ACTION = GITHUB / "actions" / "measure" / "action.yml"
LINE = re.compile(r"pipx run --spec 'nox\[uv\]' nox -s (?P<session>\S+)(?: -- (?P<rest>.*))?")
# Whose jobs run code of a pull request.
UNTRUSTED = {"measure.yml": ["measure"]}


def load(path: Path) -> dict[str, Any]:
    # To YAML the key "on" is true.
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in found.items()}


WORKFLOWS = {path.name: load(path) for path in sorted((GITHUB / "workflows").glob("*.yml"))}
JOBS = [(name, job, told) for name, workflow in WORKFLOWS.items() for job, told in workflow["jobs"].items()]
STEPS_OF_JOBS = [
    (f"{name} {job} {index}", step) for name, job, told in JOBS for index, step in enumerate(told.get("steps", []))
]
ALL_STEPS = [*STEPS_OF_JOBS, *((f"action {index}", step) for index, step in enumerate(load(ACTION)["runs"]["steps"]))]
RUNS = [(place, step) for place, step in ALL_STEPS if "run" in step]


def test_these_are_the_workflows() -> None:
    assert list(WORKFLOWS) == ["ci.yml", "gpu-pr.yml", "measure.yml", "nightly.yml", "publish.yml", "refresh.yml"]
    assert len(RUNS) >= 14


@pytest.mark.parametrize(("place", "step"), RUNS, ids=[place for place, _ in RUNS])
def test_every_run_block_is_one_line_that_calls_a_session(place: str, step: dict[str, Any]) -> None:
    line = step["run"]
    found = LINE.fullmatch(line)
    assert found, line
    assert "${{" not in line, "an expression in a line is text that a shell runs"
    session = found["session"].strip('"').replace("$TORCH", "2.11")
    by_minor = {f"{kind}-{minor}" for kind in ("perf", "ab", "calibrate", "sweep", "epoch") for minor in MATRIX}
    assert session in by_minor | {"lint", "tests", "journeys", "replay", "ci"}
    if session == "ci":
        assert found["rest"] in STEPS


def test_every_step_of_the_command_is_in_a_workflow() -> None:
    used = {found["rest"] for _, step in RUNS if (found := LINE.fullmatch(step["run"])) and found["session"] == "ci"}
    assert used == set(STEPS)


@pytest.mark.parametrize(("name", "job", "told"), JOBS, ids=[f"{name} {job}" for name, job, _ in JOBS])
def test_a_job_has_the_least_that_it_needs(name: str, job: str, told: dict[str, Any]) -> None:
    assert WORKFLOWS[name]["permissions"] == {}, "what a job does not name it has not"
    assert WORKFLOWS[name]["cache-mode"] == told.get("cache-mode", "none") == "none"
    written = {scope for scope, value in told["permissions"].items() if value == "write"}
    allowed = {
        ("publish.yml", "comment"): {"pull-requests"},
        ("refresh.yml", "refresh"): {"contents", "pull-requests"},
        ("nightly.yml", "trend"): {"contents"},
    }
    assert written == allowed.get((name, job), set())
    text = json.dumps(told)
    assert "secrets." not in text
    assert "inherit" not in text
    if job in UNTRUSTED.get(name, []):
        assert told["permissions"] == {}
        assert "github.token" not in text
    if "uses" not in told:
        assert told["timeout-minutes"]


def test_the_action_that_runs_untrusted_code_sees_no_token() -> None:
    text = ACTION.read_text(encoding="utf-8")
    assert "token" not in text.lower()
    assert "secrets" not in text


def test_nothing_is_checked_out_for_an_event_that_has_a_secret() -> None:
    assert all("pull_request_target" not in json.dumps(workflow) for workflow in WORKFLOWS.values())
    publish = WORKFLOWS["publish.yml"]
    for job in publish["jobs"].values():
        refs = [step["with"]["ref"] for step in job["steps"] if "checkout" in step.get("uses", "")]
        assert refs == ["${{ inputs.suite-ref || github.sha }}"]
    assert [name for name, workflow in WORKFLOWS.items() if "workflow_run" in workflow["on"]] == ["publish.yml"]
    assert WORKFLOWS["publish.yml"]["on"]["workflow_run"]["workflows"] == [WORKFLOWS["gpu-pr.yml"]["name"]]


@pytest.mark.parametrize(("place", "step"), ALL_STEPS, ids=[place for place, _ in ALL_STEPS])
def test_actions_are_pinned_and_keep_no_credentials(place: str, step: dict[str, Any]) -> None:
    uses = step.get("uses", "./")
    assert uses.startswith("./") or re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", uses)
    if "checkout" in uses:
        assert step["with"]["persist-credentials"] is False


def test_every_pin_says_its_version() -> None:
    for path in GITHUB.rglob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "uses: actions/" in line:
                assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_only_a_label_that_counts_ends_what_is_being_measured() -> None:
    measure, caller = WORKFLOWS["measure.yml"]["jobs"]["measure"], WORKFLOWS["gpu-pr.yml"]
    assert measure["concurrency"]["cancel-in-progress"] is True
    assert measure["if"] == "needs.plan.outputs.wanted == 'true'"
    assert caller["concurrency"]["cancel-in-progress"] is False


def test_one_comment_of_a_pull_request_is_written_at_a_time() -> None:
    told = WORKFLOWS["publish.yml"]["jobs"]["comment"]["concurrency"]
    assert told == {"group": "rfdetr-perf-comment-${{ needs.judge.outputs.number }}", "cancel-in-progress": False}


def test_only_nights_of_the_develop_branch_are_in_the_trend() -> None:
    assert WORKFLOWS["nightly.yml"]["jobs"]["trend"]["if"].endswith("&& !inputs.head")


def test_a_refresh_is_of_the_default_branch_wherever_it_was_started() -> None:
    checkout = WORKFLOWS["refresh.yml"]["jobs"]["refresh"]["steps"][0]
    assert checkout["with"]["ref"] == "${{ github.event.repository.default_branch }}"


def test_the_label_of_a_pull_request_is_the_only_way_to_a_gpu() -> None:
    event = WORKFLOWS["gpu-pr.yml"]["on"]
    assert event == {"pull_request": {"types": ["labeled"]}}
    condition = WORKFLOWS["gpu-pr.yml"]["jobs"]["perf"]["if"]
    assert condition == "startsWith(github.event.label.name, 'perf:')"
    assert all(label.startswith("perf:") for label in LABELS)


def test_the_readme_shows_how_rf_detr_calls_this() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    [measure, publish] = yaml.safe_load_all(block)
    for told, name in ((measure, "measure.yml"), (publish, "publish.yml")):
        [job] = told["jobs"].values()
        assert f"/.github/workflows/{name}@" in job["uses"]
        called = WORKFLOWS[name]["on"]["workflow_call"]["inputs"]
        assert set(job["with"]) <= set(called)
        assert {key for key, value in called.items() if value.get("required")} <= set(job["with"])
        wanted: dict[str, str] = {}
        for one in WORKFLOWS[name]["jobs"].values():
            wanted |= {k: v for k, v in one["permissions"].items() if wanted.get(k) != "write"}
        assert job["permissions"] == wanted


def test_the_runners_labels_are_known_to_actionlint() -> None:
    known = yaml.safe_load((GITHUB / "actionlint.yaml").read_text(encoding="utf-8"))["self-hosted-runner"]["labels"]
    own = {label for m in read_machines().values() if "self-hosted" in m.runs_on for label in m.runs_on[1:]}
    assert set(known) == own


PIPX = """\
#!{python}
# Stands for pipx: of a step of the suite it runs the command, since its environment is this one; of the rest it tells.
import subprocess, sys
arguments = sys.argv[1:]
assert arguments[:6] == ["run", "--spec", "nox[uv]", "nox", "-s", arguments[5]], arguments
session, rest = arguments[5], arguments[7:]
if session == "ci":
    sys.exit(subprocess.run([sys.executable, "-m", "perf.cli", "ci", *rest]).returncode)
command = [sys.executable, "-m", "nox", "--noxfile", "{noxfile}", "--list", "-s", session]
known = subprocess.run(command, capture_output=True)
print(known.returncode, session, rest)
"""


class Runner:
    """Runs steps of a workflow as GitHub's runner does: ``bash -e``, with the variables that the step names."""

    def __init__(self, folder: Path, fake: FakeGitHub) -> None:
        self.folder, self.fake = folder, fake
        tool = folder / "bin" / "pipx"
        tool.parent.mkdir()
        tool.write_text(PIPX.format(python=sys.executable, noxfile=ROOT / "noxfile.py"), encoding="utf-8")
        tool.chmod(0o755)
        self.work = folder / "work"
        shutil.copytree(baselines(), self.work / "baselines")
        self.values = {
            "github.token": "secret",
            "needs.plan.outputs.cells": CELLS.dump_json([a_cell()]).decode(),
            "github.event.repository.default_branch": "main",
            "inputs.subject": "suite",
            "inputs.subject || 'suite'": "suite",
            "inputs.machines": "cpu",
            "inputs.cell": a_cell().model_dump_json(),
            "runner.temp": str(folder),
            "inputs.run-id": str(RUN),
            "inputs.reason": "because",
        } | {f"fromJSON(inputs.cell).{key}": str(value) for key, value in a_cell().model_dump().items()}

    def variables(self, event: str, told: dict[str, Any]) -> dict[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": self.fake.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_RUN_ID": str(RUN),
            "GITHUB_ACTOR": "ada",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(write_event(self.folder, told)),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
        }

    def step(
        self, step: dict[str, Any], event: str, told: dict[str, Any], **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a step; an expression is what :attr:`values` says, or empty."""
        fill = re.compile(r"\$\{\{ (.*?) \}\}")
        env = {
            name: fill.sub(lambda m: self.values.get(m[1], ""), str(text)) for name, text in step.get("env", {}).items()
        }
        variables = self.variables(event, told) | env | more
        command = ["bash", "-e", "-c", step["run"]]
        return subprocess.run(command, cwd=self.work, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with serving() as fake:
        yield Runner(tmp_path, fake)


def unquoted(output: str) -> list[str]:
    """Return what a step printed after it told the runner to take no commands from it."""
    first, *rest = output.splitlines()
    assert re.fullmatch(r"::stop-commands::[0-9a-f]{32}", first)
    return rest


def step_of(workflow: str, job: str, rest: str) -> dict[str, Any]:
    steps = load(ACTION)["runs"]["steps"] if job == "action" else WORKFLOWS[workflow]["jobs"][job]["steps"]
    return next(step for step in steps if step.get("run", "").endswith(rest))


def test_a_pull_request_from_its_label_to_its_comment(runner: Runner) -> None:
    fake = runner.fake
    fake.permissions, fake.pulls = {"ada": "write"}, [a_pull()]
    done = runner.step(step_of("measure.yml", "plan", "plan"), "pull_request", label_event())
    assert done.returncode == 0, done.stderr
    assert f'"id":"{a_cell().id}"' in (runner.folder / "output").read_text(encoding="utf-8")

    done = runner.step(step_of("", "action", "check-device"), "pull_request", label_event())
    assert (done.returncode, unquoted(done.stdout)) == (0, ["cpu"]), done.stderr
    assert (runner.folder / "records" / "job.json").is_file()

    fake.add_artifact(a_cell().id, ARCHIVE.read_bytes())
    fake.jobs = [{"name": f"perf / {a_cell().id}", "conclusion": "failure"}]
    fake.files = [{"filename": "tests/e2e/patches/extra_graph_break.py", "patch": "@@ -1 +8,9 @@"}]
    done = runner.step(step_of("measure.yml", "report", "report"), "pull_request", label_event())
    assert done.returncode == 1, done.stderr
    assert "6 of 31 signals regressed" in (runner.folder / "summary").read_text(encoding="utf-8")
    # Our commands and no other line are taken by the runner.
    [stop, resume, *ours, again] = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert stop == again
    assert stop.removeprefix("::stop-commands::") == resume.strip(":")
    assert ours
    assert all(line.startswith("::error file=tests/e2e/patches/extra_graph_break.py,line=1") for line in ours)
    assert (runner.work / "ci" / "report.html").is_file()

    done = runner.step(step_of("publish.yml", "judge", "prepare-comment"), "workflow_run", run_event())
    assert done.returncode == 0, done.stderr
    archive = shutil.make_archive(str(runner.folder / "comment"), "zip", runner.work / "ci", "comment.json")
    fake.add_artifact("comment", Path(archive).read_bytes())
    done = runner.step(step_of("publish.yml", "comment", "comment"), "workflow_run", run_event())
    assert (done.returncode, unquoted(done.stdout)) == (0, ["comment-1"]), done.stderr
    assert "6 of 31 signals regressed on CPU, torch 2.14" in fake.comments[0]["body"]


def test_the_lines_that_measure_name_sessions_and_options_that_there_are(runner: Runner) -> None:
    steps = [step for step in load(ACTION)["runs"]["steps"] if "-$TORCH" in step.get("run", "")]
    told = [runner.step(step, "pull_request", label_event()).stdout for step in steps]
    records = str(runner.folder / "records")
    assert told == [
        f"0 ab-2.14 ['--same', '--base', '1.11.2', '--head', '1.11.2', '--suite', 'quick', "
        f"'--gate', '{','.join(QUICK.gate)}', '--pairs', '3', '--records', '{records}']\n",
        f"0 perf-2.14 ['--rfdetr', '1.11.2', '--suite', 'collapse', '--records', '{records}']\n",
    ]
    asked = ["--same", "--suite", "quick", "--gate", ",".join(QUICK.gate), "--pairs", "3", "--records", records]
    # The command takes them, and stops at a case that there is none of: nothing is measured here.
    assert main(["ab", *asked, "--case", "no-such-case"]) == 2


def test_the_night_and_the_refresh(runner: Runner) -> None:
    night = {"schedule": "17 2 * * *"}
    done = runner.step(step_of("nightly.yml", "plan", "nightly"), "schedule", night)
    assert done.returncode == 0, done.stderr
    assert '"id":"h200-torch-2.15-nightly"' in (runner.folder / "output").read_text(encoding="utf-8")

    runner.fake.add_artifact(a_cell().id, ARCHIVE.read_bytes())
    bare = runner.folder / "bare.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(bare)], check=True)
    done = runner.step(step_of("nightly.yml", "trend", "trend"), "schedule", night, REMOTE=str(bare))
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(["git", "-C", bare, "branch"], capture_output=True, text=True, check=True).stdout
    assert listed.split() == ["perf-data"]

    done = runner.step(step_of("refresh.yml", "refresh", "refresh"), "workflow_dispatch", {}, REMOTE=str(bare))
    assert done.returncode == 2
    assert "patched by extra_graph_break.py" in done.stderr
