"""The cheapest fault of the scoreboard, on the real rfdetr: it and its twin are measured, judged and written down."""

from __future__ import annotations

from pathlib import Path

from running import python

from perf.faults import FAULTS, line_of
from perf.scoreboard import Row, is_caught, line_told, problems, read_store

LEAK = next(fault for fault in FAULTS if fault.id == "memory_leak_small.nano-cpu-b2")
OP = next(fault for fault in FAULTS if fault.id == "aten_op_small.nano-cpu-b2")


def test_a_leak_and_an_op_are_caught_and_written_down(tmp_path: Path) -> None:
    store, out = tmp_path / "store.jsonl", tmp_path / "scoreboard.md"
    files = ["--store", str(store), "--out", str(out)]
    asked = ["--records", str(tmp_path / "scoreboard"), "--lane", "cpu", "--select", LEAK.id, "--select", OP.id]
    done = python("-m", "perf.cli", "scoreboard", *files, *asked)

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = {row.fault_id: row for row in read_store(store) if isinstance(row, Row)}
    assert set(rows) == {LEAK.id, OP.id}
    assert problems(rows.values()) == []
    leak, op = rows[LEAK.id], rows[OP.id]
    assert is_caught(leak, LEAK)
    assert next(seen for seen in leak.seen if seen.signal == "memory_growth").change == "+4096 B"
    assert line_told(op, OP)
    assert f"aten op, small | `{OP.case_id}` | listed" in out.read_text(encoding="utf-8")
    assert line_of(OP) in str(op.seen)
    checked = python("-m", "perf.cli", "scoreboard", "--check", *files)
    assert checked.returncode == 1  # there is no more in this store
    assert "aten_op_blatant.nano-cpu-b2: not measured" in checked.stdout
    assert LEAK.id not in checked.stdout
