from __future__ import annotations

import datetime
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from factories import (
    BREAK_LINE,
    CPU_COMPILED,
    GPU_EAGER,
    H200,
    a_record,
    a_signal,
    an_environment,
    parts,
    proof,
)
from hypothesis import given
from hypothesis import strategies as st

from perf.case import Case
from perf.compile_matrix import (
    CUT_OFF,
    Row,
    cache_state,
    merged,
    outcome,
    pay_back,
    read_store,
    rows_of,
    store_text,
)
from perf.configs import KNOWN
from perf.matrix import MATRIX, RELEASES
from perf.record import Part, Record, Signal, write_record
from perf.report.compile_matrix import document, regenerate
from perf.report.markdown import code, text

GPU_COMPILED = GPU_EAGER.model_copy(update={"compile": True})
CAPTURED = CPU_COMPILED.model_copy(update={"backend": "eager"})
DAY = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)


def first(seconds: float) -> Signal:
    return a_signal("first_step", seconds, "info", "s")


def step(milliseconds: float) -> Signal:
    return a_signal("step_time", milliseconds, "wall", "ms")


def compiled(*signals: Signal, case: Case = GPU_COMPILED, graphs: float = 7, run: int = 0, **changes: Any) -> Record:
    breaks = a_signal("graph_breaks", 1, parts=[Part(name="item()", value=1, where=[BREAK_LINE])])
    found = [*proof(), a_signal("graphs", graphs), breaks, a_signal("recompiles", 0), *signals]
    return a_record(found, case, run, started=DAY, **changes)


def cold(misses: float = 16) -> Signal:
    return a_signal("inductor_cache_misses", misses, "info")


def warm() -> Signal:
    return a_signal("inductor_cache_hits", 16, "info")


def row(*signals: Signal, **changes: Any) -> Row:
    [found] = rows_of([compiled(*signals, **changes)])
    return found


def eager_row(*signals: Signal) -> Row:
    [found] = rows_of([a_record(signals, GPU_EAGER, started=DAY)])
    return found


TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1, in f\n    g()\n"
REFUSED = f"""{TRACEBACK}torch._dynamo.exc.BackendCompilerFailed: backend='x' raised:
ValueError: refused

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (a_record(), ("eager", "")),
        (a_record(proof(), CPU_COMPILED), ("compiled", "")),
        (a_record(proof(failed=2, failed_parts=parts(forward=2)), CPU_COMPILED), ("fell back", "forward")),
        (
            a_record(proof(frames=1, model_frames=0), CPU_COMPILED),
            ("not compiled", "1 frames, none of them the model's own forward"),
        ),
        (a_record([a_signal("frames", 3, "info")], CPU_COMPILED), ("compiled", "")),
        (
            a_record([], CPU_COMPILED),
            ("not compiled", "0 frames, none of them the model's own forward"),
        ),
        (
            a_record(proof(), CPU_COMPILED, status="failed", error=f"{TRACEBACK}ValueError: no\n\n"),
            ("raised", "ValueError: no"),
        ),
        (
            a_record([], CPU_COMPILED, status="failed", error=f"{TRACEBACK}KeyError: 1\n\nand so\n\n{REFUSED}"),
            ("raised", "torch._dynamo.exc.BackendCompilerFailed: backend='x' raised: ValueError: refused"),
        ),
        (
            a_record([], CPU_COMPILED, status="failed", error="no end after 2 s"),
            ("raised", "no end after 2 s"),
        ),
        (a_record([], CPU_COMPILED, status="running"), ("raised", "ended in mid-run")),
        (
            a_record(
                status="failed", error="ImportError: no 'x' (/home/me/.nox/p/lib/python3.11/site-packages/t/x.py)"
            ),
            ("cannot be imported", "ImportError: no 'x' (t/x.py)"),
        ),
        (
            a_record(status="failed", error="ModuleNotFoundError: No module named 'y'"),
            ("cannot be imported", "ModuleNotFoundError: No module named 'y'"),
        ),
    ],
)
def test_the_outcome_in_words(record: Record, expected: tuple[str, str]) -> None:
    assert outcome(record) == expected


@pytest.mark.parametrize(
    ("signals", "state"),
    [([], "none"), ([cold()], "cold"), ([warm()], "warm"), ([warm(), cold()], "cold"), ([warm(), cold(0)], "warm")],
)
def test_one_missing_graph_makes_a_first_step_cold(signals: list[Signal], state: str) -> None:
    assert cache_state(a_record(signals, GPU_COMPILED)) == state


def test_a_row_holds_what_the_runs_say() -> None:
    runs = [
        compiled(first(150), cold(), step(80), a_signal("eval_graphs", 8), run=0),
        compiled(first(20), warm(), step(90), a_signal("eval_graphs", 8), run=1),
        compiled(first(22), warm(), step(100), a_signal("eval_graphs", 8), run=2),
    ]
    [found] = rows_of(runs)
    assert found.key == ("nano-b4-compile", "nvidia-h200", "2.14", "1.11.2")
    assert (found.outcome, found.runs, found.differing, found.eager) == ("compiled", 3, [], "nano-b4")
    assert found.counts == {
        **{"frames": 9, "model_frames": 1, "frames_failed": 0, "graphs": 7, "graph_breaks": 1, "recompiles": 0},
        "eval_graphs": 8,
    }
    assert found.reasons == {"graph_breaks": [Part(name="item()", value=1, where=[BREAK_LINE])]}
    assert {cache: (seen.seconds, seen.runs) for cache, seen in found.first.items()} == {
        "cold": (150, 1),
        "warm": (21, 2),
    }
    assert found.step_seconds == pytest.approx(0.09)
    assert found.measured == DAY


def test_the_batch_of_an_epoch_is_that_of_all_ranks() -> None:
    case = GPU_COMPILED.model_copy(update={"devices": 2, "nodes": 3})
    assert row(case=case).batch == 4 * 6


def test_runs_that_differ_are_said_to() -> None:
    failed = compiled(run=2, status="failed", error="RuntimeError: x")
    [found] = rows_of([compiled(), compiled(graphs=8, run=1), failed])
    assert (found.outcome, found.why) == ("raised", "RuntimeError: x")
    assert found.differing == ["outcome: compiled or raised", "graphs: 7 or 8"]
    assert "3, which differ in outcome: compiled or raised; graphs: 7 or 8" in document([found])
    [found] = rows_of([compiled(), compiled(a_signal("eval_graphs", 1), run=1)])
    assert found.differing == ["eval_graphs: none or 1"]


def test_a_changed_rfdetr_is_never_the_release() -> None:
    names = [
        rows_of([compiled(environment=an_environment(**changes))])[0].rfdetr
        for changes in (
            {},
            {"rfdetr_source": "local rf-detr", "rfdetr_commit": "0123456789abcdef", "rfdetr_dirty": True},
        )
    ]
    assert names == [
        "1.11.2",
        "1.11.2 (local rf-detr at 012345678 with uncommitted changes)",
    ]


def test_a_patched_rfdetr_is_left_out() -> None:
    environment = an_environment(rfdetr_source="release 1.11.2, patched by fix.py", rfdetr_dirty=True)
    assert rows_of([compiled(environment=environment)]) == []


def later(record: Record, session: str = "s2", **changes: Any) -> Record:
    when = record.started + datetime.timedelta(hours=1)
    return record.model_copy(update={"session": session, "started": when, **changes})


def test_a_newer_session_replaces_an_older_one_and_keeps_what_it_did_not_see() -> None:
    old, new = compiled(first(150), cold()), later(compiled(first(20), warm()))
    for records in ([old, new], [new, old]):
        [found] = rows_of(records)
        assert (found.counts["graphs"], found.differing) == (7, [])
        assert {cache: seen.seconds for cache, seen in found.first.items()} == {"cold": 150, "warm": 20}
    assert merged(rows_of([new]), rows_of([old])) == merged(rows_of([old]), rows_of([new]))


def test_runs_that_only_counted_tell_no_time_and_lose_none() -> None:
    timed = compiled(first(150), cold(), step(90))
    counted = later(compiled(first(999), cold(), untimed=True))
    assert (rows_of([counted])[0].first, rows_of([counted])[0].step_seconds) == ({}, None)
    [found] = rows_of([timed, counted])
    assert (found.counts["graphs"], found.first["cold"].seconds, found.step_seconds) == (7, 150, 0.09)
    [found] = rows_of([timed, later(compiled(status="failed", error="x"))])
    assert (found.first, found.step_seconds) == ({}, None)


def test_another_compilation_takes_no_time_over() -> None:
    timed = compiled(first(150), cold(), step(90))
    [found] = rows_of([timed, later(compiled(first(20), warm(), graphs=8))])
    assert (list(found.first), found.step_seconds) == (["warm"], None)


def test_a_record_that_is_read_twice_counts_once() -> None:
    assert [row.runs for row in rows_of([compiled(), compiled()])] == [1]


def test_another_torch_release_takes_nothing_over() -> None:
    old = compiled(first(150), cold(), environment=an_environment(device="nvidia-h200", torch="2.14.0"))
    [found] = rows_of([old, later(compiled(first(20), warm()))])
    assert list(found.first) == ["warm"]


@pytest.mark.parametrize(
    ("eager", "seconds", "step_ms", "steps"),
    [
        ((2, 100), 152, 90, 15000),
        ((2, 100), 152, 100, math.inf),
        ((2, 100), 152, 110, math.inf),
        ((2, 100), 1, 90, 0),
        ((2, 100), 1, 110, math.inf),
        ((0, 3), 1, 2, 1000),
        ((0, 3), 1.0001, 2, 1001),
    ],
)
def test_when_compiling_pays_back(eager: tuple[float, float], seconds: float, step_ms: float, steps: float) -> None:
    before = eager_row(first(eager[0]), step(eager[1]))
    assert pay_back(row(first(seconds), cold(), step(step_ms)), before, "cold") == steps


def test_what_is_missing_is_not_guessed() -> None:
    now = row(first(150), cold(), step(90))
    assert pay_back(now, None, "cold") is None
    assert pay_back(now, eager_row(first(2)), "cold") is None
    assert pay_back(now, eager_row(step(100)), "cold") is None
    assert pay_back(now, eager_row(first(2), step(100)), "warm") is None
    assert pay_back(row(first(150), cold()), eager_row(first(2), step(100)), "cold") is None


# The store.


def test_the_store_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    rows = rows_of([compiled(first(150), cold()), compiled(case=CAPTURED), a_record(started=DAY)])
    store = tmp_path / "m.jsonl"
    store.write_text(store_text(rows))
    assert read_store(store) == rows
    assert store_text(reversed(rows)) == store.read_text()
    assert len(store.read_text().splitlines()) == 3
    assert read_store(tmp_path / "none") == []


def test_rows_are_sorted_by_device_and_as_versions() -> None:
    environments = [
        {"torch_minor": "2.14"},
        {"torch_minor": "2.9"},
        {"rfdetr": "1.9.4", "rfdetr_source": "release 1.9.4"},
        {"device": "nvidia-a100"},
    ]
    rows = rows_of(compiled(environment=an_environment(**changes)) for changes in environments)
    assert [(found.device, found.rfdetr, found.torch_minor) for found in rows] == [
        ("cpu", "1.9.4", "2.14"),
        ("cpu", "1.11.2", "2.9"),
        ("cpu", "1.11.2", "2.14"),
        ("nvidia-a100", "1.11.2", "2.14"),
    ]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", r"Expecting property name enclosed in double quotes, column 2 \(char 1\)"),
        ("", "Expecting value"),
        ("[]", "Input should be a valid dictionary"),
        ('{"runs": 1}', "case_id: Field required"),
        ('{"step_seconds": NaN}', "NaN is not a number"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, bad: str, why: str) -> None:
    store = tmp_path / "m.jsonl"
    store.write_text(f"{store_text([row()])}{bad}\n")
    with pytest.raises(ValueError, match=f"m.jsonl:2: {why}") as error:
        read_store(store)
    assert "\n" not in str(error.value)


def test_a_row_that_comes_twice_is_named(tmp_path: Path) -> None:
    store = tmp_path / "m.jsonl"
    store.write_text(store_text([row()]) * 2)
    with pytest.raises(ValueError, match=r"m\.jsonl:2: a second row for nano-b4-compile, nvidia-h200, 2\.14, 1\.11\.2"):
        read_store(store)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_no_number_is_infinite(tmp_path: Path, value: str) -> None:
    store = tmp_path / "m.jsonl"
    line = store_text([row(step(1000))])
    store.write_text(line.replace('"step_seconds": 1', f'"step_seconds": {value}'))
    with pytest.raises(ValueError, match=r"m\.jsonl:1: "):
        read_store(store)


# The command.


class Bench:
    def __init__(self, root: Path) -> None:
        self.records, self.store, self.out = root / "records", root / "docs/m.jsonl", root / "docs/m.md"

    def record(self, record: Record) -> None:
        write_record(self.records / record.session / record.case_id / f"run-{record.run}.record.json", record)

    def run(self, *records: Path, **options: Any) -> tuple[int, str]:
        return regenerate(records, self.store, self.out, **options)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_one_command_goes_from_records_to_the_document(bench: Bench) -> None:
    bench.record(compiled())
    assert bench.run(bench.records) == (0, f"{bench.store}: written\n{bench.out}: written\n")
    assert bench.out.read_text() == document([row()])
    assert bench.run() == (0, f"{bench.store}: nothing changes\n{bench.out}: nothing changes\n")
    bench.out.write_text("edited")
    assert bench.run()[0] == 0
    assert bench.out.read_text() == document([row()])


def test_check_finds_a_stale_document_and_writes_nothing(bench: Bench) -> None:
    bench.record(compiled())
    bench.run(bench.records)
    assert bench.run(check=True) == (0, "")
    bench.out.write_text("edited")
    again = "not what the store gives; make it anew: rfdetr-perf matrix\n"
    assert bench.run(check=True) == (1, f"{bench.out}: {again}")
    assert bench.out.read_text() == "edited"
    bench.store.write_text(bench.store.read_text().replace('"runs": 1', '"runs":  1'))
    assert bench.run(check=True)[1] == f"{bench.store}: {again}{bench.out}: {again}"


def test_new_records_leave_the_other_rows(bench: Bench) -> None:
    bench.record(compiled())
    bench.run(bench.records)
    before = bench.store.read_text()
    other = Bench(bench.records.parent / "other")
    other.record(compiled(case=CAPTURED))
    bench.run(other.records)
    assert before in bench.store.read_text()
    assert len(read_store(bench.store)) == 2


def test_bad_input_changes_nothing(bench: Bench) -> None:
    bench.record(compiled())
    bench.run(bench.records)
    bench.store.write_text("{}\n")
    with pytest.raises(ValueError, match=r"m\.jsonl:1: case_id"):
        bench.run(bench.records)
    assert bench.store.read_text() == "{}\n"
    bench.store.write_text("")
    with pytest.raises(ValueError, match="no-records"):
        bench.run(Path("no-records"))
    assert bench.store.read_text() == ""


# The document.

EXPECTED = """\
## On `nvidia-h200`

