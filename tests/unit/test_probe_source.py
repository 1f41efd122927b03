from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from perf.probes import source
from perf.probes.source import function_of, is_user_code, line_of, short_path, user_frames, without_line

ROOT = Path(__file__).resolve().parents[2]
HERE = "tests/unit/test_probe_source.py"


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (short_path, is_user_code):
        cached.cache_clear()


def rfdetr_file(name: str) -> str:
    rfdetr = pytest.importorskip("rfdetr")
    return str(Path(rfdetr.__file__).parent / name)


def test_rfdetr_files_are_named_from_the_package_on() -> None:
    name = rfdetr_file("models/transformer.py")

    assert short_path(name) == "rfdetr/models/transformer.py"
    assert is_user_code(name)


def test_a_checkout_of_rfdetr_is_named_as_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path("/home/me/rfdetr/src/rfdetr")
    monkeypatch.setattr(source, "_rfdetr_root", lambda: checkout)

    assert short_path(str(checkout / "models/lwdetr.py")) == "rfdetr/models/lwdetr.py"
    assert is_user_code(str(checkout / "models/lwdetr.py"))


def test_without_rfdetr_its_absence_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_rfdetr_root", lambda: None)

    assert short_path("/elsewhere/models/lwdetr.py") == "lwdetr.py"


@pytest.mark.parametrize(
    ("filename", "short"),
    [
        ("...on3.11/site-packages/rfdetr/models/a.py", "rfdetr/models/a.py"),
        (pytest.__file__, "pytest/__init__.py"),
        (json.__file__, "json/__init__.py"),
        (__file__, HERE),
        ("/somewhere/else/patch.py", "patch.py"),
        ("<eval_with_key>.3", "<eval_with_key>.3"),
    ],
)
def test_names_are_free_of_what_differs_between_machines(filename: str, short: str) -> None:
    assert short_path(filename) == short


@pytest.mark.parametrize(
    ("filename", "users"),
    [
        (__file__, True),
        ("/somewhere/else/patch.py", True),
        (pytest.__file__, False),
        (json.__file__, False),
        (str(ROOT / "perf" / "run.py"), False),
        (str(ROOT / "tests" / "suite" / "one_run.py"), False),
        ("<string>", False),
        ("<eval_with_key>.3", False),
    ],
)
def test_user_code_is_neither_a_librarys_nor_the_suites(filename: str, users: bool) -> None:
    assert is_user_code(filename) is users


class Deep:
    def call(self) -> FrameType:
        return sys._getframe()


def test_user_frames_come_innermost_first_and_leave_libraries_out() -> None:
    found: list[FrameType] = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: found.extend(user_frames(sys._getframe())))

    names = [function_of(frame) for frame in found]
    assert names[:2] == [
        f"{HERE}:test_user_frames_come_innermost_first_and_leave_libraries_out.<locals>.<lambda>",
        f"{HERE}:test_user_frames_come_innermost_first_and_leave_libraries_out",
    ]
    assert not any(name.startswith(("contextlib", "_pytest", "pluggy")) for name in names)
    assert list(user_frames(None)) == []


def test_a_frame_is_named_by_function_and_by_line() -> None:
    frame = Deep().call()

    assert function_of(frame) == f"{HERE}:Deep.call"
    assert line_of(frame) == f"{HERE}:{Deep.call.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("forward", "forward"),
        ("torch_dynamo_resume_in_forward_at_363", "forward (resumed)"),
        ("torch_dynamo_resume_in_gen_at_sea_at_9", "gen_at_sea (resumed)"),
    ],
)
def test_a_resumed_function_is_named_without_its_line(function: str, named: str) -> None:
    assert without_line(function) == named


def test_a_resumed_method_loses_its_line_number_and_keeps_its_class() -> None:
    assert without_line("Joiner.torch_dynamo_resume_in_forward_at_26") == "Joiner.forward (resumed)"


@pytest.mark.parametrize("name", ["{}.kernel", "{}", "{}.py"])
def test_a_module_that_inductor_made_has_the_same_name_everywhere(name: str) -> None:
    hashed = "c77rhe3cq2advklcmvooaujmbicmnrg75ylxfzlrq4uhbx463cx4"

    assert source.without_hash(name.format(hashed)) == name.format("inductor")
    assert short_path(f"/elsewhere/torchinductor/77/{hashed}.py") == "inductor.py"
