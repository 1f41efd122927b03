from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from factories import a_record, a_signal

from perf.compare import compare
from perf.faults import FAULTS, Fault, line_of
from perf.judge import Options
from perf.others import Opinion
from perf.record import Part
from perf.scoreboard import (
    DOCUMENT,
    STORE,
    Row,
    Seen,
    Told,
    Unfaulted,
    digest,
    gaps,
    is_caught,
    line_told,
    merged,
    problems,
    read_store,
    row_of,
    store_text,
)

SMALL = next(fault for fault in FAULTS if fault.id == "aten_op_small.nano-cpu-b2")
BLATANT = next(fault for fault in FAULTS if fault.id == "aten_op_blatant.nano-cpu-b2")
UNSEEN = next(fault for fault in FAULTS if fault.expected == "unseen")


def measured(fault: Fault, ops: float, line: str | None = None, now: str = "aten_ops") -> Row:
    def side(value: float, name: str, where: str) -> Any:
        kept = [Part(name="forward aten::mm", value=1000)]
        more = [Part(name="forward aten::neg", value=value - 1000, where=[where])] if value > 1000 else []
        return a_record([a_signal(name, value, "count-volume", "ops", parts=[*kept, *more])])

    base, head = side(1000, now, ""), side(ops, now, line or line_of(fault))
    [case] = compare([base], [head], Options()).cases
    return row_of(fault, case, head, 1, Opinion("silent", 1.23))


def an_unfaulted(**changes: Any) -> Unfaulted:
    values: dict[str, Any] = {
        **{"case_id": "nano-cpu-b2", "against": "baseline", "device": "cpu", "torch_minor": "2.14", "rfdetr": "1.11.2"},
        **{"sessions": 20, "alarms": 0, "listed": 0, "benchmark_sessions": 20, "benchmark_alarms": 7},
        **{"suite_commit": "c0ffee", "measured": datetime.date(2026, 7, 1)},
    }
    return Unfaulted(**(values | changes))


def test_a_row_says_what_told_of_the_fault_and_where() -> None:
    row = measured(BLATANT, 1400)

    assert (row.verdict, row.patch, row.benchmark) == (
        "regressed",
        digest(BLATANT.patch),
        Told(said="silent", percent=1.2),
    )
    assert row.seen == [
        Seen(signal="aten_ops", verdict="regressed", change="+400 ops (+40 %)", where=[line_of(BLATANT)])
    ]
    assert is_caught(row, BLATANT)
    assert line_told(row, BLATANT)
    assert problems([row]) == []


def test_a_listed_change_is_enough_where_that_is_what_has_to_come_of_it() -> None:
    row = measured(SMALL, 1001)

    assert (row.verdict, row.seen[0].verdict) == ("pass", "listed")
    assert is_caught(row, SMALL)
    assert not is_caught(row, BLATANT)


def test_a_fault_that_is_not_caught_any_more_is_a_problem() -> None:
    silent, listed = measured(SMALL, 1000), measured(BLATANT, 1001)

    assert problems([silent, listed]) == [
        "aten_op_small.nano-cpu-b2: not caught: aten_ops was silent; "
        "nox -s scoreboard -- --select aten_op_small.nano-cpu-b2",
        "aten_op_blatant.nano-cpu-b2: not caught: aten_ops did not fail; "
        "nox -s scoreboard -- --select aten_op_blatant.nano-cpu-b2",
    ]


def test_another_signal_does_not_do() -> None:
    row = measured(BLATANT, 1400, now="c_calls")

    assert row.verdict == "regressed"
    assert not is_caught(row, BLATANT)


def test_a_line_that_is_not_told_is_a_problem() -> None:
    [told] = problems([measured(BLATANT, 1400, "rfdetr/models/lwdetr.py:3")])

    assert told.startswith(f"aten_op_blatant.nano-cpu-b2: {line_of(BLATANT)} was not told")
    assert line_told(measured(BLATANT, 1400), UNSEEN) is None


def test_what_this_lane_cannot_see_is_no_problem_either_way() -> None:
    row = measured(BLATANT, 1000)

    assert is_caught(row, UNSEEN)


def test_a_patch_that_changed_since_has_to_be_measured_again() -> None:
    row = measured(BLATANT, 1400).model_copy(update={"patch": "00000000"})

    assert problems([row])[0].startswith(
        "aten_op_blatant.nano-cpu-b2: tests/faults/aten_op_blatant.py has changed since"
    )


def test_a_row_of_no_fault_and_a_false_alarm_are_problems() -> None:
    gone = measured(BLATANT, 1400).model_copy(update={"kind": "gone"})

    assert problems([gone, an_unfaulted(alarms=1)]) == [
        "gone_blatant.nano-cpu-b2: no such fault any more; drop its line",
        "nano-cpu-b2: 1 false alarms in 20 unfaulted sessions",
    ]


