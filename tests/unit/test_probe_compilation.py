from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from tiny import first_line

from perf.probes import compilation
from perf.record import Part, Signal

HERE = "tests/unit/test_probe_compilation.py"
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    compilation.reset()
    yield
    compilation.reset()


def signals(model: Any = None) -> dict[str, Signal]:
    return {signal.name: signal for signal in compilation.signals(model)}


def values() -> dict[str, float]:
    return {name: signal.value for name, signal in signals().items()}


def captured(function: Any, **options: Any) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, backend="eager", **options)
    return compiled


def plain(x: Any) -> Any:
    return x.sin() + 1


def breaking(x: Any) -> Any:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def scaled(x: Any, k: int) -> Any:
    return x * k


def test_nothing_compiled_is_nothing_counted() -> None:
    assert values() == {
        "frames": 0,
        "model_frames": 0,
        "frames_failed": 0,
        "graphs": 0,
        "graph_breaks": 0,
        "recompiles": 0,
    }
    assert compilation.progress() == ""


def test_a_function_without_breaks_is_one_frame_and_one_graph() -> None:
    captured(plain)(torch.ones(3))

    assert values() == {
        "frames": 1,
        "model_frames": 0,
        "frames_failed": 0,
        "graphs": 1,
        "graph_breaks": 0,
        "recompiles": 0,
    }
    assert compilation.progress().startswith("1 frames, 1 graphs so far")


def test_running_it_again_compiles_nothing_more() -> None:
    function = captured(plain)
    function(torch.ones(3))
    before = signals()
    function(torch.ones(3))

    assert signals() == before


def test_a_graph_break_has_its_reason_function_and_line() -> None:
    captured(breaking)(torch.ones(3))

    found = signals()
    [part] = found["graph_breaks"].parts
    assert part.name == f"Call to `torch._dynamo.graph_break()` in {HERE}:breaking"
    assert (part.value, part.where) == (1, [first_line(breaking, 2)])
    assert found["graphs"].value == 2
    assert found["frames_failed"].value == 0


def test_one_more_break_is_one_changed_part() -> None:
    def twice(x: Any) -> Any:
        y = breaking(x)
        print("a second break")
        return y.cos()

    def once(x: Any) -> Any:
        y = breaking(x)
        return y.cos()

    def breaks(function: Any) -> dict[str, Part]:
        compilation.reset()
        captured(function)(torch.ones(3))
        return {part.name: part for part in signals()["graph_breaks"].parts}

    before, after = breaks(once), breaks(twice)
    [added] = [part for name, part in after.items() if before.get(name) != part]
    assert before.keys() < after.keys()
    assert (added.value, added.where) == (1, [first_line(twice, 2)])


def test_a_recompile_by_a_number_names_the_guard_and_its_line() -> None:
    function = captured(scaled, dynamic=False)
    for k in (2, 3):
        function(torch.ones(3), k)

    recompiles = signals()["recompiles"]
    assert (recompiles.kind, recompiles.value) == ("count-strict", 1)
    assert recompiles.parts == [Part(name=f"{HERE}:scaled: k == 2", value=1, where=[first_line(scaled, 1)])]


def test_a_recompile_by_a_shape_names_the_tensor_and_both_sizes() -> None:
    function = captured(plain, dynamic=False)
    for length in (3, 4):
        function(torch.ones(length))

    [part] = signals()["recompiles"].parts
    assert part.name == f"{HERE}:plain: tensor 'x' size mismatch at index 0. expected 3, actual 4"
    assert part.where == [first_line(plain)]


@pytest.fixture
def _errors_suppressed() -> Iterator[None]:
    with torch._dynamo.config.patch(suppress_errors=True):
        yield


@pytest.mark.usefixtures("_errors_suppressed")
def test_a_frame_that_fails_is_counted_with_its_error_and_line() -> None:
    def refusing(graph: Any, inputs: Any) -> Any:
        msg = "refused"
        raise ValueError(msg)

    result = torch.compile(plain, backend=refusing)(torch.zeros(2))

    assert result.tolist() == [1, 1]  # silently eager
    failed = signals()["frames_failed"]
    [part] = failed.parts
    assert (failed.kind, failed.value, part.value) == ("count-strict", 1, 1)
    assert part.name == f"{HERE}:plain: BackendCompilerFailed: backend='refusing' raised: ValueError: refused"
    assert part.where[0] in (first_line(plain), first_line(plain, 1))
    assert signals()["recompiles"].value == 0


