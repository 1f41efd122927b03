from __future__ import annotations

import pytest
from factories import BREAK_LINE, a_baseline, a_signal, parts, proof, runs_of
from factories import GPU_EAGER as GPU
from hypothesis import given
from hypothesis import strategies as st

from perf.baselines import BaselineSignal
from perf.gates import GATES, changed_parts, compile_gate, device_gate, percent, strict_gate, volume_gate, wall_gate
from perf.record import Kind, Part, Signal


def approved(signal: Signal, values: list[float] | None = None) -> BaselineSignal:
    case_values = values or [signal.value]
    found = a_baseline(runs_of(signal, case_values, GPU)).signal(signal.name)
    assert found
    return found


def strict(value: float, **named: float) -> Signal:
    return a_signal("graph_breaks", value, parts=parts(**named))


def volume(value: float, **named: float) -> Signal:
    return a_signal("aten_ops", value, "count-volume", parts=parts(**named))


def several(name: str, kind: Kind, values: list[float]) -> list[Signal]:
    return [a_signal(name, value, kind, "ms") for value in values]


class TestStrict:
    def test_the_same_count_passes(self) -> None:
        assert strict_gate(approved(strict(2, a=1, b=1)), [strict(2, a=1, b=1)]).verdict == "pass"

    def test_one_more_regresses_and_names_the_part_and_its_line(self) -> None:
        added = Part(name="Tensor.item()", value=1, where=[BREAK_LINE])
        outcome = strict_gate(approved(strict(1, a=1)), [a_signal("graph_breaks", 2, parts=[*parts(a=1), added])])
        assert outcome.verdict == "regressed"
        assert outcome.message == f"1 -> 2 (+100.00 %)\nTensor.item() 0 -> 1 at {BREAK_LINE}"
        assert [part.where for part in outcome.parts] == [[BREAK_LINE]]

    def test_one_less_says_the_baseline_is_stale(self) -> None:
        outcome = strict_gate(approved(strict(2, a=1, b=1)), [strict(1, a=1)])
        assert (outcome.verdict, outcome.parts[0].name) == ("improved", "b")
        assert outcome.parts[0].where == ["rfdetr/b.py:1"]

    def test_a_replaced_break_regresses_at_the_same_total(self) -> None:
        outcome = strict_gate(approved(strict(1, a=1)), [strict(1, b=1)])
        assert outcome.verdict == "regressed"
        assert outcome.message.startswith("the total is still 1, but its parts were replaced")
        assert "a 1 -> 0" in outcome.message
        assert "b 0 -> 1" in outcome.message

    def test_the_worst_of_runs_that_differ_counts_and_the_spread_is_said(self) -> None:
        outcome = strict_gate(approved(strict(1)), [strict(1), strict(3), strict(1)])
        assert outcome.verdict == "regressed"
        assert "the worst of 3 runs that differ: 1 to 3" in outcome.message

    def test_the_range_of_the_baselines_own_runs_is_no_change(self) -> None:
        base = approved(strict(0), [1, 2])
        verdicts = [strict_gate(base, [strict(value)]).verdict for value in (0, 1, 2, 3)]
        assert verdicts == ["improved", "pass", "pass", "regressed"]

    def test_a_higher_is_better_count_is_turned_round(self) -> None:
        signal = a_signal("fused_groups", 2, direction="higher")
        outcomes = [
            strict_gate(approved(signal), [signal.model_copy(update={"value": value})]).verdict for value in (1, 2, 3)
        ]
        assert outcomes == ["regressed", "pass", "improved"]

    @given(
        st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)),
        st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)),
    )
    def test_any_part_that_rises_regresses(self, old: dict[str, int], new: dict[str, int]) -> None:
        outcome = strict_gate(approved(strict(sum(old.values()), **old)), [strict(sum(new.values()), **new)])
        names = {*old, *new}
        rises = any(new.get(name, 0) > old.get(name, 0) for name in names)
        falls = any(new.get(name, 0) < old.get(name, 0) for name in names)
        assert outcome.verdict == ("regressed" if rises else "improved" if falls else "pass")


