from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perf.matrix import DEFAULT_RFDETR, MATRIX

pytest.importorskip("nox")

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("perf", "ab", "calibrate", "sweep", "epoch", "investigate", "traceml")
OTHERS = ["tests", "journeys", "releases", "replay", "scoreboard", "lint", "ci"]
NAMES = [*(f"{kind}-{minor}" for kind in KINDS for minor in MATRIX), *OTHERS]


def listed() -> dict[str, str]:
    """Return each session's description by its name, as ``nox --list`` shows them."""
    lines = [line[2:] for line in nox("--list").stdout.splitlines() if line.startswith(("- ", "* "))]
    return dict(line.split(" -> ", 1) for line in lines)


def nox(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noxfile_under_test", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sessions_have_exactly_these_names_and_say_what_they_do() -> None:
    sessions = listed()

    assert list(sessions) == NAMES
    assert len(set(sessions.values())) == len(NAMES)
    assert all(sessions.values())


def test_the_listing_says_with_which_torch_rfdetr_does_not_work() -> None:
    marked = [name for name, description in listed().items() if "known not to work" in description]

    assert marked == [f"{kind}-{minor}" for kind in KINDS for minor in ("2.2", "2.3")]
    partly = [name for name, description in listed().items() if "; compiled cases fall back" in description]
    assert partly == [f"{kind}-{minor}" for kind in KINDS for minor in ("2.4", "2.5", "2.6")]
    some = [name for name, description in listed().items() if "; compiled segmentation cases" in description]
    assert some == [f"{kind}-2.11" for kind in KINDS]


# To nox, perf-2.1 and perf-2.10 are one name.
@pytest.mark.parametrize("name", ["perf-2.1", "perf-2.16", "perf-nightly"])
def test_an_unknown_minor_lists_the_known_ones_and_runs_nothing(name: str) -> None:
    done = nox("--session", name, "--install-only")

    assert done.returncode == 2
    assert f"unknown torch minor '{name[5:]}'; known: 2.2, 2.3, " in done.stderr
    assert "Running session" not in done.stderr


def test_every_way_to_name_a_session_is_checked(noxfile: ModuleType) -> None:
    assert noxfile.unknown_minor(["-sperf-2.1"]) == noxfile.unknown_minor(["--session=perf-2.1"]) is not None
    assert noxfile.unknown_minor(["-s", "tests", "perf-2.10", "--", "perf-2.1"]) is None


def test_rfdetr_is_taken_out_of_the_arguments_for_pytest(noxfile: ModuleType) -> None:
    assert noxfile.parse([], "--rfdetr") == ([DEFAULT_RFDETR], [])
    assert noxfile.parse(["-k", "nano", "--rfdetr", "1.11.1", "-x"], "--rfdetr") == (["1.11.1"], ["-k", "nano", "-x"])
    assert noxfile.parse(["--rfdetr=../rf-detr"], "--rfdetr") == (["../rf-detr"], [])


def test_base_and_head_are_taken_out_of_the_arguments_for_ab(noxfile: ModuleType) -> None:
    told = ["--head", "../rf-detr", "--head-patch", "fix.py"]
    assert noxfile.parse(told, "--base", "--head") == ([DEFAULT_RFDETR, "../rf-detr"], ["--head-patch", "fix.py"])


def test_torch_comes_from_the_index_unless_a_build_is_asked_for(noxfile: ModuleType) -> None:
    assert noxfile.torch_arguments("virtualenv", "", "") == []
    assert noxfile.torch_arguments("uv", "", "") == []


def test_uv_finds_a_build_of_torch_by_itself(noxfile: ModuleType) -> None:
    assert noxfile.torch_arguments("uv", "cpu", "") == ["--torch-backend", "cpu"]


@pytest.mark.parametrize("backend", ["uv", "virtualenv"])
def test_an_index_is_passed_on(noxfile: ModuleType, backend: str) -> None:
    expected = ["--index-url", "https://index.example/cpu"]

    assert noxfile.torch_arguments(backend, "cpu", "https://index.example/cpu") == expected


def test_pip_without_an_index_is_told_what_to_do(noxfile: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"RFDETR_PERF_TORCH=cpu: .* Set RFDETR_PERF_TORCH_INDEX .*install uv"):
        noxfile.torch_arguments("virtualenv", "cpu", "")
