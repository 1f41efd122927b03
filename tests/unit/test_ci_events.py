from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_github import run_event

from perf.ci.events import LabelEvent, Labelling, RunEvent, cells_for, decide, tiers_asked
from perf.ci.machines import FULL, QUICK, Machine, chosen, read_machines
from perf.matrix import DEFAULT_RFDETR
from perf.record import read_model

SHA, OTHER = "a" * 40, "b" * 40


def a_pull(**changes: Any) -> dict[str, Any]:
    head = {"sha": SHA, "repo": {"full_name": "someone/rf-detr"}}
    base = {"sha": OTHER, "repo": {"full_name": "owner/rf-detr"}}
    return {"number": 7, "state": "open", "head": head, "base": base, "title": "ignored"} | changes


def an_event(label: str | None = "perf:quick", action: str = "labeled", **changes: Any) -> LabelEvent:
    told: dict[str, Any] = {"action": action, "sender": {"login": "ada"}, "pull_request": a_pull(**changes)}
    return LabelEvent.model_validate(told | ({"label": {"name": label}} if label else {}))


GONE = {"sha": SHA, "repo": None}


@pytest.mark.parametrize(
    ("event", "permission", "tier", "why"),
    [
        (an_event(), "write", QUICK, "ada asked for perf:quick"),
        (an_event(), "admin", QUICK, "ada asked for perf:quick"),
        (an_event("perf:full"), "write", FULL, "ada asked for perf:full"),
        (an_event(), "read", None, "ada may not push here"),
        (an_event(), "none", None, "ada may not push here"),
        (an_event(), "", None, "ada may not push here"),
        (an_event(), "triage", None, "ada may not push here"),
        (an_event("perf:everything"), "admin", None, "the label asks for nothing"),
        (an_event("PERF:QUICK"), "admin", None, "the label asks for nothing"),
        (an_event("bug"), "admin", None, "the label asks for nothing"),
        (an_event(None), "admin", None, "the label asks for nothing"),
        (an_event(action="synchronize"), "admin", None, "nothing is measured on 'synchronize'"),
        (an_event(action="opened"), "admin", None, "nothing is measured on 'opened'"),
        (an_event(action="unlabeled"), "admin", None, "nothing is measured on 'unlabeled'"),
        (an_event(state="closed"), "admin", None, "not open"),
        (an_event(head=GONE), "admin", None, "is gone"),
    ],
)
def test_who_may_have_what_measured(event: LabelEvent, permission: str, tier: object, why: str) -> None:
    decision = decide(event, permission)
    assert decision.tier is tier
    assert why in decision.why


def test_a_job_for_each_machine_and_torch_minor_measures_exactly_the_two_commits() -> None:
    machines = {
        "h200": Machine.model_validate({"runs-on": ["gpu"], "devices": ["nvidia-h200*"], "torch": ["2.11", "2.14"]})
    }
    cells = cells_for(QUICK, an_event().pull_request, machines, "rfdetr")
    assert [cell.id for cell in cells] == ["h200-torch-2.11-quick", "h200-torch-2.14-quick"]
    assert cells[0].head == f"git+https://github.com/someone/rf-detr.git@{SHA}"
    assert cells[0].base == f"git+https://github.com/owner/rf-detr.git@{OTHER}"
    assert (cells[0].suite, cells[0].also, cells[0].pairs) == ("quick", "collapse", 3)
    assert "wall" not in cells[0].gate.split(",")
    assert (cells[0].takes("nvidia-h200"), cells[0].takes("nvidia-l4")) == (True, False)


def test_a_change_of_the_suite_is_held_against_equals() -> None:
    [cell] = cells_for(FULL, an_event().pull_request, chosen(read_machines(), "h200"), "suite")
    assert cell.base == cell.head == DEFAULT_RFDETR
    assert "wall" in cell.gate.split(",")


@pytest.mark.parametrize(
    ("label", "actor", "when", "event", "tiers"),
    [
        ("perf:quick", "ada", "10:00:00", "labeled", [QUICK]),
        ("perf:full", "ada", "09:51:00", "labeled", [FULL]),
        ("perf:quick", "ada", "10:00:30", "labeled", [QUICK]),
        ("perf:quick", "ada", "09:49:00", "labeled", []),
        ("perf:quick", "ada", "10:30:00", "labeled", []),
        ("perf:quick", "bob", "10:00:00", "labeled", []),
        ("perf:quick", None, "10:00:00", "labeled", []),
        ("perf:quick", "ada", "10:00:00", "unlabeled", []),
        ("bug", "ada", "10:00:00", "labeled", []),
        (None, "ada", "10:00:00", "closed", []),
    ],
)
def test_a_run_is_asked_for_by_the_label_that_its_actor_set_just_before(
    label: str | None, actor: str | None, when: str, event: str, tiers: list[object]
) -> None:
    told = {"event": event, "created_at": f"2026-11-30T{when}Z", "actor": {"login": actor} if actor else None}
    one = Labelling.model_validate(told | ({"label": {"name": label}} if label else {}))
    run = RunEvent.model_validate(run_event()).workflow_run
    assert tiers_asked(run, [one]) == tiers
    assert tiers_asked(run.model_copy(update={"actor": None}), [one]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"head": {"sha": "main; rm -rf ~", "repo": {"full_name": "a/b"}}},
        {"head": {"sha": SHA, "repo": {"full_name": "a/b.git@x#egg=y"}}},
        {"number": 0},
        {"number": "7; x"},
    ],
)
def test_an_event_that_is_none_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "event.json"
    told = {"action": "labeled", "sender": {"login": "ada"}, "pull_request": a_pull(**changes)}
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ValueError, match=r"event\.json: pull_request"):
        read_model(path, LabelEvent)


def test_a_run_without_a_repository_is_read(tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    run = run_event()["workflow_run"] | {"id": 3, "head_branch": None, "head_repository": None}
    path.write_text(json.dumps({"action": "completed", "workflow_run": run}), encoding="utf-8")
    assert read_model(path, RunEvent).workflow_run.id == 3
    with pytest.raises(ValueError, match="gone"):
        read_model(tmp_path / "gone.json", RunEvent)