def test_the_store_reads_back_what_was_written(tmp_path: Path) -> None:
    rows = merged([], [measured(SMALL, 1001), measured(BLATANT, 1400), an_unfaulted()])
    path = tmp_path / "store.jsonl"
    path.write_text(store_text(rows), encoding="utf-8")

    assert read_store(path) == rows
    assert read_store(tmp_path / "none") == []
    path.write_text(store_text([rows[0], rows[0]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"store.jsonl:2: .*a second row for fault, aten_op_blatant"):
        read_store(path)


def test_a_newer_row_keeps_what_traceml_said_of_the_same_patch() -> None:
    asked = measured(BLATANT, 1400).model_copy(update={"traceml": Told(said="fails", percent=9)})
    again, other = measured(BLATANT, 1500), measured(BLATANT, 1500).model_copy(update={"patch": "00000000"})

    [kept], [dropped] = merged([asked], [again]), merged([asked], [other])
    assert isinstance(kept, Row)
    assert kept.traceml == Told(said="fails", percent=9)
    assert kept.seen == again.seen
    assert isinstance(dropped, Row)
    assert dropped.traceml is None


def test_every_fault_that_was_measured_is_caught_and_the_document_is_what_the_store_gives() -> None:
    from perf.report.scoreboard import check

    code, said = check(STORE, DOCUMENT)

    assert code == 0, said


def test_a_fault_that_reads_as_better_or_takes_its_signal_away_is_not_caught() -> None:
    gone = measured(BLATANT, 1400, now="c_calls")
    for verdict in ("improved", "failed"):
        told = Seen.model_validate({"signal": "aten_ops", "verdict": verdict, "change": "-400 ops"})
        assert not is_caught(gone.model_copy(update={"seen": [told]}), BLATANT)


def test_a_training_that_breaks_is_caught_where_that_is_what_has_to_come_of_it() -> None:
    broken = Seen(signal="run 100", verdict="failed", change="did not finish: ValueError: non-finite value")
    row = measured(BLATANT, 1400).model_copy(update={"seen": [broken]})
    training = next(fault for fault in FAULTS if fault.id == "loss_term_blatant.nano-cpu-b4-w0-convergence")

    assert is_caught(row, training)
    assert not is_caught(row, BLATANT)


def a_whole_store() -> list[Row | Unfaulted]:
    like = measured(BLATANT, 1400)
    anywhere = [fault for fault in FAULTS if not fault.needs]
    rows = [like.model_copy(update={"kind": f.kind, "size": f.size, "case_id": f.case_id}) for f in anywhere]
    return [*rows, an_unfaulted(), an_unfaulted(against="first run")]


def test_a_fault_or_a_session_that_is_not_in_the_store_is_a_gap() -> None:
    whole = a_whole_store()
    assert gaps(whole) == []

    assert gaps(whole[1:])[0].startswith("graph_break_small.nano-cpu-b2-compile-eager: not measured; nox -s scoreboard")
    assert gaps([*whole[:-1], an_unfaulted(against="first run", sessions=19)]) == [
        "nano-cpu-b2: 19 unfaulted sessions against its first run, of 20; "
        "nox -s scoreboard -- --unfaulted --sessions 20"
    ]


@pytest.mark.parametrize(
    ("kind", "case_id", "judging"),
    [
        ("kernel", "nano-b4", "counts"),
        ("gpu_work", "nano-b4", "interleaved"),
        ("host_time", "nano-cpu-b2", "interleaved"),
    ],
)
def test_what_needs_a_machine_of_a_kind_is_whole_or_not_there_at_all(kind: str, case_id: str, judging: str) -> None:
    one = measured(BLATANT, 1400).model_copy(update={"kind": kind, "case_id": case_id})

    told = gaps([*a_whole_store(), one])
    assert {line.partition(":")[0] for line in told} == {
        fault.id
        for fault in FAULTS
        if (fault.case_id, fault.judging) == (case_id, judging) and fault.id != one.fault_id
    }


def test_a_row_of_another_rfdetr_is_stale() -> None:
    first, *others = a_whole_store()
    assert gaps([first.model_copy(update={"rfdetr": "1.11.1"}), *others]) == [
        "graph_break_small.nano-cpu-b2-compile-eager: measured with rfdetr 1.11.1, and the suite is at 1.11.2"
    ]


def test_sessions_of_another_rfdetr_are_none_of_this_one() -> None:
    *others, _ = a_whole_store()
    [told] = gaps([*others, an_unfaulted(against="first run", rfdetr="1.11.1")])
    assert told.startswith("nano-cpu-b2: 0 unfaulted sessions against its first run, of 20; ")


def test_parts_that_were_replaced_are_told_where_the_total_is_the_same() -> None:
    rate = next(fault for fault in FAULTS if fault.id == "learning_rate_blatant.nano-cpu-b2")
    groups = [a_signal("optimizer_groups", 2, parts=[Part(name=f"lr {lr}", value=2)]) for lr in ("0.0001", "1e-05")]
    base, head = (a_record([signal]) for signal in groups)
    [case] = compare([base], [head], Options()).cases

    [told] = row_of(rate, case, head, 1, None).seen
    assert (told.verdict, told.change) == ("regressed", "lr 0.0001 2 -> 0; lr 1e-05 0 -> 2")