class TestVolume:
    @pytest.mark.parametrize(
        ("now", "verdict", "listed"),
        [
            (1000, "pass", False),
            (1010, "pass", True),
            (990, "pass", True),
            (1011, "regressed", False),
            (989, "improved", False),
        ],
    )
    def test_beyond_one_percent_is_gated_and_less_is_listed(self, now: float, verdict: str, listed: bool) -> None:
        outcome = volume_gate(approved(volume(1000, forward=1000)), [volume(now, forward=now)])
        assert (outcome.verdict, outcome.listed) == (verdict, listed)
        assert bool(outcome.message) == (now != 1000)

    def test_parts_that_make_up_for_each_other_are_listed(self) -> None:
        outcome = volume_gate(approved(volume(1000, cdist=3, topk=997)), [volume(1000, cdist=0, topk=1000)])
        assert (outcome.verdict, outcome.listed) == ("pass", True)
        assert outcome.message.splitlines()[1:] == [
            "cdist 3 -> 0 at rfdetr/cdist.py:1",
            "topk 997 -> 1000 at rfdetr/topk.py:1",
        ]

    def test_a_value_within_the_baselines_runs_is_no_change(self) -> None:
        base = approved(volume(0), [6085, 6087, 6090])
        assert not volume_gate(base, [volume(6086)]).listed
        assert volume_gate(base, [volume(6091)]).listed

    def test_from_nothing_to_something_regresses(self) -> None:
        assert volume_gate(approved(volume(0)), [volume(1)]).verdict == "regressed"
        assert volume_gate(approved(volume(0)), [volume(0)]).verdict == "pass"

    def test_a_long_list_of_parts_is_cut_and_says_by_how_many(self) -> None:
        many = {f"op{index:02}": 1.0 for index in range(13)}
        outcome = volume_gate(approved(volume(100, rest=100)), [volume(113, rest=100, **many)])
        assert len(outcome.parts) == 13
        assert outcome.message.splitlines()[-1] == "and 3 more parts"


class TestDevice:
    @pytest.mark.parametrize(
        ("now", "verdict"), [(16.19, "pass"), (16.34, "pass"), (16.36, "regressed"), (16.02, "improved")]
    )
    def test_the_floor_is_one_percent_of_a_stored_baseline(self, now: float, verdict: str) -> None:
        base = approved(a_signal("gpu_busy", 16.19, "device", "ms"), [16.189, 16.19, 16.192])
        assert device_gate(base, several("gpu_busy", "device", [now])).verdict == verdict

    def test_what_another_compile_may_do_passes_and_is_listed(self) -> None:
        base = approved(a_signal("gpu_busy", 10.0, "device", "ms"), [10.0, 10.0, 10.0])
        found = {
            now: device_gate(base, several("gpu_busy", "device", [now]), floor=0.03) for now in (10.05, 10.2, 10.4)
        }
        assert [(one.verdict, one.listed) for one in found.values()] == [
            ("pass", False),
            ("pass", True),
            ("regressed", False),
        ]
        assert found[10.2].message.endswith("the band is +/-3.00 %: another compile may do that")

    def test_runs_that_scatter_teach_a_wider_band(self) -> None:
        base = approved(a_signal("peak_memory", 0, "device", "B"), [1.863e9, 1.872e9, 1.868e9])
        outcome = device_gate(base, several("peak_memory", "device", [1.89e9, 1.892e9]))
        assert outcome.verdict == "inconclusive"
        assert outcome.message.endswith("from 3 baseline runs and 2 now: more runs narrow it")
        assert device_gate(base, several("peak_memory", "device", [1.87e9, 1.871e9])).verdict == "pass"

    def test_the_more_signals_share_the_error_rate_the_wider_the_band(self) -> None:
        base = approved(a_signal("peak_memory", 0, "device", "B"), [1.863e9, 1.872e9, 1.868e9])
        now = several("peak_memory", "device", [1.90e9, 1.902e9, 1.901e9])
        assert device_gate(base, now).verdict == "regressed"
        assert device_gate(base, now, error=1e-5).verdict == "inconclusive"

    def test_a_band_too_wide_to_see_anything_proves_nothing(self) -> None:
        base = approved(a_signal("peak_memory", 0, "device", "B"), [100, 120, 90])
        outcome = device_gate(base, several("peak_memory", "device", [110]))
        assert outcome.verdict == "inconclusive"
        assert device_gate(base, several("peak_memory", "device", [100])).verdict == "inconclusive"

    def test_a_baseline_of_nothing(self) -> None:
        base = approved(a_signal("peak_memory", 0, "device", "B"))
        assert device_gate(base, several("peak_memory", "device", [0])).verdict == "pass"
        assert device_gate(base, several("peak_memory", "device", [5])).message.startswith("0 -> 5, the band")


