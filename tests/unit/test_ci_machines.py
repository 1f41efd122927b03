from __future__ import annotations

from pathlib import Path

import pytest

from perf.ci.machines import FULL, LABELS, NIGHTLY, QUICK, TIERS, cells_of, chosen, read_machines
from perf.judge import GATED
from perf.suites import SUITES


def test_the_committed_file_has_the_machines_that_the_issue_names() -> None:
    machines = read_machines()
    assert {"t4", "l4", "a100", "h100", "h200"} <= set(machines)
    assert list(chosen(machines, "")) == ["cpu", "h200"]
    assert list(chosen(machines, "l4  t4")) == ["l4", "t4"]


def test_an_unknown_machine_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown machine b200; known: cpu, t4"):
        chosen(read_machines(), "h200 b200")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x: {runs-on: [a], devices: [b], torch: ['2.1']}", "unknown torch minor '2.1'"),
        ("x: {runs-on: [], devices: [b], torch: ['2.11']}", "runs-on"),
        ("x: [", "while parsing"),
        ("- 1", "dict"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "machines.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=why) as caught:
        read_machines(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("tier", TIERS.values(), ids=list(TIERS))
def test_a_tier_is_made_of_suites_and_kinds_that_there_are(tier: object) -> None:
    assert tier in (QUICK, FULL, NIGHTLY)
    for one in TIERS.values():
        assert {one.suite, one.also} <= {*SUITES, ""}
        assert set(one.gate) <= GATED
    assert list(LABELS) == ["perf:quick", "perf:full"]


def test_a_night_takes_the_minors_that_it_is_given() -> None:
    cells = cells_of(chosen(read_machines(), "l4"), NIGHTLY, "", "1.11.2", ["2.7", "2.8"])
    assert [(cell.torch, cell.base, cell.also) for cell in cells] == [("2.7", "", "main"), ("2.8", "", "main")]
