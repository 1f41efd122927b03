from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import CPU_COMPILED, CPU_EAGER

from perf.run_order import MINOR_VARIABLE, Order


@pytest.fixture(autouse=True)
def _outside_nox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(MINOR_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)


def an_order(**changes: Any) -> Order:
    values: dict[str, Any] = {"case": CPU_EAGER, "session": "s1", "run": 2, "folder": Path("records/s1")}
    return Order(**(values | changes))


def test_the_files_of_a_run_lie_side_by_side() -> None:
    order = an_order()

    assert order.record_path == Path("records/s1/nano-cpu-b2/run-2.record.json")
    assert order.progress_path == Path("records/s1/nano-cpu-b2/run-2.progress.log")
    assert order.log_path == Path("records/s1/nano-cpu-b2/run-2.log")


def test_no_two_orders_share_a_file() -> None:
    orders = [an_order(), an_order(run=3), an_order(case=CPU_COMPILED), an_order(folder=Path("records/s2"))]
    paths = [path for order in orders for path in (order.record_path, order.progress_path, order.log_path)]

    assert len(set(paths)) == len(paths)


def test_the_command_makes_such_a_run_again() -> None:
    assert an_order().command == "pytest tests/suite --case nano-cpu-b2"


def test_the_command_goes_through_nox_where_the_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MINOR_VARIABLE, "2.14")

    assert an_order().command == "nox -s perf-2.14 -- --case nano-cpu-b2"


@pytest.mark.parametrize(
    ("patch", "told"),
    [("fix.py", "fix.py"), ("my fixes/a.py", "'my fixes/a.py'"), ("/elsewhere/fix.py", "/elsewhere/fix.py")],
)
def test_the_command_names_the_patch(patch: str, told: str) -> None:
    assert an_order(patch=Path(patch)).command.endswith(f" --patch {told}")


def test_a_patch_below_the_working_directory_is_named_relatively(tmp_path: Path) -> None:
    assert an_order(patch=tmp_path / "fixes" / "a.py").command.endswith(" --patch fixes/a.py")


def test_a_cold_case_has_an_inductor_cache_of_its_own_in_its_session(tmp_path: Path) -> None:
    order = Order(case=CPU_EAGER, session="s1", run=1, folder=tmp_path / "s1", cold=True, untimed=True)
    assert order.cache == tmp_path / "s1" / CPU_EAGER.id / "inductor"
    assert order.command.endswith(f" --case {CPU_EAGER.id} --untimed --cold")
