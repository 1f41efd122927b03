from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import (
    BREAK_LINE,
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

from perf.baselines import Baseline, write_baseline
from perf.case import Case, find_case
from perf.judge import GATED, Options, judge, judge_case
from perf.record import Kind, Part, Record, Signal
from perf.verdicts import CaseVerdict, SignalVerdict

BREAKS = a_signal("graph_breaks", 1, parts=parts(a=1))
OPS = a_signal("aten_ops", 1000, "count-volume", parts=parts(forward=1000))
CALLS = a_signal("python_calls", 500, "count-volume")
WALL = a_signal("step_time", 100, "wall", "ms")
BUSY = a_signal("gpu_busy", 16, "device", "ms")


def row(case: CaseVerdict, name: str) -> SignalVerdict:
    (found,) = [signal for signal in case.signals if signal.signal == name]
    return found


ALL = Options()


def one(signals: list[Signal], baseline: Baseline | None = None, options: Options = ALL, **changes: Any) -> CaseVerdict:
    return judge_case([a_record(signals, **changes)], baseline, options)


def test_the_same_counts_pass() -> None:
    baseline = a_baseline([a_record([BREAKS, OPS])])
    judgement = judge([a_record([BREAKS, OPS])], {baseline.case_id: baseline})
    assert (judgement.exit_code, judgement.summary) == (0, "1 of 1 case pass on cpu, torch 2.14")
    assert [signal.verdict for signal in judgement.cases[0].signals] == ["pass", "pass"]


def test_a_regression_has_all_that_its_reader_needs(tmp_path: Path) -> None:
    write_baseline(tmp_path, a_baseline([a_record([*proof(), BREAKS], CPU_COMPILED)]))
    worse = a_signal("graph_breaks", 2, parts=[*parts(a=1), Part(name="item()", value=1, where=[BREAK_LINE])])
    records = [a_record([*proof(), worse], CPU_COMPILED)]
    judgement = judge(records, tmp_path, options=Options(records_path=Path("my records")))
    assert judgement.exit_code == 1
    assert judgement.summary == (
        f"1 of 1 case regressed on cpu, torch 2.14: nano-cpu-b2-compile, +1 graph break at {BREAK_LINE}"
    )
    found = row(judgement.cases[0], "graph_breaks")
    assert (found.baseline, found.now, found.change, found.where) == (1, 2, 1, [BREAK_LINE])
    assert f"item() 0 -> 1 at {BREAK_LINE}" in found.message
    assert found.reproduce == "pytest tests/suite --case nano-cpu-b2-compile"
    assert found.refresh == "rfdetr-perf refresh 'my records' --case nano-cpu-b2-compile --reason \"...\""


def test_an_improvement_exits_4() -> None:
    baseline = a_baseline([a_record([BREAKS])])
    judgement = judge([a_record([a_signal("graph_breaks", 0)])], {baseline.case_id: baseline})
    assert judgement.exit_code == 4
    assert "refresh" in judgement.cases[0].signals[0].refresh


def test_without_a_baseline_every_gated_signal_says_so() -> None:
    case = one([BREAKS, WALL])
    assert (case.verdict, row(case, "graph_breaks").verdict) == ("no-baseline", "no-baseline")
    assert "this case has no baseline on cpu, torch 2.14" in row(case, "graph_breaks").message
    assert judge([a_record([BREAKS])], {}).exit_code == 3


def test_new_and_missing_signals_are_verdicts() -> None:
    case = one([OPS, CALLS], a_baseline([a_record([OPS, BREAKS])]))
    assert case.verdict == "failed"
    assert row(case, "python_calls").verdict == "no-baseline"
    gone = row(case, "graph_breaks")
    assert (gone.verdict, gone.baseline, gone.now) == ("failed", 1, None)
    assert "missing" in gone.message


def test_a_signal_that_some_runs_lack_fails() -> None:
    records = [a_record([OPS, BREAKS]), a_record([OPS], run=1)]
    case = judge_case(records, a_baseline([a_record([OPS, BREAKS])]))
    assert row(case, "graph_breaks").message == "absent from 1 of 2 runs: run 1"
    assert case.verdict == "failed"


def test_expected_cases_that_left_no_record_fail() -> None:
    judgement = judge([], {}, expected=["nano-cpu-b2"])
    assert (judgement.exit_code, judgement.cases[0].verdict) == (1, "failed")
    assert "was expected and left no record" in judgement.summary
    assert judgement.cases[0].signals[0].reproduce == "pytest tests/suite --case nano-cpu-b2"


def test_a_case_that_the_machine_cannot_take_is_no_success() -> None:
    baseline = a_baseline([a_record([OPS])])
    not_run = {"nano-b4-x2": "needs 2 GPUs, NVML shows 1"}
    judgement = judge([a_record([OPS])], {baseline.case_id: baseline}, expected=list(not_run), not_run=not_run)

    assert [case.verdict for case in judgement.cases] == ["pass", "incompatible"]
    assert judgement.exit_code == 3
    assert judgement.summary.endswith("nano-b4-x2, not run: needs 2 GPUs, NVML shows 1")


def ranked(odd: float = 0, slow: float = 0) -> list[Signal]:
    names = [Part(name="rank 1: recompiles f: 1, the others 0", value=odd)] if odd else []
    excess = [Part(name=f"rank {rank}", value=percent) for rank, percent in enumerate((-37.5, 60))]
    return [
        a_signal("rank_mismatches", odd, parts=names),
        a_signal("rank_imbalance", 60, "info", "%", parts=excess),
        a_signal("slow_ranks", slow, "info", parts=[Part(name="rank 1", value=1)] if slow else []),
    ]


def test_a_rank_that_does_other_work_fails_without_a_baseline_and_is_named() -> None:
    case = one(ranked(odd=1))
    found = row(case, "rank_mismatches")
    assert (case.verdict, found.verdict) == ("failed", "failed")
    assert found.message.splitlines() == [
        "rank 1 did other work than the other ranks",
        "rank 1: recompiles f: 1, the others 0 1",
    ]


def test_a_difference_of_ranks_that_is_approved_passes() -> None:
    assert row(one(ranked(odd=1), a_baseline([a_record(ranked(odd=1))])), "rank_mismatches").verdict == "pass"
    assert row(one(ranked(odd=1), a_baseline([a_record(ranked())])), "rank_mismatches").verdict == "regressed"


def test_times_with_a_slow_rank_tell_nothing_and_it_is_named() -> None:
    approved = a_baseline([a_record(ranked())])
    assert one(ranked(), approved).verdict == "pass"
    case = one(ranked(slow=1), approved)
    assert case.verdict == "inconclusive"
    assert row(case, "slow_ranks").message.startswith("rank 1 takes +60 % by itself against the others, in every step")


def test_nothing_judged_exits_3() -> None:
    assert judge([], {}).exit_code == 3


@pytest.mark.parametrize(
    ("changes", "busy", "memory", "verdicts"),
    [
        ({"compile": True}, 1.025, 1.025, ("pass", "regressed")),  # another cold compile, and more memory
        ({"compile": True}, 1.035, 1.0, ("regressed", "pass")),
        ({"compile": True, "backend": "eager"}, 1.025, 1.0, ("regressed", "pass")),
        ({}, 1.025, 1.0, ("regressed", "pass")),
    ],
)
def test_only_busy_time_of_what_inductor_compiles_varies_from_compile_to_compile(
    changes: dict[str, Any], busy: float, memory: float, verdicts: tuple[str, str]
) -> None:
    case = Case(config="nano", batch_size=4, **changes)
    peak = a_signal("peak_memory", 2e9, "device", "B")
    baseline = a_baseline([a_record([*proof(), BUSY, peak], case)])
    more = [BUSY.model_copy(update={"value": 16 * busy}), peak.model_copy(update={"value": 2e9 * memory})]
    found = one([*proof(), *more], baseline, case=case)
    assert (row(found, "gpu_busy").verdict, row(found, "peak_memory").verdict) == verdicts


@pytest.mark.parametrize("signals", [[], [a_signal("x", 1, "info")], [WALL, BUSY]])
def test_a_case_with_nothing_to_gate_does_not_pass(signals: list[Signal]) -> None:
    case = one(signals)
    assert case.verdict == "no-baseline"
    assert "nothing was gated" in case.signals[-1].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "failed", "error": "Traceback\n  File x\nOSError: no\n"}, "did not finish: OSError: no"),
        ({"status": "running"}, "its status is 'running': was it killed?"),
    ],
)  # fmt: skip
def test_one_failed_run_fails_the_case(changes: dict[str, Any], message: str) -> None:
    records = [a_record([OPS]), a_record(run=1, **changes)]
    case = judge_case(records, a_baseline([a_record([OPS])]))
    assert (case.verdict, case.runs) == ("failed", 1)
    assert message in row(case, "run 1").message
    assert row(case, "aten_ops").verdict == "pass"


