from __future__ import annotations

from pathlib import Path

from test_scoreboard import BLATANT, SMALL, an_unfaulted, measured

from perf.report.markdown import code
from perf.report.scoreboard import add, check, document, regenerate


def test_a_fault_that_was_measured_has_its_result_and_one_that_was_not_its_command() -> None:
    told = document([measured(SMALL, 1001), measured(BLATANT, 1400)])

    assert (
        "| aten op, small | `nano-cpu-b2` | listed | `aten_ops` listed: `+1 ops (+0.1 %)` | 1, counts | told |" in told
    )
    assert "| aten op, blatant | `nano-cpu-b2` | caught | `aten_ops` regressed: " in told
    assert "| silent (+1.2 %) | - |" in told
    asked = code("nox -s scoreboard -- --select kernel_small.nano-b4")
    assert f"| kernel, small | `nano-b4` | not run yet: needs a GPU | {asked} |" in told
    assert "| ema, small | `nano-cpu-b2-fit` | not run yet | `nox " in told
    assert "| blatant | 1 | 1 | 0 | 0 of 1 |" in told
    assert "- `tests/faults/ema_blatant.py`: The averaged weights are never updated.\n" in told.replace("``", "`")


def test_a_fault_that_was_missed_stands_out() -> None:
    assert "| aten op, blatant | `nano-cpu-b2` | **missed** | nothing |" in document([measured(BLATANT, 1000)])


def test_false_alarms_have_a_table_of_their_own() -> None:
    assert "Nothing was measured yet" in document([])
    assert "| `nano-cpu-b2` | baseline | 20 | 0 | 0 | 7 of 20 |" in document([an_unfaulted()])


def test_the_store_takes_rows_one_by_one_and_the_document_follows(tmp_path: Path) -> None:
    store, out = tmp_path / "s.jsonl", tmp_path / "s.md"
    add(store, [measured(SMALL, 1001)])
    add(store, [measured(BLATANT, 1400)])
    assert check(store, out)[0] == 1  # no document yet
    assert regenerate(store, out) == f"{out}: written\n"
    assert check(store, out, whole=False) == (
        0,
        "2 faults caught as they have to be; 2 not measured, which needs cores of its own; "
        "12 not measured, which needs a GPU\n",
    )
    code, said = check(store, out)
    assert (code, said.splitlines()[0].partition(";")[0]) == (
        1,
        "graph_break_small.nano-cpu-b2-compile-eager: not measured",
    )

    add(store, [measured(BLATANT, 1001)])
    regenerate(store, out)
    code, said = check(store, out, whole=False)
    assert code == 1
    assert "aten_op_blatant.nano-cpu-b2: not caught" in said
