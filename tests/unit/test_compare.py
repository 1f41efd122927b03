from __future__ import annotations

from pathlib import Path

import pytest
from factories import (
    CPU_COMPILED,
    CPU_EAGER,
    GPU_EAGER,
    H200,
    a_baseline,
    a_record,
    a_signal,
    an_environment,
    parts,
    proof,
    runs_of,
)

from perf.baselines import write_baseline
from perf.compare import compare, known_noise, session_of, sides, usable_pairs
from perf.judge import Options
from perf.record import Record
from perf.run_order import MANIFEST
from perf.session_gates import OneSession
from perf.stats import NO_NOISE, noise_of
from perf.verdicts import SignalVerdict, Verdict

STEP = a_signal("step_time", 100, "wall", "ms")
BUSY = a_signal("gpu_busy", 10, "device", "ms")
OPS = a_signal("aten_ops", 1000, "count-volume", parts=parts(forward=1000))
APART, TOGETHER = Options(), Options(one_session=OneSession())
STEADY = [100.0, 100.4, 99.6, 100.2, 99.8, 100.1, 99.9, 100.3, 99.7, 100]


def rows(base: list[Record], head: list[Record], options: Options) -> dict[str, SignalVerdict]:
    [case] = compare(base, head, options).cases
    return {row.signal: row for row in case.signals}


def cold(run: int, value: float = 100, misses: float = 12) -> Record:
    missed = a_signal("inductor_cache_misses", misses, "info")
    return a_record([STEP.model_copy(update={"value": value}), missed], GPU_EAGER, run)


def warm(run: int, value: float = 100) -> Record:
    return cold(run, value, misses=0)


class TestSides:
    def test_two_folders_are_base_and_head(self, tmp_path: Path) -> None:
        assert sides(tmp_path / "old", tmp_path / "new") == (tmp_path / "old", tmp_path / "new")

    def test_a_session_holds_both(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text("{}")
        assert sides(tmp_path, None) == (tmp_path / "base", tmp_path / "head")

    def test_one_folder_that_is_no_session_is_an_error_that_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"no ab\.json there, so it is no session of rfdetr-perf ab"):
            sides(tmp_path, None)


class TestOfOneSession:
    def test_both_sides_of_an_interleaved_session(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text("{}")
        base, head = sides(tmp_path, None)
        assert session_of(base, head)
        assert session_of(tmp_path / "head" / ".." / "base", head)
        # Swapped, they are still of one session.
        # Swapped, they are two sets of records like any other.
        assert session_of(head, base) is None

    def test_the_folder_one_is_in_is_known_by_its_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / MANIFEST).write_text("{}")
        (tmp_path / "head").mkdir()
        monkeypatch.chdir(tmp_path / "head")
        assert session_of(Path("../base"), Path())

    def test_a_side_held_against_itself_is_not_both(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text("{}")
        assert not session_of(tmp_path / "base", tmp_path / "base")

    def test_folders_of_two_sessions_or_without_a_manifest_are_not(self, tmp_path: Path) -> None:
        assert not session_of(tmp_path / "base", tmp_path / "head")
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / MANIFEST).write_text("{}")
        assert not session_of(tmp_path / "one/base", tmp_path / "two/head")
        assert not session_of(tmp_path / "one/base", tmp_path / "one/other")


class TestUsablePairs:
    @staticmethod
    def numbers(base: list[Record], head: list[Record]) -> tuple[list[int], list[int]]:
        first, second = usable_pairs(base, head)
        return [record.run for record in first], [record.run for record in second]

    def test_run_i_is_beside_run_i_whatever_the_order_they_were_read_in(self) -> None:
        assert self.numbers([warm(2), warm(0), warm(1)], [warm(1), warm(2), warm(0)]) == ([0, 1, 2], [0, 1, 2])

    def test_a_run_without_the_other_side_is_left_out(self) -> None:
        assert self.numbers([warm(0), warm(1)], [warm(1), warm(2)]) == ([1], [1])

    @pytest.mark.parametrize("first", [([cold(0)], [warm(0)]), ([warm(0)], [cold(0)]), ([cold(0)], [cold(0)])])
    def test_a_pair_in_which_either_compiled_cold_does_not_count(
        self, first: tuple[list[Record], list[Record]]
    ) -> None:
        base, head = first
        assert self.numbers([*base, warm(1)], [*head, warm(1)]) == ([1], [1])

    def test_where_all_are_cold_they_are_better_than_none(self) -> None:
        assert self.numbers([cold(0), cold(1)], [cold(0), warm(1)]) == ([0, 1], [0, 1])

    def test_a_run_that_failed_stays_to_be_judged_and_takes_its_pair_along(self) -> None:
        failed = a_record([], GPU_EAGER, 1, status="failed", error="RuntimeError: out of memory")
        assert self.numbers([warm(0), warm(1)], [warm(0), failed]) == ([0], [0, 1])