@pytest.mark.parametrize(
    ("evidence", "message", "where"),
    [
        ([], "nothing proves that it compiled", []),
        (proof(frames=0), "no frame was compiled", []),
        (proof()[:2], "not every run has the signal model_frames", []),
        (proof(model_frames=0), "own forward was not compiled: 9 other frames were", []),
        (proof(9, 1, [Part(name="f", value=1, where=[BREAK_LINE])]), "frames that fell back to eager: 1", [BREAK_LINE]),
    ],
)  # fmt: skip
def test_compiled_must_be_proven(evidence: list[Signal], message: str, where: list[str]) -> None:
    baseline = a_baseline([a_record([OPS, *proof()], CPU_COMPILED)])
    case = one([OPS, *evidence], baseline, Options(gate=["wall"]), case=CPU_COMPILED)
    assert case.verdict == "not-compiled"
    (found,) = [signal for signal in case.signals if signal.verdict == "not-compiled"]
    assert message in found.message
    assert (found.where, found.refresh) == (where, "")
    assert judge([a_record([OPS, *evidence], CPU_COMPILED)], {}).exit_code == 1


def test_an_eager_case_needs_no_proof() -> None:
    assert one([OPS], a_baseline([a_record([OPS])])).verdict == "pass"


def test_time_and_memory_of_the_cpu_lane_are_shown_only() -> None:
    case = one([OPS, WALL, BUSY], a_baseline([a_record([OPS])]))
    assert case.verdict == "pass"
    assert [row(case, name).verdict for name in ("step_time", "gpu_busy")] == [None, None]
    assert row(case, "step_time").now == 100


