"""What becomes of a replay: records of both sides -> caught, not caught or other."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from factories import BREAK_LINE, CPU_COMPILED, CPU_EAGER, a_record, a_signal, an_environment, proof

from perf.compile_matrix import Row
from perf.record import Part, Record
from perf.replay import Claim, Replay
from perf.replay_outcome import Result, exit_code, on_record
from perf.replay_outcome import result as result_of

OPS = Replay(
    name="ops",
    base="1.10.1",
    head="1.11.0",
    case=CPU_EAGER.id,
    verdict="regressed",
    claims=(Claim("aten_ops", "regressed", part="forward aten::mm", where=r"a\.py:7"),),
    what="more products",
    source="1.11.0 rfdetr/a.py:7",
)
DECODE = replace(
    OPS, name="decode", pairs=8, claims=(Claim("getitem_bmp_large", "regressed", part="^decode,"),), verdict="regressed"
)


def result(replay: Replay, sides: Mapping[str, Sequence[Record]]) -> Result:
    """Return what becomes of a replay whose records are of the releases that they should be of."""
    made = {side: [_by(side, record) for record in records] for side, records in sides.items()}
    return result_of(replay, made)


def _by(release: str, record: Record) -> Record:
    return record.model_copy(update={"environment": an_environment(rfdetr=release)})


def ops(count: float, name: str = "forward aten::mm", line: str = "rfdetr/a.py:7") -> Record:
    found = [Part(name=name, value=count, where=[line]), Part(name="backward aten::add", value=100)]
    return a_record([a_signal("aten_ops", count + 100, "count-volume", parts=found)])


def reads(decode: float, other: float = 10.0) -> list[Record]:
    def one(run: int) -> Record:
        shares = [Part(name="decode", value=decode + 0.1 * run), Part(name="other", value=other)]
        value = sum(part.value for part in shares)
        signals = [a_signal("getitem_bmp_large", value, "wall", "ms", parts=shares)]
        # Not claimed, and another in every run: it must not take a share of the error rate.
        return a_record([*signals, a_signal("getitem_png", 5.0 + run, "wall", "ms")], run=run)

    return [one(run) for run in range(8)]


def _at(pace: float, record: Record) -> Record:
    """Return the record of a host that took ``pace`` times as long for everything."""
    slow = [
        signal.model_copy(
            update={
                "value": pace * signal.value,
                "parts": [part.model_copy(update={"value": pace * part.value}) for part in signal.parts],
            }
        )
        for signal in record.signals
    ]
    return record.model_copy(update={"signals": slow})


def sides(base: Sequence[Record], head: Sequence[Record]) -> dict[str, Sequence[Record]]:
    return {"1.10.1": base, "1.11.0": head}


def test_the_claimed_change_with_its_attribution_is_caught() -> None:
    found = result(OPS, sides([ops(20)], [ops(40)]))

    assert (found.outcome, found.wrong) == ("caught", ())
    assert found.said[0].startswith("aten_ops: regressed; 120 -> 140")
    assert found.said[1] == "forward aten::mm 20 -> 40 at rfdetr/a.py:7"


def test_a_change_that_is_not_there_is_not_caught() -> None:
    found = result(OPS, sides([ops(20)], [ops(20)]))

    assert found.outcome == "not caught"
    assert found.wrong[0] == "aten_ops: pass, must be regressed"


def test_a_signal_that_is_not_there_is_not_caught() -> None:
    assert result(OPS, sides([a_record()], [a_record()])).wrong[0] == "aten_ops: no such signal, must be regressed"


@pytest.mark.parametrize(("name", "line"), [("forward aten::bmm", "rfdetr/a.py:7"), ("forward aten::mm", "b.py:1")])
def test_the_right_verdict_for_another_reason_is_other(name: str, line: str) -> None:
    found = result(OPS, sides([ops(20, name, line)], [ops(40, name, line)]))

    assert found.outcome == "other"
    assert "no part 'forward aten::mm' at 'a" in found.wrong[0]


def test_a_part_is_held_to_its_numbers_too() -> None:
    def outcome(numbers: str) -> str:
        one = replace(OPS, claims=(replace(OPS.claims[0], part=f"^forward aten::mm {numbers}$"),))
        return result(one, sides([ops(20)], [ops(40)])).outcome

    assert [outcome(numbers) for numbers in ("20 -> 40", "20 -> 4", "0 -> 40")] == ["caught", "other", "other"]


def test_a_pass_whose_part_moved_the_other_way_is_other() -> None:
    claim = Claim("aten_ops", "pass", part="^forward aten::mm 201 -> 200$")
    one = replace(OPS, verdict="pass", claims=(claim,))

    assert result(one, sides([ops(201)], [ops(200)])).outcome == "caught"
    assert result(one, sides([ops(200)], [ops(201)])).outcome == "other"


def test_a_head_that_did_not_compile_needs_a_base_that_did() -> None:
    claim = Claim("frames", "not-compiled", told="no frame was compiled")
    one = replace(OPS, case=CPU_COMPILED.id, claims=(claim,), verdict="not-compiled")
    eager = a_record(proof(frames=0, model_frames=0), CPU_COMPILED)

    assert result(one, sides([a_record(proof(), CPU_COMPILED)], [eager])).outcome == "caught"
    found = result(one, sides([eager], [eager]))
    assert found.outcome == "other"
    assert found.wrong == (
        "base: the base did not compile: compile=True, and no frame was compiled: the step ran eager",
    )


def test_a_part_that_moved_the_other_way_attributes_nothing() -> None:
    base, head = ops(40), ops(20)
    more = [*head.signals[0].parts[:1], Part(name="backward aten::add", value=200)]
    head = a_record([head.signals[0].model_copy(update={"parts": more, "value": 220})])

    assert result(OPS, sides([base], [head])).outcome == "other"


def test_another_verdict_of_the_case_is_other() -> None:
    head = ops(40)
    head = a_record([*head.signals, a_signal("recompiles", 3)])
    base = a_record([*ops(20).signals, a_signal("recompiles", 3)])
    told = result(replace(OPS, verdict="improved"), sides([base], [head]))

    assert (told.outcome, told.wrong) == ("other", ("the case: regressed, must be improved",))


def test_a_message_that_says_something_else_is_other() -> None:
    told = replace(OPS, claims=(replace(OPS.claims[0], told="999 -> 1000"),))

    assert result(told, sides([ops(20)], [ops(40)])).outcome == "other"


def test_a_silently_eager_case_alone_is_caught_as_not_compiled() -> None:
    claim = Claim("frames", "not-compiled", told="no frame was compiled")
    one = replace(OPS, base=None, case=CPU_COMPILED.id, claims=(claim,), verdict="not-compiled")

    assert result(one, {"1.11.0": [a_record(proof(frames=0, model_frames=0), CPU_COMPILED)]}).outcome == "caught"
    assert result(one, {"1.11.0": [a_record(proof(), CPU_COMPILED)]}).outcome == "not caught"


def test_a_run_that_failed_is_attributed_by_what_its_record_has() -> None:
    claim = Claim("run 0", "failed", told="TypeError: boom", by="graph_breaks", part="TypeError when", where="363")
    one = replace(OPS, base=None, claims=(claim,), verdict="failed")
    broken = [Part(name="TypeError when making", value=2, where=[BREAK_LINE])]
    record = a_record([a_signal("graph_breaks", 2, parts=broken)], status="failed", error="TypeError: boom")

    found = result(one, {"1.11.0": [record]})
    assert found.outcome == "caught"
    assert found.said[-1] == f"TypeError when making 0 -> 2 at {BREAK_LINE}"


def test_runs_of_another_release_say_nothing() -> None:
    found = result_of(OPS, sides([_by("1.10.1", ops(20))], [ops(40)]))

    assert (found.outcome, found.wrong) == ("not caught", ("1.11.0: its runs measured rfdetr 1.11.2",))


def test_runs_with_another_torch_say_nothing_though_the_base_failed() -> None:
    claim = Claim("base", "no-baseline", told="boom")
    one = replace(OPS, verdict="no-baseline", claims=(claim,))
    failed = a_record([], status="failed", error="TypeError: boom")
    assert result(one, sides([failed], [ops(20)])).outcome == "caught"

    older = failed.model_copy(update={"environment": an_environment(rfdetr="1.10.1", torch="2.9.1", torch_minor="2.9")})
    found = result_of(one, sides([older], [_by("1.11.0", ops(20))]))
    assert (found.outcome, found.wrong) == ("not caught", ("its runs had torch 2.14.1+cpu and 2.9.1",))


def test_a_side_without_records_is_not_caught() -> None:
    assert result(OPS, {}).outcome == "not caught"
    assert result(OPS, sides([ops(20)], [])).outcome == "not caught"


def test_a_slower_part_is_caught_by_time_on_the_claimed_signal_alone() -> None:
    found = result(DECODE, sides(reads(20), reads(80)))

    assert (found.outcome, found.wrong) == ("caught", ())
    # That nothing else got slower is told too.
    assert found.said[1:] == (
        "getitem_bmp_large, times the base's: decode 3.95, other 1",
        "decode, times the base's 1 -> 3.948",
    )


def test_parts_are_compared_by_pair_so_that_a_host_that_changes_its_speed_hides_none() -> None:
    pace = (3.0, 1.0, 2.5, 1.0, 3.0, 1.0, 2.0, 1.0)
    base = [_at(pace[run], record) for run, record in enumerate(reads(20))]
    head = [_at(pace[run], record) for run, record in enumerate(reads(80))]

    assert result(DECODE, sides(base, head)).outcome == "caught"


def test_a_slowdown_elsewhere_than_claimed_is_other() -> None:
    assert result(DECODE, sides(reads(20), reads(20, other=70))).outcome == "other"


def test_no_change_of_time_is_not_caught() -> None:
    assert result(DECODE, sides(reads(20), reads(20))).outcome == "not caught"


def a_row(outcome: str = "cannot be imported", why: str = "ImportError: cannot import name 'X'") -> Row:
    return Row.model_validate(
        {
            "case_id": CPU_EAGER.id,
            "device": "cpu",
            "torch_minor": "2.2",
            "rfdetr": "1.11.2",
            "config": "nano",
            "lane": "cpu",
            "batch": 2,
            "backend": "inductor",
            "eager": CPU_EAGER.id,
            "torch": "2.2.2",
            "transformers": None,
            "python": "3.11.7",
            "outcome": outcome,
            "why": why,
            "runs": 1,
            "suite_commit": None,
            "measured": datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC),
        }
    )


FLOOR = replace(
    OPS,
    base=None,
    head="1.11.2",
    recorded=True,
    minor="2.2",
    claims=(Claim("outcome", "cannot be imported", told="cannot import name"),),
)


def test_what_the_store_has_is_on_record_and_never_caught() -> None:
    found = on_record(FLOOR, [a_row()])

    assert found.outcome == "on record"
    assert found.said == ("torch 2.2.2: cannot be imported; ImportError: cannot import name 'X' (measured 2026-11-29)",)


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [([], "not caught"), ([a_row("eager", "")], "not caught"), ([a_row(why="ImportError: of another")], "other")],
)
def test_a_store_that_says_something_else_is_not_as_expected(rows: list[Row], outcome: str) -> None:
    assert on_record(FLOOR, rows).outcome == outcome


def test_only_what_is_not_as_expected_makes_a_failure() -> None:
    caught = result(OPS, sides([ops(20)], [ops(40)]))

    assert exit_code([caught, replace(caught, outcome="not run here"), replace(caught, outcome="on record")]) == 0
    assert exit_code([caught, replace(caught, outcome="not caught")]) == 1
    assert exit_code([replace(caught, outcome="other")]) == 1


def test_that_nothing_could_be_run_is_no_success() -> None:
    assert exit_code([Result("gpu", "not run here")]) == 3
    assert exit_code([]) == 3
