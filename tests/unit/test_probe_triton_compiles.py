from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from offline_triton import KERNEL, assignments

from perf.probes.triton_compiles import compiles_noted


def test_a_number_of_targets_that_no_step_had_before_compiles_rfdetr_s_assignment_anew(tmp_path: Path) -> None:
    names = list[str]()
    with assignments(tmp_path) as assign, compiles_noted(names):
        for targets in (3, 4, 3, 4, 5):
            assign(targets)

    assert names == [KERNEL] * 3


def test_who_was_told_before_is_told_still_and_alone_afterwards(tmp_path: Path) -> None:
    from triton import knobs

    told, names = list[bool](), list[str]()
    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = lambda **said: told.append(said["already_compiled"])
    try:
        with assignments(tmp_path) as assign:
            with compiles_noted(names):
                assign(1)
            assign(2)
    finally:
        knobs.runtime.jit_post_compile_hook = before

    assert (told, names) == ([False, False], [KERNEL])


def test_triton_before_3_4_is_asked_where_it_told_then(monkeypatch: pytest.MonkeyPatch) -> None:
    jit = pytest.importorskip("triton.runtime.jit")
    monkeypatch.setitem(sys.modules, "triton.knobs", None)
    monkeypatch.delattr("triton.knobs")
    monkeypatch.setattr(jit.JITFunction, "compiled_hook", None, raising=False)
    names = list[str]()
    with compiles_noted(names):
        told: Any = jit.JITFunction.compiled_hook
        told(key="", repr="", fn=jit.JitFunctionInfo("module", "kernel", None), compile={}, is_manual_warmup=False)

    assert names == ["module.kernel"]
    assert jit.JITFunction.compiled_hook is None


@pytest.mark.parametrize("absent", [("triton.knobs", "triton.runtime.jit"), ("triton.knobs",)])
def test_without_triton_or_with_one_that_tells_nobody_there_is_nothing(
    absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton")
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(triton, "knobs")
    names = list[str]()
    with compiles_noted(names):
        pass

    assert names == []
