"""What the suite's tests are parametrized over, and the fixtures that they share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perf.session import PLACE, STASH, Session

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have every report of the suite say which test of which case it is of."""
    for item in items:
        if item.path.parent == HERE and isinstance(item, pytest.Function):
            case: Any = item.callspec.params["case"]
            item.user_properties.append((PLACE, (item.originalname, case.id)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    session = metafunc.config.stash[STASH]
    if "run" in metafunc.fixturenames:
        pairs = [(case, run) for case in session.cases for run in range(session.runs_of(case))]
        metafunc.parametrize(("case", "run"), [_param(case, f"{case.id}-run{run}", run) for case, run in pairs])
    elif "case" in metafunc.fixturenames:
        metafunc.parametrize("case", [_param(case, case.id) for case in session.cases])


def _param(case: Any, name: str, *more: Any) -> Any:
    return pytest.param(case, *more, id=name, marks=[pytest.mark.gpu] if case.lane == "gpu" else [])


@pytest.fixture
def perf_session(request: pytest.FixtureRequest) -> Session:
    """The session that the test belongs to."""
    return request.config.stash[STASH]


@pytest.fixture(scope="session")
def trainings() -> dict[Any, Any]:
    """Which seeds failed, by case, of the cases that are trained already."""
    return {}


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that shows one line of progress although pytest captures output."""
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        if terminal is None:  # an xdist worker has no terminal
            return
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(line)

    return show