class TestCompare:
    @pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.03, "regressed"), (0.97, "improved")])
    def test_pairs_of_one_session_tell_three_percent(self, factor: float, verdict: Verdict) -> None:
        head = [factor * value for value in [*STEADY[1:], STEADY[0]]]
        base, now = runs_of(STEP, STEADY, GPU_EAGER), runs_of(STEP, head, GPU_EAGER)
        row = rows(base, now, TOGETHER)["step_time"]
        assert row.verdict == verdict
        assert row.change == pytest.approx(100 * (factor - 1), abs=0.01)

    def test_of_two_sessions_a_change_of_wall_time_is_never_more_than_undecided(self) -> None:
        base = runs_of(STEP, STEADY, GPU_EAGER)
        row = rows(base, runs_of(STEP, [1.3 * value for value in STEADY], GPU_EAGER), APART)["step_time"]
        assert row.verdict == "inconclusive"
        assert "measure both sides in one session" in row.message

    def test_on_a_cpu_time_is_judged_in_one_session_only(self) -> None:
        base, head = runs_of(STEP, STEADY), runs_of(STEP, [1.3 * value for value in STEADY])
        assert rows(base, head, TOGETHER)["step_time"].verdict == "regressed"
        assert rows(base, head, APART)["step_time"].verdict is None

    def test_counts_are_held_against_the_base(self) -> None:
        more = a_signal("aten_ops", 1100, "count-volume", parts=parts(forward=1000, criterion=100))
        row = rows([a_record([OPS])], [a_record([more])], APART)["aten_ops"]
        assert (row.verdict, row.baseline, row.now) == ("regressed", 1000, 1100)
        assert "criterion 0 -> 100" in row.message

    def test_a_case_that_the_head_lacks_failed(self) -> None:
        judgement = compare([a_record([OPS]), a_record([*proof(), OPS], CPU_COMPILED)], [a_record([OPS])], APART)
        assert {case.case_id: case.verdict for case in judgement.cases} == {
            CPU_EAGER.id: "pass",
            CPU_COMPILED.id: "failed",
        }
        assert judgement.exit_code == 1

    def test_a_case_that_the_base_lacks_has_nothing_to_be_held_against(self) -> None:
        assert compare([], [a_record([OPS])], APART).exit_code == 3

    def test_a_base_that_failed_is_nothing_to_be_held_against(self) -> None:
        base = a_record([], status="failed", error="RuntimeError: no")
        assert compare([base], [a_record([OPS])], TOGETHER).cases[0].verdict in ("no-baseline", "failed")

    def test_a_head_that_failed_in_one_session_fails(self) -> None:
        failed = a_record([], run=1, status="failed", error="RuntimeError: out of memory")
        judgement = compare([a_record([OPS]), a_record([OPS], run=1)], [a_record([OPS]), failed], TOGETHER)
        assert judgement.cases[0].verdict == "failed"
        assert "out of memory" in judgement.summary

    def test_cold_pairs_move_nothing(self) -> None:
        slow = [cold(0, 900), *(warm(run, value) for run, value in enumerate(STEADY, 1))]
        base = [warm(run, value) for run, value in enumerate([100, *STEADY])]
        assert rows(base, slow, TOGETHER)["step_time"].verdict == "pass"

    def test_signals_of_all_cases_share_the_error_rate(self) -> None:
        base = runs_of(STEP, STEADY, GPU_EAGER)
        head = runs_of(STEP, [1.03 * value for value in [*STEADY[1:], STEADY[0]]], GPU_EAGER)
        verdicts = [
            rows(base, head, Options(one_session=OneSession(cases=cases)))["step_time"].verdict for cases in (1, 5, 6)
        ]
        # Of ten pairs sign flips have no p-value below 1 of 1024, and 0.5 % / 6 is less.
        assert verdicts == ["regressed", "regressed", "pass"]

    def test_sides_of_another_torch_cannot_be_compared(self) -> None:
        other = a_record([OPS], environment=an_environment(torch_minor="2.13", torch="2.13.0"))
        assert compare([a_record([OPS])], [other], APART).cases[0].verdict == "incompatible"

    def test_runs_of_one_side_that_cannot_be_pooled_are_an_error(self) -> None:
        other = a_record([OPS], run=1, environment=an_environment(rfdetr="1.11.1"))
        with pytest.raises(ValueError, match="cannot be pooled"):
            compare([a_record([OPS]), other], [a_record([OPS])], APART)


class TestKnownNoise:
    values = (10.26, 10.256, 10.265, 10.257)

    def test_the_stored_runs_of_device_signals_teach_by_case_and_signal(self, tmp_path: Path) -> None:
        records = [
            a_record([BUSY.model_copy(update={"value": value}), STEP, OPS], GPU_EAGER, run)
            for run, value in enumerate(self.values)
        ]
        write_baseline(tmp_path, a_baseline(records))
        found = known_noise([a_record([BUSY], GPU_EAGER)], tmp_path)
        assert found == {(GPU_EAGER.id, "gpu_busy"): noise_of(self.values)}

    def test_one_stored_run_teaches_nothing(self, tmp_path: Path) -> None:
        write_baseline(tmp_path, a_baseline(runs_of(BUSY, [10.26], GPU_EAGER)))
        assert known_noise(runs_of(BUSY, [10.3], GPU_EAGER), tmp_path) == {(GPU_EAGER.id, "gpu_busy"): NO_NOISE}

    def test_nor_do_baselines_of_another_device(self, tmp_path: Path) -> None:
        write_baseline(tmp_path, a_baseline(runs_of(BUSY, self.values, GPU_EAGER)))
        elsewhere = H200.model_copy(update={"device": "nvidia-l4"})
        assert known_noise(runs_of(BUSY, [10.3], GPU_EAGER, environment=elsewhere), tmp_path) == {}

    def test_with_it_two_runs_a_side_tell_one_percent(self, tmp_path: Path) -> None:
        write_baseline(tmp_path, a_baseline(runs_of(BUSY, self.values, GPU_EAGER)))
        base, head = runs_of(BUSY, [10.26, 10.25], GPU_EAGER), runs_of(BUSY, [10.36, 10.37], GPU_EAGER)
        taught = Options(one_session=OneSession(noise=known_noise(head, tmp_path)))
        verdicts = [rows(base, head, options)["gpu_busy"].verdict for options in (TOGETHER, taught)]
        assert verdicts == ["inconclusive", "regressed"]
