from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import CPU_EAGER
from tiny import first_line, in_fit, squared_error

from perf.probes.input_pipeline import one_thread
from perf.probes.parts import Tally
from perf.probes.trace import Event, capture
from perf.probes.work import aten_ops, call_counts, dispatched_ops
from perf.record import Part, Signal
from perf.rfdetr_api import Stepper, build, fit
from perf.rfdetr_steering import steered
from perf.workload import make_samples

HERE = "tests/unit/test_probe_work.py"


def op(name: str, phase: str = "forward", category: str = "cpu_op") -> Event:
    return Event(category, name, start=0.0, duration=1.0, phase=phase)


def called(name: str, function: str, line: str, amount: int = 1) -> Tally:
    tally = Tally()
    tally.add(f"{name} in {function}", line, amount)
    return tally


def test_ops_are_split_by_the_function_that_called_them() -> None:
    signal = aten_ops([op("aten::add")] * 3, called("forward aten::add", "m.py:f", "m.py:7", 2))

    assert (signal.name, signal.kind, signal.value) == ("aten_ops", "count-volume", 3)
    assert signal.parts == [
        Part(name="forward aten::add in m.py:f", value=2, where=["m.py:7"]),
        Part(name="forward aten::add", value=1),
    ]


def test_an_op_wholly_attributed_leaves_no_rest() -> None:
    signal = aten_ops([op("aten::add")], called("forward aten::add", "m.py:f", "m.py:7"))

    assert [part.name for part in signal.parts] == ["forward aten::add in m.py:f"]


def test_more_calls_than_the_profiler_saw_are_not_made_up() -> None:
    signal = aten_ops([op("aten::add")], called("forward aten::add", "m.py:f", "m.py:7", 2))

    assert signal.value == 1
    assert signal.parts == [Part(name="forward aten::add", value=1)]


def test_only_aten_ops_are_counted() -> None:
    others = [op("torchvision::nms"), op("aten_kernel", category="kernel"), op("aten::add", category="user_annotation")]

    assert aten_ops(others, Tally()).value == 0


def parts_of(signal: Signal) -> dict[str, tuple[float, tuple[str, ...]]]:
    return {part.name: (part.value, tuple(part.where)) for part in signal.parts}


def changed(before: Signal, after: Signal) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Return the parts of ``after`` that differ from ``before``; none may have gone."""
    old, new = parts_of(before), parts_of(after)
    assert old.keys() <= new.keys()
    return {name: part for name, part in new.items() if part != old.get(name)}


def counted(stepper: Stepper) -> dict[str, Signal]:
    signals = [aten_ops(capture(stepper), dispatched_ops(stepper)), *call_counts(stepper)]
    return {signal.name: signal for signal in signals}


class Loss:
    """A criterion whose extra work a test switches on between two counts of the same step."""

    def __init__(self, extra: Callable[[Any], Any]) -> None:
        self.extra = extra
        self.on = False

    def __call__(self, outputs: Any, targets: Any) -> Any:
        if self.on:
            self.extra(outputs)
        return squared_error(outputs, targets)


def before_and_after(extra: Callable[[Any], Any]) -> tuple[dict[str, Signal], dict[str, Signal]]:
    loss = Loss(extra)

    def body(stepper: Stepper) -> list[dict[str, Signal]]:
        counted(stepper)  # thrown away, as a run warms up
        found = []
        for on in (False, True):
            loss.on = on
            found.append(counted(stepper))
        return found

    before, after = in_fit(body, loss)
    return before, after


def test_an_extra_op_is_one_changed_part_with_its_line() -> None:
    def extra(outputs: Any) -> None:
        outputs.erf()

    before, after = before_and_after(extra)

    name = f"criterion aten::erf in {HERE}:test_an_extra_op_is_one_changed_part_with_its_line.<locals>.extra"
    assert changed(before["aten_ops"], after["aten_ops"]) == {name: (1, (first_line(extra, 1),))}
    assert after["aten_ops"].value == before["aten_ops"].value + 1


def nothing() -> None:
    pass


def test_an_extra_python_call_is_one_changed_part_with_the_line_that_called() -> None:
    def extra(outputs: Any) -> None:
        nothing()
        nothing()

    before, after = before_and_after(extra)

    found = changed(before["python_calls"], after["python_calls"])
    lines = (first_line(extra, 1), first_line(extra, 2))
    assert found.pop(f"criterion {HERE}:nothing") == (2, lines)
    assert [name.rpartition(".")[2] for name in found] == ["extra"]  # the call that made the two
    assert after["python_calls"].value == before["python_calls"].value + 3
    assert parts_of(after["aten_ops"]) == parts_of(before["aten_ops"])


def test_an_extra_c_call_is_one_changed_part() -> None:
    def extra(outputs: Any) -> None:
        len("x")

    before, after = before_and_after(extra)

    old = parts_of(before["c_calls"]).get("criterion builtins.len", (0, ()))[0]
    assert changed(before["c_calls"], after["c_calls"]) == {"criterion builtins.len": (old + 1, ())}


@pytest.fixture
def _collector() -> Iterator[None]:
    yield
    gc.enable()
    sys.setprofile(None)


@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_counting_calls_leaves_collector_and_profile_as_they_were(collecting: bool, fails: bool) -> None:
    during: list[bool] = []

    def criterion(outputs: Any, targets: Any) -> Any:
        during.append(gc.isenabled())
        if fails and len(during) == 1:
            msg = "no loss"
            raise ValueError(msg)
        return squared_error(outputs, targets)

    def profile(*_: Any) -> None:
        pass

    def body(stepper: Stepper) -> tuple[bool, Any]:
        (gc.enable if collecting else gc.disable)()
        sys.setprofile(profile)
        try:
            call_counts(stepper)
        except ValueError:
            assert fails
        return gc.isenabled(), sys.getprofile()

    assert in_fit(body, criterion) == (collecting, profile)
    assert during[0] is False


@pytest.fixture(scope="module")
def rfdetr_twice(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Signal]]:
    """The counts of two steps of the real reduced Nano."""
    found: list[dict[str, Signal]] = []

    def body(stepper: Stepper) -> None:
        found.extend([counted(stepper) for _ in range(3)][1:])

    with one_thread(), steered(CPU_EAGER):
        built = build(CPU_EAGER, tmp_path_factory.mktemp("rfdetr"))
        fit(built, make_samples(CPU_EAGER, built.resolution), body)
    return found


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["aten_ops", "python_calls", "c_calls"])
def test_two_steps_of_rfdetr_count_the_same(rfdetr_twice: list[dict[str, Signal]], name: str) -> None:
    first, second = (counts[name] for counts in rfdetr_twice)

    assert first.value == second.value > 10_000
    assert first.parts == second.parts
    assert sum(part.value for part in first.parts) == first.value


@pytest.mark.filterwarnings("default")
def test_rfdetrs_ops_and_calls_are_named_by_its_own_lines(rfdetr_twice: list[dict[str, Signal]]) -> None:
    for name in ("aten_ops", "python_calls"):
        lines = [line for part in rfdetr_twice[0][name].parts for line in part.where]
        assert any(line.startswith("rfdetr/models/") for line in lines)
        assert not any(Path(line).is_absolute() for line in lines)