def test_reset_forgets_everything() -> None:
    function = captured(breaking)
    function(torch.ones(3))
    function(torch.ones(4))
    compilation.reset()

    assert set(values().values()) == {0}
    assert not any(signal.parts for signal in compilation.signals(None))


def entry(reason: str | None) -> Any:
    return SimpleNamespace(recompile_reason=reason, co_filename=__file__, co_firstlineno=3)


@pytest.mark.parametrize(
    ("reason", "guard", "line"),
    [
        ("0/0: k == 2  # return x * k  # elsewhere/m.py:8 in scaled", "k == 2", "m.py:8"),
        (
            "12/3: ___check_obj_id(L['self'], 140)  # a # b  # /x/m.py:1 in f",
            "___check_obj_id(L['self'], 140)",
            "m.py:1",
        ),
        ("0/0: len(x) == 3", "len(x) == 3", f"{HERE}:3"),
        ("0/0: k == 2\n0/1: k == 3", "k == 2", f"{HERE}:3"),
        (None, "guard not told by this torch", f"{HERE}:3"),
    ],
)
def test_a_guards_text_is_split_from_its_place(reason: str | None, guard: str, line: str) -> None:
    found, place = compilation._guard(entry(reason))

    assert found == guard
    assert place is not None
    assert place.endswith(line)


def test_texts_lose_addresses_and_all_but_their_first_line() -> None:
    assert compilation._first_line("  call <f at 0x7f12ab>\nmore") == "call <f>"
    assert compilation._first_line(None) == ""


class Doubling(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2


def test_only_the_models_own_forward_proves_that_the_model_compiled() -> None:
    model = torch.compile(Doubling(), backend="eager")
    loss = torch.compile(lambda x: x + 1, backend="eager")
    loss(torch.ones(2))
    assert signals(model)["model_frames"].value == 0
    model(torch.ones(2))
    assert signals(model)["model_frames"].value == 1
    assert signals(model)["frames"].value == 2
    assert signals(model._orig_mod)["model_frames"].value == 0


class Gated(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2 if self.training else x + 1


def test_evaluation_counts_what_it_compiles_anew_and_the_guard_that_it_failed() -> None:
    model = torch.compile(Gated(), backend="eager")
    model(torch.ones(2))
    compilation.forget()
    model.eval()
    model(torch.ones(2))
    found = {signal.name: signal for signal in compilation.evaluation_signals()}
    assert {name: signal.value for name, signal in found.items()} == {
        "eval_frames": 1,
        "eval_frames_failed": 0,
        "eval_graphs": 1,
        "eval_graph_breaks": 0,
        "eval_recompiles": 1,
    }
    assert "training" in found["eval_recompiles"].parts[0].name


def test_evaluation_that_training_has_compiled_compiles_nothing() -> None:
    model = torch.compile(Doubling(), backend="eager")
    model(torch.ones(2))
    compilation.forget()
    model(torch.ones(2))
    assert {signal.value for signal in compilation.evaluation_signals()} == {0}


def test_an_older_torch_notes_the_guards_by_the_number_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    code = Doubling.forward.__code__
    notes = ["4/0: scale == 6.283185307179586", "4/1: ___check_type_id(L['x'], 94547897528080)", "4/0: b"]
    monkeypatch.setattr("torch._dynamo.utils.guard_failures", {code: notes})

    def guard(size: int, name: str = code.co_filename) -> str:
        entry = SimpleNamespace(
            cache_size=size, co_filename=name, co_firstlineno=code.co_firstlineno, recompile_reason=None
        )
        return compilation._guard(entry)[0]

    assert [guard(1), guard(2)] == ["scale == 6.283185307179586", "___check_type_id(L['x'], ID)"]
    assert guard(3) == guard(1, "other.py") == "guard not told by this torch"