def test_kinds_that_are_not_gated_are_shown_with_their_change() -> None:
    baseline = a_baseline([a_record([OPS, BUSY], GPU_EAGER)])
    now = [OPS, BUSY.model_copy(update={"value": 32})]
    case = one(now, baseline, Options(gate=["count-volume"]), case=GPU_EAGER)
    busy = row(case, "gpu_busy")
    assert (case.verdict, busy.verdict, busy.baseline, busy.change) == ("pass", None, 16, 16)
    assert one(now, baseline, case=GPU_EAGER).verdict == "regressed"


@pytest.mark.parametrize(
    ("environment", "incompatible", "message"),
    [
        ({"transformers": "5.0"}, {"aten_ops", "python_calls", "gpu_busy"}, "transformers 5.0, the baseline 4.57.1"),
        ({"pytorch_lightning": None}, {"aten_ops", "python_calls", "gpu_busy"}, "None, the baseline 2.6.0"),
        ({"python": "3.12.1"}, {"python_calls"}, "python 3.12, the baseline 3.11"),
        ({"power_limit_w": 500.0}, {"gpu_busy"}, "power limit (W) 500.0, the baseline 700.0"),
        ({"device": "nvidia-b200"}, {"aten_ops", "python_calls", "gpu_busy"}, "nvidia-b200, the baseline nvidia-h200"),
        ({"torch_minor": "2.15"}, {"aten_ops", "python_calls", "gpu_busy"}, "torch_minor 2.15, the baseline 2.14"),
        ({"rfdetr": "1.12"}, set(), ""),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_both_sides(
    environment: dict[str, Any], incompatible: set[str], message: str
) -> None:
    baseline = a_baseline([a_record([OPS, CALLS, BUSY], GPU_EAGER)])
    other = H200.model_copy(update=environment)
    case = one([OPS, CALLS, BUSY], baseline, case=GPU_EAGER, environment=other)
    found = [signal for signal in case.signals if signal.verdict == "incompatible"]
    assert {signal.signal for signal in found} == incompatible
    assert all(message in signal.message for signal in found)
    assert case.verdict == ("incompatible" if incompatible else "pass")


def test_another_unit_is_incompatible_and_has_no_change() -> None:
    baseline = a_baseline([a_record([BUSY], GPU_EAGER)])
    busy = row(one([a_signal("gpu_busy", 0.016, "device", "s")], baseline, case=GPU_EAGER), "gpu_busy")
    assert (busy.verdict, busy.baseline, busy.change) == ("incompatible", None, None)


@pytest.mark.parametrize("kind", ["info", "device", "count-strict", "quality"])
@pytest.mark.parametrize("gate", [GATED, {"count-volume"}, {"wall"}])
def test_a_signal_does_not_leave_its_gate_by_changing_kind(kind: Kind, gate: set[Kind]) -> None:
    changed = OPS.model_copy(update={"kind": kind, "value": 9000})
    case = one([changed, BREAKS], a_baseline([a_record([OPS, BREAKS])]), Options(gate=gate))
    found = row(case, "aten_ops")
    assert (case.verdict, found.verdict) == ("incompatible", "incompatible")
    assert found.message == f"kind {kind}, the baseline count-volume"


def test_runs_that_differ_in_a_signals_kind_are_bad_input() -> None:
    records = [a_record([OPS]), a_record([OPS.model_copy(update={"kind": "info"})], run=1)]
    with pytest.raises(ValueError, match=r"'aten_ops' is count-volume, .* and in run 1 info"):
        judge(records, {})


def calls(*values: tuple[str, float, list[str]]) -> Signal:
    found = [Part(name=name, value=value, where=where) for name, value, where in values]
    return a_signal("python_calls", sum(part.value for part in found), "count-volume", parts=found)


LINES = ["transformer.py:425"]


@pytest.mark.parametrize(
    ("now", "where", "words"),
    [
        ([("a", 178, LINES), ("b", 150, []), ("c", 160, [])], [], "+188 python calls, the largest part in a (+78)"),
        ([("a", 178, LINES), ("b", 150, []), ("c", 100, [])], LINES, "+128 python calls at transformer.py:425"),
        ([("a", 100, LINES), ("b", 170, []), ("c", 101, [])], [], "+71 python calls, most in b (+70)"),
        ([("a", 178, LINES), ("b", 178, []), ("c", 1, [])], [], "+57 python calls, the largest part in a (+78)"),
    ],
)
def test_a_line_stands_for_a_change_only_where_it_explains_most_of_it(
    now: list[tuple[str, float, list[str]]], where: list[str], words: str
) -> None:
    baseline = a_baseline([a_record([calls(("a", 100, []), ("b", 100, []), ("c", 100, []))])])
    judgement = judge([a_record([calls(*now)])], {baseline.case_id: baseline})
    assert judgement.cases[0].signals[0].where == where
    assert judgement.summary.endswith(f"nano-cpu-b2, {words}")


def test_a_replaced_part_has_the_line_of_what_came() -> None:
    baseline = a_baseline([a_record([BREAKS])])
    found = one([a_signal("graph_breaks", 1, parts=parts(b=1))], baseline).signals[0]
    assert (found.verdict, found.where) == ("regressed", ["rfdetr/b.py:1"])


def walls(values: list[float], **changes: Any) -> list[Record]:
    return runs_of(WALL, values, GPU_EAGER, **changes)


def test_wall_is_pooled_over_runs_and_its_change_is_that_of_its_interval() -> None:
    baseline = a_baseline(walls([99, 100, 101]))
    found = judge_case(walls([111, 110, 109]), baseline, Options(trust_wall=True)).signals[0]
    assert found.verdict == "regressed"
    assert found.interval
    assert found.baseline
    assert found.change
    assert found.interval[0] < 1 + found.change / found.baseline < found.interval[1]


@pytest.mark.parametrize("values", [[111, 110, 109], [91, 90, 89]])
def test_wall_against_a_stored_baseline_claims_no_change(values: list[float]) -> None:
    found = judge_case(walls(values), a_baseline(walls([99, 100, 101]))).signals[0]
    assert found.verdict == "inconclusive"
    assert found.interval
    assert "measure both sides in one session" in found.message


def test_wall_on_another_host_says_so() -> None:
    baseline = a_baseline(walls([99, 100, 101]))
    other = H200.model_copy(update={"cpu_model": "Xeon", "python": "3.12.0"})
    found = judge_case(walls([100], environment=other), baseline).signals[0]
    assert found.verdict == "inconclusive"
    assert "note: host Xeon x8, the baseline's EPYC x8" in found.message
    assert "note: Python 3.12, the baseline's 3.11" in found.message


def test_a_session_is_as_bad_as_its_worst_case() -> None:
    good, bad = a_baseline([a_record([OPS])]), a_baseline([a_record([OPS], GPU_EAGER)])
    worse = OPS.model_copy(update={"value": 2000})
    judgement = judge([a_record([OPS]), a_record([worse], GPU_EAGER)], {b.case_id: b for b in (good, bad)})
    assert (judgement.exit_code, [case.verdict for case in judgement.cases]) == (1, ["pass", "regressed"])


def test_runs_of_two_sources_are_bad_input() -> None:
    with pytest.raises(ValueError, match="cannot be pooled: rfdetr_commit"):
        judge([a_record(), a_record(run=1, environment=an_environment(rfdetr_commit="abc"))], {})


def test_judging_imports_nothing_heavy() -> None:
    program = "import sys, perf.cli; print(sorted({'torch', 'rfdetr', 'scipy', 'rich', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_strict_count_names_the_line_of_every_part_that_rose_new_ones_first() -> None:
    def breaks(*parts: tuple[str, float, str]) -> Signal:
        found = [Part(name=name, value=value, where=[line]) for name, value, line in parts]
        return Signal(
            name="graph_breaks", kind="count-strict", unit="breaks", value=sum(p.value for p in found), parts=found
        )

    old = breaks(("disabled", 6, "b.py:461"))
    new = breaks(("disabled", 7, "b.py:461"), ("new", 1, "a.py:12"))
    found = row(one([new], a_baseline([a_record([old])])), "graph_breaks")

    assert found.verdict == "regressed"
    assert found.where == ["a.py:12", "b.py:461"]


IMPORT_ERROR = "Traceback\nImportError: cannot import name 'BackboneConfigMixin' from 'transformers' (a/b.py)"
FALLEN = Part(
    name="rfdetr/models/transformer.py:<listcomp>: Unsupported: call_method UserDefinedObjectVariable"
    "(dict_valueiterator) __next__ [] {}",
    value=2,
    where=["rfdetr/models/transformer.py:528"],
)


def on_torch(minor: str, signals: list[Signal], case: Case = CPU_EAGER, **changes: Any) -> CaseVerdict:
    environment = an_environment(torch=f"{minor}.1", torch_minor=minor)
    return judge_case([a_record(signals, case, environment=environment, **changes)], None)


def test_the_failure_that_is_known_of_a_torch_is_a_pass_that_says_so() -> None:
    case = on_torch("2.3", [], status="failed", error=IMPORT_ERROR)
    assert case.verdict == "pass"
    assert case.signals[0].listed
    assert case.signals[0].message.startswith(
        "failed as expected of torch 2.3: every transformers 5 that rfdetr allows"
    )
    assert "pins in force: torch 2.3.1, " in case.signals[0].message


def test_a_session_of_expected_failures_says_so_first() -> None:
    environment = an_environment(torch="2.3.1", torch_minor="2.3")
    record = a_record([], status="failed", error=IMPORT_ERROR, environment=environment)
    found = judge([record], {})
    assert (found.exit_code, found.summary) == (
        0,
        "1 of 1 case pass on cpu, torch 2.3; failures as expected: 1, listed",
    )


def test_another_failure_than_the_known_one_fails_and_names_both() -> None:
    case = on_torch("2.3", [], status="failed", error="ImportError: libcudart.so.12: cannot open")
    assert case.verdict == "failed"
    assert "libcudart.so.12" in case.signals[0].message
    assert "expected of torch 2.3 was another failure: every transformers 5" in case.signals[0].message


def test_a_killed_run_is_no_known_failure() -> None:
    assert on_torch("2.3", [], status="running", error=IMPORT_ERROR).verdict == "failed"


def test_a_torch_that_has_begun_to_work_is_a_stale_expectation() -> None:
    case = on_torch("2.3", [OPS])
    assert case.verdict == "improved"
    assert case.signals[0].message.endswith("drop that expectation")


def test_a_fall_back_that_is_known_of_a_torch_leaves_the_counts_to_their_gates() -> None:
    case = on_torch("2.6", proof(40, 2, [FALLEN]), CPU_COMPILED)
    assert case.signals[0].message.startswith("fell back as expected of torch 2.6: ")
    assert (case.signals[0].verdict, case.verdict) == ("pass", "no-baseline")
    assert row(case, "frames_failed").verdict == "no-baseline"


def test_another_fall_back_is_not_compiled() -> None:
    other = Part(name="rfdetr/a.py:forward: Unsupported: lock", value=2)
    assert on_torch("2.6", proof(40, 2, [other]), CPU_COMPILED).verdict == "not-compiled"


LOCK = Part(
    name="rfdetr/models/heads/segmentation.py:forward: Unsupported: Unsupported context manager",
    value=1,
    where=["rfdetr/models/heads/segmentation.py:40"],
)


@pytest.mark.parametrize(
    ("case_id", "verdict"), [("seg-nano-b4-compile", "no-baseline"), ("nano-b4-compile", "not-compiled")]
)
def test_a_fall_back_that_is_known_of_some_cases_is_excused_in_those(case_id: str, verdict: str) -> None:
    assert on_torch("2.11", proof(29, 1, [LOCK]), find_case(case_id)).verdict == verdict


def test_what_is_known_of_compiled_cases_does_not_excuse_an_eager_one() -> None:
    assert on_torch("2.6", [OPS]).verdict == "no-baseline"
    assert on_torch("2.6", [], status="failed", error=f"E: {FALLEN.name}").verdict == "failed"


def test_a_compiled_case_without_a_fall_back_is_a_stale_expectation() -> None:
    assert on_torch("2.6", proof(), CPU_COMPILED).verdict == "improved"


def test_a_run_that_only_counted_is_judged_by_its_counts() -> None:
    baseline = a_baseline(runs_of(WALL, [100, 101], GPU_EAGER))
    kernels = a_signal("kernels", 3548, "count-volume")
    with_counts = a_baseline([a_record([WALL, BUSY, kernels], GPU_EAGER)])
    case = judge_case([a_record([kernels], GPU_EAGER, untimed=True)], with_counts)
    assert case.verdict == "pass"
    assert row(case, "step_time").verdict is None
    assert judge_case([a_record([kernels], GPU_EAGER)], with_counts).verdict == "failed"
    assert judge_case([a_record([], GPU_EAGER, untimed=True)], baseline).verdict == "no-baseline"


def mismatches(count: float) -> list[Signal]:
    return [*proof(), a_signal("parity_mismatches", count, parts=[Part(name="loss_ce", value=count)] if count else [])]


PARITY = CPU_COMPILED.model_copy(update={"measure": "parity"})


def test_a_compiled_step_that_computes_something_else_fails_without_a_baseline_too() -> None:
    case = judge_case([a_record(mismatches(1), PARITY)], None)
    found = row(case, "parity_mismatches")
    assert (case.verdict, found.verdict) == ("failed", "failed")
    assert found.message == "the compiled step computes something else than the eager one\nloss_ce 1"
    assert judge_case([a_record(mismatches(0), PARITY)], None).verdict == "no-baseline"


def test_an_approved_mismatch_is_gated_as_any_count() -> None:
    baseline = a_baseline([a_record(mismatches(1), PARITY)])
    assert judge_case([a_record(mismatches(1), PARITY)], baseline).verdict == "pass"
    assert judge_case([a_record(mismatches(2), PARITY)], baseline).verdict == "regressed"


@pytest.mark.parametrize(("count", "verdict"), [(19, "pass"), (0, "improved")])
def test_a_mismatch_that_is_known_of_a_torch_is_expected(count: float, verdict: str) -> None:
    signals = [*proof(40, 2, [FALLEN]), *mismatches(count)[3:]]
    found = row(on_torch("2.6", signals, PARITY), "expected mismatch")
    assert (found.verdict, found.listed) == (verdict, verdict == "pass")
    assert "every bottleneck in rfdetr's C2f" in found.message


def test_a_signal_that_is_younger_than_the_baseline_is_shown_until_a_refresh_takes_it_in() -> None:
    counted, young = a_signal("graphs", 7), a_signal("memory_growth", 4096, unit="B")
    old = a_baseline([a_record([counted])])

    case = judge_case([a_record([counted, young])], old)

    [row] = [row for row in case.signals if row.signal == "memory_growth"]
    assert (case.verdict, row.verdict) == ("pass", None)
    assert "its next refresh takes it in" in row.message
    # And from then on it is gated.
    new = a_baseline([a_record([counted, young.model_copy(update={"value": 0})])])
    assert judge_case([a_record([counted, young])], new).verdict == "regressed"


def test_a_baseline_that_has_one_young_signal_is_not_older_than_the_others() -> None:
    held, growth = a_signal("step_memory", 4096, "count-volume", "B"), a_signal("memory_growth", 0, unit="B")

    case = judge_case([a_record([held, growth])], a_baseline([a_record([held])]))

    [row] = [row for row in case.signals if row.signal == "memory_growth"]
    assert (case.verdict, row.verdict) == ("no-baseline", "no-baseline")
    assert "this signal has no baseline" in row.message
