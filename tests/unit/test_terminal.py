from __future__ import annotations

import io
from typing import Any

import pytest
from factories import (
    BREAK_LINE,
    CPU_COMPILED,
    GPU_EAGER,
    H200,
    a_baseline,
    a_record,
    a_signal,
    parts,
    proof,
    runs_of,
)
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from perf.gpus import GpuState
from perf.judge import judge
from perf.record import Kind, Part, Record, Signal
from perf.refresh import Change
from perf.report.humanize import change, minutes, number, printable
from perf.report.terminal import print_changes, render
from perf.stats import RatioInterval
from perf.verdicts import SignalVerdict

BREAKS = a_signal("graph_breaks", 1, parts=parts(a=1))
OPS = a_signal("aten_ops", 3419, "count-volume", parts=parts(forward=3419))


def compiled(*signals: Signal, **changes: Any) -> Record:
    return a_record([*proof(), *signals], CPU_COMPILED, **changes)


def report(now: list[Record], approved: list[Record], width: int = 120) -> str:
    baseline = a_baseline(approved)
    return render(judge(now, {baseline.case_id: baseline}), now, width)


def regressed(name: str = "item()") -> list[Record]:
    extra = Part(name=name, value=1, where=[BREAK_LINE])
    more = OPS.model_copy(update={"value": 3420, "parts": parts(forward=3420)})
    return [compiled(a_signal("graph_breaks", 2, parts=[*parts(a=1), extra]), more)]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_report_is_legible_at_any_width(width: int) -> None:
    text = report(regressed(), [compiled(BREAKS, OPS)], width)
    for name in (
        "regressed",
        "pass, listed",
        "nano-cpu-b2-compile",
        "graph_breaks",
        "frames_failed",
        "3420",
        BREAK_LINE,
    ):
        assert name in text
    assert "…" not in text
    assert "\x1b" not in text


def test_the_sentence_comes_first_then_the_worst_row() -> None:
    text = report(regressed(), [compiled(BREAKS, OPS)])
    sentence, *lines = text.splitlines()
    assert sentence.startswith("1 of 1 case regressed on cpu, torch 2.14: nano-cpu-b2-compile, +1 graph break")
    assert [line.split()[0] for line in lines[3:7]] == ["regressed", "pass,", "pass", "shown"]


def test_below_the_table_stand_the_parts_and_the_commands() -> None:
    text = report(regressed(), [compiled(BREAKS, OPS)])
    below = text[text.index("nano-cpu-b2-compile: regressed") :]
    assert f"    item() 0 -> 1 at {BREAK_LINE}" in below.splitlines()
    assert "  aten_ops: pass, listed; 3419 -> 3420 (+0.03 %)" in below
    assert "    forward 3419 -> 3420 at rfdetr/forward.py:1" in below.splitlines()
    assert "  reproduce: pytest tests/suite --case nano-cpu-b2-compile" in below.splitlines()
    assert '  refresh: rfdetr-perf refresh RECORDS --case nano-cpu-b2-compile --reason "..."' in below.splitlines()


def test_a_pass_has_nothing_below_the_table() -> None:
    text = report([compiled(BREAKS, OPS)], [compiled(BREAKS, OPS)])
    assert "reproduce" not in text


def test_rows_that_say_the_same_say_it_once() -> None:
    text = render(judge([compiled(BREAKS, OPS)], {}), [], 120)
    assert "  frames_failed, graph_breaks, aten_ops: no-baseline; this case has no baseline on cpu" in text
    assert text.count("reproduce:") == 1


def test_the_gpus_share_stands_next_to_the_step_time() -> None:
    signals = [a_signal("step_time", 0.1, "wall", "s"), a_signal("gpu_busy", 16.2, "device", "ms")]
    text = report([a_record(signals, GPU_EAGER)], [a_record(signals, GPU_EAGER)])
    lines = text.splitlines()
    (step,) = [index for index, line in enumerate(lines) if " step_time " in line]
    assert "GPU busy share" in lines[step + 1]
    assert lines[step + 1].split()[-4:] == ["16.2", "%", "16.2", "%"]
    assert "GPU busy share" not in report(runs_of(signals[0], [1], GPU_EAGER), runs_of(signals[0], [1], GPU_EAGER))


