"""Two real ranks that compile: both the same graphs, and one that recompiles alone is found."""

from __future__ import annotations

from pathlib import Path

from running import run_suite

from perf.case import Case
from perf.record import read_records

COMPILED = Case(config="nano", lane="cpu", batch_size=2, compile=True, backend="eager", devices=2)


def test_a_rank_that_recompiles_alone_fails_and_the_graphs_of_both_are_the_same(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--case", COMPILED.id, patch="rank_recompiles.py", untimed=True)
    row = outcome.signal(COMPILED.id, "rank_mismatches")

    assert outcome.exit_code == 1, outcome.output
    assert outcome.case(COMPILED.id).verdict == "regressed"
    assert {part.name.partition(":")[0] for part in row.parts} == {"rank 1"}
    assert any("rank 1: recompiles tests/e2e/patches/rank_recompiles.py:_double" in part.name for part in row.parts)
    assert outcome.signal(COMPILED.id, "recompiles").change == 1
    [record] = read_records(tmp_path)
    pieces, graphs = record.signal("ddp_graph_pieces"), record.signal("graph_nodes")
    assert pieces
    assert graphs
    assert pieces.value > record.case.ranks * 7  # what Dynamo captures on each rank, and DDPOptimizer cuts
