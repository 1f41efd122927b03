"""The store of the replay: what is kept, read and held against what the rows claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perf.compile_matrix import STORE as MATRIX
from perf.compile_matrix import read_store
from perf.replay import STORE, TABLE, Claim, Replay, chosen
from perf.replay_store import Kept, merged, problems, read_kept
from perf.stores import rows_text

ROOT = Path(__file__).resolve().parents[2]
ROWS = read_kept(ROOT / STORE)
ON_MATRIX = read_store(ROOT / MATRIX)
MEASURED = [row.name for row in ROWS if row.outcome == "caught"]
CPU = [one.name for one in chosen("cpu")]
COMMANDS = {one.name: one.command for one in TABLE}


def changed(name: str, **values: object) -> list[str]:
    """Return what is wrong with the committed store once the line of ``name`` has these values."""
    rows = [row.model_copy(update=values) if row.name == name else row for row in ROWS]
    return problems(rows, ON_MATRIX)


def test_the_committed_store_shows_all_that_is_claimed() -> None:
    assert problems(ROWS, ON_MATRIX) == []


def test_a_line_that_is_missing_is_named_unless_it_needs_a_gpu() -> None:
    told = {name: problems([row for row in ROWS if row.name != name], ON_MATRIX) for name in CPU}

    assert told == {name: [f"{name}: the store has no result; measure it: {COMMANDS[name]} --document"] for name in CPU}
    assert problems([row for row in ROWS if row.name in CPU], ON_MATRIX) == []


def test_a_line_that_says_nothing_is_named_whatever_its_outcome() -> None:
    for row in ROWS:
        [problem] = changed(row.name, said=[])
        assert problem.startswith(f"{row.name}: ")


def test_an_outcome_other_than_caught_is_named() -> None:
    for name in MEASURED:
        [problem] = changed(name, outcome="not caught", wrong=["x: pass"])
        assert problem == f"{name}: not caught: x: pass; measure it: {COMMANDS[name]} --document"


def test_what_was_not_run_does_not_pass_for_caught() -> None:
    [problem] = changed("graph-breaks", outcome="on record")

    assert problem.startswith("graph-breaks: on record")


@pytest.mark.parametrize(
    "values", [{"verdict": "incompatible"}, {"told": "no such words"}, {"part": "no such part"}, {"where": "no such"}]
)
def test_a_result_that_was_taken_before_its_row_changed_counts_no_more(
    values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MEASURED:
        asked = [replace(one, claims=_changed(one, values)) if one.name == name else one for one in TABLE]
        monkeypatch.setattr("perf.replay_store.TABLE", asked)
        named = "where" not in values or any(claim.part for one in asked if one.name == name for claim in one.claims)
        found = problems(ROWS, ON_MATRIX)
        assert [line.partition(", ")[0].partition(": the result does not")[0] for line in found] == [name] * named


def _changed(one: Replay, values: dict[str, str]) -> tuple[Claim, ...]:
    return tuple(replace(claim, **values) for claim in one.claims)


def test_a_place_is_that_of_the_part_and_not_of_another() -> None:
    said = next(row for row in ROWS if row.name == "graph-breaks").said
    moved = [line.replace("dinov2_with_windowed_attn.py:461", "dinov2.py:1") for line in said]

    [problem] = changed("graph-breaks", said=moved)
    assert "the result does not show graph_breaks: regressed, " in problem


def test_another_answer_of_the_compile_matrix_is_told() -> None:
    [first, *_] = [row for row in ON_MATRIX if row.torch_minor == "2.2" and row.case_id == "nano-cpu-b2"]
    other = first.model_copy(update={"outcome": "eager", "why": ""})

    found = problems(ROWS, [other if row.key == first.key else row for row in ON_MATRIX])
    assert [line.partition(":")[0] for line in found] == ["torch-2.2"]


def test_lines_are_replaced_by_name_and_in_the_order_of_the_table() -> None:
    old, new = Kept(name="graph-breaks", outcome="other"), Kept(name="graph-breaks", outcome="caught")

    assert merged([old], [Kept(name="no such replay", outcome="caught"), new]) == [new]
    assert [row.name for row in merged(reversed(ROWS), [])] == [row.name for row in ROWS]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    store = tmp_path / "replay.jsonl"
    assert read_kept(store) == []

    store.write_text(rows_text(ROWS), encoding="utf-8")
    assert read_kept(store) == ROWS


def test_a_store_that_cannot_be_read_names_the_line(tmp_path: Path) -> None:
    store = tmp_path / "replay.jsonl"
    store.write_text('{"name": "graph-breaks", "outcome": "fine"}\n', encoding="utf-8")

    with pytest.raises(ValueError, match=r"replay\.jsonl:1: outcome: "):
        read_kept(store)