### `nano-b4-compile`, by rfdetr release (across) and torch minor (down)

Graphs / graph breaks of what compiled.

{chart}
### Configs with rfdetr 1.11.2, torch 2.14

Measured with torch 2.14.1+cpu, transformers 4.57.1, Python 3.11.9.

| config | case | outcome | frames | graphs | breaks | recompiles | evaluation | first step | runs | measured |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| nano | `nano-b4-compile` | compiled | 9 | 7 | 1 | 0 | 8 / 1 / - | cold 150.0 s | 1 | 2026-07-01, c0ffee |
| {missing} | not run{eleven} |

#### When compiling pays back

| case | first step: eager | cold | warm | step: eager | compiled | pays back: cold | warm |
| --- | --- | --- | --- | --- | --- | --- | --- |
| `nano-b4-compile` | 2.000 s | 150.0 s | not run | 100.0 ms | 75.00 ms | 5920 steps (0.2 epochs) | not run |

<details><summary><code>graph breaks (1): nano-b4-compile (rfdetr 1.11.2, torch 2.14)</code></summary>

| number | what | where |
| --- | --- | --- |
| 1 | `item()` | `rfdetr/models/transformer.py:363` |

</details>
"""


def chart(minor: str, release: str, cell: str) -> str:
    lines = [["torch", *RELEASES], ["---"] * (1 + len(RELEASES))]
    for name, pins in MATRIX.items():
        rest = "known not to work" if pins.known_failure and not pins.known_failure.compiled else "not run"
        lines.append([name, *(cell if (name, r) == (minor, release) else rest for r in RELEASES)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def section(written: str, heading: str) -> str:
    return heading + written.partition(heading)[2].partition("\n## ")[0]


def test_the_section_of_a_device() -> None:
    more = [a_signal("eval_graphs", 8), a_signal("eval_graph_breaks", 1)]
    parity = [a_signal("parity_mismatches", 0), a_signal("parity_ties", 3, "info")]
    rows = [
        row(first(150), cold(), step(75), *more, *parity),
        eager_row(first(2), step(100)),
    ]
    missing = ", ".join(name for name in KNOWN if name != "nano")
    expected = EXPECTED.format(
        chart=chart("2.14", "1.11.2", "compiled 7 / 1"), missing=missing, eleven=" | not run" * 9
    )
    assert section(document(rows), "## On `nvidia-h200`") == expected
    assert "5920 steps (5.9 epochs)" in document(rows, steps_per_epoch=1000)
    assert "An epoch has\n  1000 steps." in document(rows, steps_per_epoch=1000)


def test_nothing_measured_is_said_and_what_is_known_stands() -> None:
    written = document([])
    assert "Nothing has been measured yet." in written
    assert "| 2.2 | every case | every transformers 5 " in written
    known = sum(bool(pins.known_failure) + bool(pins.known_mismatch) for pins in MATRIX.values())
    assert written.count("| expected, not run |") == known


def test_a_known_mismatch_is_told_where_it_was_seen() -> None:
    old = an_environment(torch="2.6.0", torch_minor="2.6")
    signals = [*proof(), a_signal("parity_mismatches", 19, parts=parts(loss=19))]
    shown = document(
        rows_of([a_record(signals, CPU_COMPILED.model_copy(update={"measure": "parity"}), environment=old)])
    )
    assert "observed: `nano-cpu-b2-compile-parity`, rfdetr 1.11.2: 19 keys |" in shown


def test_what_was_seen_not_to_work_is_held_against_what_is_known() -> None:
    error = "ImportError: cannot import name 'BackboneConfigMixin' from 'transformers' (x.py)"
    old = an_environment(torch="2.2.2", torch_minor="2.2")
    known = a_record([], CAPTURED, status="failed", error=error, environment=old)
    other = a_record([], CPU_COMPILED, status="failed", error="RuntimeError: a | b")
    written = document(rows_of([known, other]))
    assert f"| observed: `{CAPTURED.id}` on `cpu`, rfdetr 1.11.2: `{error}` |" in written
    table = section(written, "## Seen not to work").splitlines()
    assert table[-1] == f"| `{CPU_COMPILED.id}` | `cpu` | 1.11.2 | 2.14 | raised | `RuntimeError: a \\| b` |"
    assert len(table) == 5
    assert "Seen not to work" not in document(rows_of([known]))


def test_a_captured_case_pays_nothing_back() -> None:
    written = document([row(first(7), step(300), case=CAPTURED), *rows_of([a_record([first(1), step(400)])])])
    assert "| 7.000 s |" in written
    assert "pays back: cold" not in written


def test_the_pair_that_is_measured_by_default_is_open_and_the_others_are_folded() -> None:
    older = row(environment=an_environment(torch="2.9.1", torch_minor="2.9"))
    newer = row(environment=an_environment(torch="2.15.0", torch_minor="2.15"))
    written = document([older, row(environment=an_environment()), newer])
    places = [written.index(f"### Configs with rfdetr 1.11.2, torch {minor}\n") for minor in ("2.14", "2.15", "2.9")]
    assert places == sorted(places)
    assert "<details><summary><code>rfdetr 1.11.2, torch 2.14</code>" not in written
    assert written.count("<details><summary><code>rfdetr 1.11.2, torch 2.") == 2
    # One folded list of the breaks that all three share.
    shared = (
        "graph breaks (1): nano-b4-compile (rfdetr 1.11.2, torch 2.14); nano-b4-compile (rfdetr 1.11.2, torch 2.15);"
    )
    assert shared in written


def test_every_line_of_a_table_has_as_many_cells_as_its_heading() -> None:
    hostile = "a|b\n<img src=x> `` @octocat [x](y) | \\| \x1b[31m"
    broken = a_signal("graph_breaks", 2, parts=[Part(name=hostile, value=2, where=["a|b.py:1"])])
    record = a_record(
        [*proof(failed=1, failed_parts=[Part(name=hostile, value=1)]), broken],
        GPU_COMPILED,
        environment=H200.model_copy(update={"rfdetr_source": hostile, "transformers": hostile, "suite_commit": "a|b"}),
    )
    for block in document(rows_of([record])).split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1
    assert "\x1b" not in document(rows_of([record]))


@given(st.text())
def test_code_is_one_span_in_one_cell(value: str) -> None:
    shown = code(value)
    assert "\n" not in shown
    assert "|" not in shown.replace("\\|", "")
    if shown != "-":
        fence = shown[: len(shown) - len(shown.lstrip("`"))]
        assert shown.endswith(fence)
        assert fence not in shown[len(fence) : -len(fence)]


@given(st.text())
def test_text_is_plain_or_code(value: str) -> None:
    shown = text(value)
    assert shown in (value, code(value))
    assert shown == code(value) or not set(value) & set("`*[]<>&|@#\\~!$\n")


@given(st.lists(st.sampled_from(["cold", "warm", "none"]), max_size=3), st.floats(0, 1e6), st.integers(1, 10**6))
def test_any_times_make_a_store_and_a_document(caches: list[str], seconds: float, steps: int) -> None:
    signals = {"cold": cold(), "warm": warm()}
    records = [
        compiled(first(seconds), step(seconds), *([signals[cache]] if cache in signals else []), run=run)
        for run, cache in enumerate(caches)
    ]
    rows = rows_of([*records, a_record([first(1), step(3)], GPU_EAGER, started=DAY)])
    assert [Row.model_validate(json.loads(line)) for line in store_text(rows).splitlines()] == rows
    written = document(rows, steps)
    assert not re.search(r"\b(nan|inf)\b", written)


def of(case: Case, *signals: Signal, **changes: Any) -> str:
    return document(rows_of([a_record([*proof(), *signals], case, **changes)]))


def test_shapes_have_a_table_of_their_own() -> None:
    places = parts(**{"outside a graph": 18})
    signals = [
        *(a_signal(name, value) for name, value in (("graphs", 15), ("graph_breaks", 6), ("recompiles", 7))),
        a_signal("distinct_shapes", 8),
        a_signal("shapes", 20, "info", parts=parts(**{"2x3x128x160": 5})),
        *(a_signal(name, value) for name, value in (("recompile_limit_hits", 1), ("eager_steps", 2))),
        a_signal("recompile_limit", 8, "info"),
        a_signal("pos_embed_interpolations", 18, "info", parts=places),
        a_signal("pos_embed_time", 0.5, "info", "ms"),
    ]
    shown = of(CAPTURED.model_copy(update={"multi_scale": "per-batch", "measure": "epoch"}), *signals)
    row = "| compiled | 8 | 15 | 6 | 7 | 8 | 1 | 2 | 18 outside a graph | 500.0 us |"
    assert f"| `nano-cpu-b2-compile-eager-per-batch-epoch` {row}" in shown
    assert "steps by shape (5)" in shown
    assert "`2x3x128x160`" in shown


def test_parity_names_what_differs_and_what_ties_explain() -> None:
    signals = [
        a_signal("parity_mismatches", 1, parts=parts(loss_ce=1)),
        a_signal(
            "parity_ties",
            2,
            "info",
            parts=parts(**{f"{key}: explained by top-k (5 of 9 differ)": 1 for key in ("loss_bbox", "loss_giou")}),
        ),
        a_signal("parity_difference", 12.345, "info"),
    ]
    shown = of(CPU_COMPILED.model_copy(update={"measure": "parity"}), *signals)
    row = "| compiled | 1: `loss_ce` | 2 by top-k (5 of 9 differ) | 12 |"
    assert f"| `nano-cpu-b2-compile-parity` {row}" in shown


@pytest.mark.parametrize(
    ("measured", "left"),
    [
        ({"measure": "parity", "backend": "aot_eager"}, "base-cpu-b2-compile-aot_eager-parity"),
        ({"measure": "epoch", "workers": 0}, "nano-cpu-b2-compile-aot_eager-per-sample-nonsquare-w0-epoch"),
        ({"dynamic": "on"}, "nano-cpu-b2-compile-eager-scalars-off"),
    ],
)
def test_what_a_suite_has_and_nobody_measured_is_said(measured: dict[str, Any], left: str) -> None:
    case = CAPTURED.model_copy(update=measured)
    [line] = [line for line in of(case).splitlines() if f"`{left}`" in line]
    assert set(line.strip("| ").split(" | ")[1:]) == {"not run"}
    assert f"`{case.id}`" not in line


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        (CAPTURED.model_copy(update={"dynamic": "on"}), "compiled"),
        (CPU_COMPILED.model_copy(update={"cuda_graphs": True}), "unsupported here: compiled without"),
        (CPU_COMPILED.model_copy(update={"mode": "reduce-overhead"}), "unsupported here: compiled without"),
        (GPU_COMPILED.model_copy(update={"mode": "reduce-overhead"}), "compiled"),
    ],
)
def test_settings_say_what_became_of_them(case: Case, outcome: str) -> None:
    shown = of(case, a_signal("step_time", 90, "wall", "ms"), a_signal("gpu_busy", 10.25, "device", "ms"))
    assert f"| `{case.id}` | {outcome} | - | - | - | 90.00 ms | 10.25 ms |" in shown


def test_a_setting_that_raised_says_how() -> None:
    case = CAPTURED.model_copy(update={"suppress_errors": False})
    record = a_record([], case, status="failed", error="torch._dynamo.exc.InternalTorchDynamoError: no")
    shown = document(rows_of([record]))
    assert f"| `{case.id}` | raised: `torch._dynamo.exc.InternalTorchDynamoError: no` |" in shown


def test_a_run_that_was_stopped_in_its_validation_tells_of_its_training_steps() -> None:
    rest = [a_signal(name, 2) for name in ("graphs", "graph_breaks", "recompiles")]
    cut = a_record([*proof(), *rest], CPU_COMPILED, status="running")
    locked = proof(failed=1, failed_parts=[Part(name="lock", value=1)])
    failed = a_record([*locked, *rest], CPU_COMPILED, status="running")

    assert outcome(cut) == ("compiled", CUT_OFF)
    assert outcome(failed) == ("fell back", f"lock; {CUT_OFF}")
    assert [row.why for row in rows_of([cut])] == [CUT_OFF]


def test_a_run_that_was_cut_off_does_not_replace_a_finished_one() -> None:
    counted = [*proof(), *(a_signal(name, 2) for name in ("graphs", "graph_breaks", "recompiles"))]
    finished = a_record(counted, CPU_COMPILED, session="a", started=DAY)
    later = DAY + datetime.timedelta(days=1)
    cut = a_record(counted, CPU_COMPILED, session="b", status="running", started=later)

    assert [row.why for row in rows_of([finished, cut])] == [""]
    assert [row.why for row in rows_of([cut])] == [CUT_OFF]


@pytest.mark.parametrize(
    ("status", "error"),
    [("running", None), ("failed", "Traceback (most recent call last):\n  File x\nKeyboardInterrupt: SIGTERM")],
)
def test_a_run_that_was_stopped_tells_nothing(status: Any, error: str | None) -> None:
    assert rows_of([a_record([], CAPTURED, status=status, error=error)]) == []
