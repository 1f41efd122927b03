from __future__ import annotations

from typing import Any

import pytest

from perf.verdicts import (
    EXIT_CODES,
    FAILING,
    SEVERITY,
    CaseVerdict,
    PartChange,
    SignalVerdict,
    Verdict,
    exit_code,
    leading_part,
    summarize,
    worst,
)


def a_case(verdict: Verdict, case_id: str = "nano-cpu-b2", **row: Any) -> CaseVerdict:
    values = {"case_id": case_id, "signal": "graph_breaks", "kind": "count-strict", "verdict": verdict} | row
    signal = SignalVerdict.model_validate(values)
    return CaseVerdict(case_id=case_id, verdict=verdict, runs=1, device="cpu", torch_minor="2.14", signals=[signal])


def test_the_exit_codes_are_those_of_the_design() -> None:
    assert {verdict: exit_code(verdict) for verdict in SEVERITY} == {
        "failed": 1,
        "not-compiled": 1,
        "regressed": 1,
        "improved": 4,
        "incompatible": 3,
        "inconclusive": 3,
        "no-baseline": 3,
        "pass": 0,
    }
    assert set(EXIT_CODES) == set(SEVERITY)


def test_nothing_judged_is_no_success() -> None:
    assert worst([None, None]) is None
    assert exit_code(None) == 3
    assert "nothing was judged" in summarize([])


def test_the_worst_decides_and_a_shown_row_does_not() -> None:
    assert worst(["pass", None, "improved", "regressed", "inconclusive"]) == "regressed"
    assert worst(["pass", None]) == "pass"


def test_a_regression_is_one_sentence_with_its_line() -> None:
    where = ["rfdetr/models/transformer.py:363"]
    bad = a_case("regressed", "nano-cpu-b2-compile", baseline=1, now=2, change=1, where=where)
    assert summarize([bad, a_case("pass")]) == (
        "1 of 2 cases regressed on cpu, torch 2.14: nano-cpu-b2-compile, "
        "+1 graph break at rfdetr/models/transformer.py:363"
    )


def test_further_lines_are_counted() -> None:
    bad = a_case("regressed", baseline=1, now=3, change=2, where=["f.py:1", "f.py:2", "f.py:3"])
    assert summarize([bad]).endswith("+2 graph breaks at f.py:1 and 2 more lines")


@pytest.mark.parametrize(
    ("moves", "change", "expected"),
    [
        ([5, 5, -9], 1, (0, 5, False)),
        ([5, 4, -8], 1, (0, 5, True)),
        ([-5, 4], -1, (0, -5, True)),
        ([5], 100, (0, 5, False)),
        ([-5], 1, None),
        ([], 1, None),
        ([1, -1], 0, (0, 1, True)),
        ([-2, 3], None, (1, 3, True)),
    ],
)
def test_the_leading_part(moves: list[float], change: float | None, expected: tuple[int, float, bool] | None) -> None:
    changes = [PartChange(name=str(index), old=10, new=10 + move) for index, move in enumerate(moves)]
    found = leading_part(changes, change, rising=True)
    assert (found and (int(found.part.name), found.change, found.most)) == expected


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"signal": "gpu_busy", "kind": "device", "baseline": 10, "change": 1}, "gpu busy +10.0%"),
        ({"signal": "host_syncs", "baseline": 10, "change": -3}, "-3 host syncs"),
        ({"change": 0, "message": "parts were replaced\nmore"}, "graph_breaks: parts were replaced"),
    ],
)
def test_the_reason_suits_the_kind(row: dict[str, Any], words: str) -> None:
    assert summarize([a_case("regressed", **row)]).endswith(f"nano-cpu-b2, {words}")


def test_a_pass_says_how_many_changes_are_listed() -> None:
    assert summarize([a_case("pass")]) == "1 of 1 case pass on cpu, torch 2.14"
    assert summarize([a_case("pass", listed=True)]).endswith("; changes inside the gate: 1, listed")


def test_failing_are_those_that_a_session_ends_by_as_changed_or_broken() -> None:
    assert {verdict for verdict, code in EXIT_CODES.items() if code in (1, 4)} == set(FAILING)
