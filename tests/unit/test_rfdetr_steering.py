"""The real torch.compile and the real rfdetr, steered."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from perf.case import Case
from perf.rfdetr_api import BuiltModule, build_module
from perf.rfdetr_steering import steered

if importlib.util.find_spec("rfdetr") is None:
    pytest.skip("needs rfdetr", allow_module_level=True)

# Warnings of torch, Lightning and rfdetr are theirs to settle.
pytestmark = pytest.mark.filterwarnings("default")


def a_case(**changes: Any) -> Case:
    return Case(config="nano", lane="cpu", batch_size=1, **changes)


def steered_module(case: Case, folder: Path) -> BuiltModule:
    """Return the module of ``case`` with every adaptation that was told."""
    with steered(case) as adaptations:
        built = build_module(case, folder)
        return BuiltModule(**vars(built) | {"adaptations": [*adaptations, *built.adaptations]})


def test_the_compile_gate_opens_on_a_cpu_and_says_so(tmp_path: Path) -> None:
    import rfdetr.config
    import torch

    before = torch.compile, rfdetr.config.DEVICE
    built = steered_module(a_case(compile=True, backend="eager"), tmp_path)

    assert isinstance(built.module.model, torch._dynamo.OptimizedModule)
    assert built.adaptations == [
        "rfdetr.config.DEVICE set to 'cuda', so that rfdetr's compile gate opens on a CPU",
        "torch.compile called with backend='eager' and without Inductor's options",
    ]
    assert (torch.compile, rfdetr.config.DEVICE) == before


def test_nothing_is_compiled_unless_the_case_asks(tmp_path: Path) -> None:
    built = steered_module(a_case(), tmp_path)

    assert type(built.module.model).__name__ == "LWDETR"
    assert built.adaptations == []


def compile_arguments(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what ``torch.compile`` really gets for the model of ``case``."""
    seen: list[dict[str, Any]] = []
    real = torch.compile

    def watched(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.nn.Module):
            seen.append(kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", watched)
    with steered(case):
        build_module(case, folder)
    (found,) = seen
    return found


@pytest.mark.parametrize(("dynamic", "value"), [("on", True), ("off", False), ("auto", None)])
def test_dynamic_replaces_what_rfdetr_passes(
    dynamic: Any, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = a_case(compile=True, dynamic=dynamic)
    assert compile_arguments(case, tmp_path, monkeypatch)["dynamic"] is value


def test_a_mode_is_added_to_the_options_that_rfdetr_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_arguments(a_case(compile=True), tmp_path, monkeypatch)["options"]
    case = a_case(compile=True, mode="max-autotune-no-cudagraphs")
    found = compile_arguments(case, tmp_path, monkeypatch)["options"]
    assert found == {**plain, "max_autotune": True, "coordinate_descent_tuning": True}


def test_dynamo_settings_are_set_after_rfdetr_and_undone(tmp_path: Path) -> None:
    config = torch._dynamo.config
    before = (config.suppress_errors, config.capture_scalar_outputs)
    case = a_case(compile=True, suppress_errors=not before[0], capture_scalars=False)
    with steered(case) as adaptations:
        build_module(case, tmp_path)
        assert (config.suppress_errors, config.capture_scalar_outputs) == (not before[0], False)
    assert (config.suppress_errors, config.capture_scalar_outputs) == before
    assert "torch._dynamo.config.capture_scalar_outputs set to False" in adaptations
