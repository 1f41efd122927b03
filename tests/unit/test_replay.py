"""The table of replays, and what chooses from it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perf.case import find_case
from perf.gates import WALL_ERROR
from perf.matrix import DEFAULT_MINOR, MATRIX, RELEASES, known_failure
from perf.replay import TABLE, Replay, chosen, needed, releases
from perf.sequential import least_pairs
from perf.verdicts import SEVERITY

ROOT = Path(__file__).resolve().parents[2]
EACH = pytest.mark.parametrize("replay", TABLE, ids=lambda one: one.name)
RUN = [one for one in TABLE if not one.recorded]


def test_names_are_unique_and_fit_for_a_command_line() -> None:
    names = [one.name for one in TABLE]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) for name in names)


@EACH
def test_every_replay_names_a_case_supported_releases_and_its_claims(replay: Replay) -> None:
    assert find_case(replay.case).lane == replay.lane
    assert set(replay.sides) <= set(RELEASES)
    assert replay.claims
    assert replay.what
    assert re.match(r"1\.\d+\.\d+ |perf/matrix\.py|docs/", replay.source)


@pytest.mark.parametrize("replay", RUN, ids=lambda one: one.name)
def test_what_is_run_claims_verdicts_that_there_are_and_attributes_them(replay: Replay) -> None:
    assert {replay.verdict, *(claim.verdict for claim in replay.claims)} <= set(SEVERITY)
    assert any(claim.part or claim.told or claim.verdict == "pass" for claim in replay.claims)
    for pattern in (text for claim in replay.claims for text in (claim.part, claim.where, claim.told)):
        re.compile(pattern)
    assert not replay.patch or (ROOT / replay.patch).is_file()


def test_time_is_judged_from_enough_pairs_to_prove_a_change() -> None:
    timed = [one for one in TABLE if one.pairs]

    assert timed
    assert all(one.pairs >= least_pairs(WALL_ERROR / 2, len(one.claims)) for one in timed)
    assert all(one.base and not one.ci for one in timed)


def test_the_ci_selection_is_of_the_cpu_lane_and_not_all_of_it() -> None:
    ci, cpu = chosen("ci"), chosen("cpu")

    assert set(ci) < set(cpu)
    assert {one.lane for one in ci} == {"cpu"}


def test_what_is_on_record_is_what_the_matrix_knows() -> None:
    for one in (one for one in TABLE if one.recorded):
        known = known_failure(one.minor, compiled=False, rfdetr=one.head)
        assert known is not None
        assert one.minor in MATRIX
        assert re.search(one.claims[0].told, known.pattern.replace("\\", ""))
    assert {one.minor for one in RUN} == {DEFAULT_MINOR}


def test_words_choose_by_name() -> None:
    assert [one.name for one in chosen("all", ["gate-clos"])] == ["gate-closed", "gpu-gate-closed"]
    assert [one.name for one in chosen("all", ["gate-closed"])] == ["gate-closed"]
    assert [one.name for one in chosen("cpu", ["gate-closed", "bmp"])] == [
        "gate-closed",
        "bmp-decode",
        "bmp-decode-repaired",
    ]
    assert chosen("all") == list(TABLE)


def test_a_choice_of_nothing_lists_the_names() -> None:
    with pytest.raises(ValueError, match=r"no replay is of selection ci and -k nonsense; there are compile-raises, "):
        chosen("ci", ["nonsense"])


def test_releases_are_sorted_as_versions_without_what_is_not_run() -> None:
    one = chosen("all", ["gate-closed"])[0]
    other = replace(one, base="1.9.4", head="1.11.0")

    assert releases([one, other, replace(one, head="1.11.2", recorded=True)]) == ["1.9.4", "1.10.0", "1.11.0"]


def test_a_command_line_needs_the_releases_of_what_it_chooses() -> None:
    assert needed(["--records", "x", "-k", "gate-closed", "-k", "compile-raises", "--resume", "y"]) == [
        "1.9.4",
        "1.10.0",
    ]
    with pytest.raises(ValueError, match="no replay is of selection all and -k nonsense"):
        needed(["-k", "nonsense"])


@pytest.mark.parametrize("instead", [["--list"], ["--check"], ["--regenerate"], ["--again", "x"]])
def test_what_measures_nothing_needs_no_release(instead: list[str]) -> None:
    assert needed([*instead, "--select", "ci"]) == []


def test_the_table_needs_the_standard_library_only() -> None:
    """The noxfile imports it where nothing but nox is installed."""
    code = "import sys; sys.path.insert(0, '.'); import perf.replay as r; print(len(r.TABLE))"
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )

    assert done.stdout == f"{len(TABLE)}\n"