def test_what_the_record_says_of_its_making_is_said() -> None:
    state = GpuState(index=0, other_processes=[42], throttle_reasons=["power cap"])
    record = a_record([OPS], GPU_EAGER, gpu_after=[state], adaptations=["gate satisfied"], notes=["slow disk"])
    text = report([record], [a_record([OPS], GPU_EAGER)])
    for remark in ("shared with other processes", "throttled during nano-b4: power cap", "gate satisfied", "slow disk"):
        assert f"{remark}" in text
    assert str(H200.gpu_name) in text


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[link=http://x]y", ":smile:", "a\x1b[31mb", "a\r\nb"])
def test_untrusted_text_is_neither_markup_nor_control(name: str) -> None:
    text = report(regressed(name), [compiled(BREAKS, OPS)])
    assert f"{printable(' '.join(name.split()))} 0 -> 1" in text
    assert "\x1b" not in text
    assert "\r" not in text


@given(st.text(min_size=1, max_size=20))
def test_any_name_renders(name: str) -> None:
    record = a_record([a_signal(name, 1)])
    assert render(judge([record], {}), [record], 100).startswith("1 of 1 case without a baseline")


@pytest.mark.parametrize(
    ("value", "kind", "unit", "text"),
    [
        (3449, "count-volume", "ops", "3449"),
        (12345678, "count-volume", "", "12345678"),
        (76.5, "count-strict", "count", "76.5"),
        (95.1234, "wall", "ms", "95.12 ms"),
        (0.0951, "wall", "s", "95.10 ms"),
        (157.25, "wall", "s", "157.2 s"),
        (0, "wall", "s", "0 s"),
        (2097478144, "device", "B", "2097.5 MB"),
        (21.5e9, "device", "bytes", "21.50 GB"),
        (512, "device", "B", "512 B"),
        (41.25, "wall", "1/s", "41.25 1/s"),
        (None, "wall", "s", "-"),
    ],
)
def test_numbers_have_units(value: float | None, kind: Kind, unit: str, text: str) -> None:
    assert number(value, kind, unit) == text


@pytest.mark.parametrize(
    ("kind", "baseline", "moved", "text"),
    [
        ("count-volume", 1000, 3, "+3 (+0.30 %)"),
        ("count-volume", 22098, -1, "-1 (-0.005 %)"),
        ("count-strict", 2, -1, "-1"),
        ("count-strict", 0, 2, "+2"),
        ("device", 200, 1, "+0.50 %"),
        ("device", 0, 5, "+5"),
        ("wall", 10, 0, "0"),
        ("wall", None, None, ""),
    ],
)
def test_changes(kind: Kind, baseline: float | None, moved: float | None, text: str) -> None:
    row = SignalVerdict(case_id="x", signal="x", kind=kind, verdict="pass", baseline=baseline, change=moved)
    assert change(row) == text


def test_a_refresh_shows_old_new_change_and_drift() -> None:
    file = io.StringIO()
    changes = [
        Change("gpu_busy", "ms", 16.0, 15.0, 20.0, RatioInterval(0.9375, 0.92, 0.955)),
        Change("new", "", None, 3, None),
        Change("gone", "", 4, None, 4),
        Change("zero", "", 0, 2, 0),
    ]
    print_changes(Console(file=file, width=40), "nano-b4", changes)
    head, _, _, *rows = [line.split() for line in file.getvalue().splitlines()]
    assert head == ["nano-b4:", "4", "signals", "change"]
    assert rows == [
        ["gpu_busy", "16.00", "ms", "15.00", "ms", "-6.25", "%", "-8.00", "%", "to", "-4.50", "%", "-25.00", "%"],
        ["new", "-", "3", "new", "-", "new"],
        ["gone", "4", "-", "retired", "-", "retired"],
        ["zero", "0", "2", "+2", "-", "+2"],
    ]
    print_changes(Console(file=file), "nano-b4", [])
    assert file.getvalue().endswith("nano-b4: nothing changes\n")


def test_the_first_baseline_of_a_case_is_said_to_be_one() -> None:
    file = io.StringIO()
    print_changes(Console(file=file), "nano-b4", [Change("ops", "", None, 3, None)], "nvidia-b200, torch 2.14")
    assert file.getvalue().startswith("nano-b4: first baseline of this case on nvidia-b200, torch 2.14, 1 signal\n")


@pytest.mark.parametrize(("seconds", "told"), [(5, "5 s"), (90, "90 s"), (120, "2 min"), (900, "15 min")])
def test_times_are_told_as_they_are_asked_for(seconds: float, told: str) -> None:
    assert minutes(seconds) == told