class TestWall:
    base = approved(a_signal("step_time", 0, "wall", "ms"), [99, 100, 101, 100])

    @pytest.mark.parametrize(
        ("now", "verdict"),
        [
            ([100, 101, 99], "pass"),
            ([102, 103, 102], "pass"),
            ([110, 111, 109], "regressed"),
            ([90, 91, 89], "improved"),
            ([96, 97, 95], "pass"),
            ([99, 112], "inconclusive"),
        ],
    )
    def test_the_whole_interval_decides(self, now: list[float], verdict: str) -> None:
        outcome = wall_gate(self.base, several("step_time", "wall", now))
        assert outcome.verdict == verdict
        assert outcome.interval
        assert "interval" in outcome.message

    def test_inconclusive_says_how_many_more_runs(self) -> None:
        outcome = wall_gate(self.base, several("step_time", "wall", [99, 104]))
        assert outcome.verdict == "inconclusive"
        assert "more runs would settle it" in outcome.message

    @pytest.mark.parametrize("now", [[], [100]])
    def test_one_run_is_never_enough(self, now: list[float]) -> None:
        outcome = wall_gate(self.base, several("step_time", "wall", now))
        assert outcome.verdict == "inconclusive"
        assert f"4 in the baseline and {len(now)} now" in outcome.message

    def test_a_time_of_zero_is_no_pass(self) -> None:
        outcome = wall_gate(self.base, several("step_time", "wall", [0, 0]))
        assert (outcome.verdict, outcome.interval) == ("inconclusive", None)

    def test_the_first_step_has_its_own_tolerance(self) -> None:
        first = approved(a_signal("first_step", 0, "wall", "s"), [20, 21, 20])
        assert wall_gate(first, several("first_step", "wall", [24, 25, 24])).verdict == "pass"

    def test_a_rate_regresses_when_it_falls(self) -> None:
        rate = a_signal("samples_per_second", 0, "wall", "1/s", direction="higher")
        base = approved(rate, [40, 41, 40])
        slow, fast = ([rate.model_copy(update={"value": value}) for value in values] for values in ([30, 31], [50, 51]))
        assert wall_gate(base, slow).verdict == "regressed"
        assert wall_gate(base, fast).verdict == "improved"

    @given(st.lists(st.floats(1, 1e4), min_size=2, max_size=6), st.lists(st.floats(1, 1e4), min_size=2, max_size=6))
    def test_a_pass_excludes_a_regression_as_large_as_the_tolerance(self, old: list[float], new: list[float]) -> None:
        outcome = wall_gate(self.base.model_copy(update={"runs": old}), several("step_time", "wall", new))
        assert outcome.interval
        if outcome.verdict == "pass":
            assert outcome.interval.high < 1.05
        if outcome.verdict == "regressed":
            assert outcome.interval.low > 1.05


class TestCompile:
    @staticmethod
    def answer(*runs: list[Signal]) -> tuple[str, str, str] | None:
        found: dict[str, list[Signal]] = {}
        for signal in (signal for run in runs for signal in run):
            found.setdefault(signal.name, []).append(signal)
        answer = compile_gate(found, len(runs))
        return (answer[0], answer[1].verdict or "", answer[1].message) if answer else None

    def test_frames_without_a_fallback_are_proof(self) -> None:
        assert self.answer(proof()) is None

    def test_a_frame_that_hit_the_recompile_limit_did_compile(self) -> None:
        hit = Part(name="?: Unsupported: Dynamo recompile limit exceeded", value=1)
        assert self.answer(proof(9, 1, [hit])) is None
        assert self.answer(proof(9, 2, [hit, Part(name="?: InternalTorchDynamoError", value=1)])) is not None
        assert self.answer([*proof(9, 1), a_signal("recompile_limit_hits", 1)]) is not None

    def test_what_falls_back_in_validation_is_not_compiled(self) -> None:
        answer = self.answer([*proof(), a_signal("eval_frames_failed", 3)])
        assert answer == ("eval_frames_failed", "not-compiled", "frames that fell back to eager in validation: 3")

    def test_no_frame_is_not_compiled(self) -> None:
        message = "compile=True, and no frame was compiled: the step ran eager"
        assert self.answer(proof(), proof(frames=0)) == ("frames", "not-compiled", message)

    def test_a_frame_that_fell_back_names_the_line_and_does_not_count_as_compiled(self) -> None:
        fallen = proof(30, 12, [Part(name="forward", value=12, where=[BREAK_LINE])], model_frames=0)
        message = f"frames that fell back to eager: 12, compiled: 18\nforward 0 -> 12 at {BREAK_LINE}"
        assert self.answer(proof(30), fallen) == ("frames_failed", "not-compiled", message)

    @pytest.mark.parametrize("frames", [1, 30])
    def test_other_frames_do_not_prove_that_the_model_compiled(self, frames: float) -> None:
        message = f"the model's own forward was not compiled: {frames} other frames were"
        assert self.answer(proof(), proof(frames, model_frames=0)) == ("model_frames", "not-compiled", message)

    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_one_run_without_a_signal_is_no_proof(self, index: int) -> None:
        less = proof()
        name = less.pop(index).name
        message = f"nothing proves that it compiled: not every run has the signal {name}"
        assert self.answer(proof(), less) == (name, "not-compiled", message)


class TestLines:
    @staticmethod
    def message(old: tuple[float, list[str]], new: tuple[float, list[str]]) -> str:
        sides = [
            a_signal("graph_breaks", value, parts=[Part(name="p", value=value, where=where)])
            for value, where in (old, new)
        ]
        return strict_gate(approved(sides[0]), [sides[1]]).message.splitlines()[1]

    @pytest.mark.parametrize(
        ("old", "new", "places"),
        [
            ((1, ["f.py:12"]), (2, ["f.py:12", "f.py:14"]), "1 -> 2 at f.py:14"),
            ((1, ["f.py:12"]), (3, ["f.py:100", "f.py:12", "f.py:20"]), "1 -> 3 at f.py:20, f.py:100"),
            ((2, ["f.py:12", "f.py:9"]), (3, ["f.py:12", "f.py:9"]), "2 -> 3 at f.py:9, f.py:12"),
            ((2, ["f.py:12", "f.py:14"]), (1, ["f.py:12"]), "2 -> 1 at f.py:14"),
            ((1, []), (2, ["f.py:14", "f.py:12"]), "1 -> 2 at f.py:14, f.py:12"),
            ((0, []), (5, [f"f.py:{n}" for n in range(5)]), "0 -> 5 at f.py:0, f.py:1, f.py:2 and 2 more"),
        ],
    )
    def test_the_lines_that_only_one_side_has_are_named(
        self, old: tuple[float, list[str]], new: tuple[float, list[str]], places: str
    ) -> None:
        assert self.message(old, new) == f"p {places}"

    def test_the_other_lines_come_after_the_new_ones(self) -> None:
        before = a_signal("graph_breaks", 1, parts=[Part(name="p", value=1, where=["f.py:12"])])
        now = a_signal("graph_breaks", 2, parts=[Part(name="p", value=2, where=["f.py:12", "f.py:100", "f.py:20"])])
        (part,) = changed_parts(approved(before), now)
        assert part.where == ["f.py:20", "f.py:100", "f.py:12"]
        assert part.changed_lines == ["f.py:20", "f.py:100"]


def test_a_signal_that_stops_saying_what_it_consists_of_has_no_changed_parts() -> None:
    assert changed_parts(approved(volume(3, a=3)), volume(3)) == []
    assert changed_parts(approved(volume(3)), volume(3, a=3)) == []
    assert [part.new for part in changed_parts(approved(volume(0)), volume(3, a=3))] == [3]


def test_every_gated_kind_has_a_gate() -> None:
    assert set(GATES) == {"count-strict", "count-volume", "device", "wall"}


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.012, "+1.20 %"),
        (-0.0001, "-0.01 %"),
        (-1 / 22098, "-0.005 %"),
        (1 / 3_000_000, "+0.00003 %"),
        (1e-16, "+0.00 %"),
        (-1e-16, "+0.00 %"),
        (0, "+0.00 %"),
        (101, "over +10000 %"),
    ],
)
def test_a_change_reads_as_none_only_where_it_is_none(fraction: float, text: str) -> None:
    assert percent(fraction) == text


def test_the_first_loss_may_move_by_less_than_a_count_and_neither_way_is_better() -> None:
    def outcome(value: float) -> str | None:
        base = BaselineSignal(name="first_loss", kind="count-volume", unit="", runs=[7.898], parts=[], approval=0)
        return volume_gate(base, [a_signal("first_loss", value, "count-volume")]).verdict

    assert [outcome(value) for value in (7.9, 7.877, 7.92)] == ["pass", "regressed", "regressed"]
