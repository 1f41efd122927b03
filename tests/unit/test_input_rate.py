from __future__ import annotations

import pytest
from factories import a_signal

from perf.input_rate import fewest_workers, input_bound, loader_rates, rate_name


@pytest.mark.parametrize(
    ("loader", "step", "expected"),
    [
        (100.0, 200.0, True),
        (200.0, 100.0, False),
        (100.0, 105.0, None),
        (110.0, 100.0, None),
        (111.0, 100.0, False),
        (89.0, 100.0, True),
    ],
)
def test_input_binds_where_the_loader_is_clearly_slower(loader: float, step: float, expected: bool | None) -> None:
    assert input_bound(loader, step) is expected


def test_a_margin_of_its_own_decides() -> None:
    assert input_bound(100, 105, margin=0) is True
    assert input_bound(60, 100, margin=0.5) is None


@pytest.mark.parametrize(("loader", "step", "margin"), [(0, 1, 0.1), (1, -1, 0.1), (1, 1, 1), (1, 1, -0.1)])
def test_what_is_no_rate_is_refused(loader: float, step: float, margin: float) -> None:
    with pytest.raises(ValueError, match="rates must be above 0"):
        input_bound(loader, step, margin)


def test_rates_are_read_from_a_records_signals_by_workers() -> None:
    signals = [a_signal(rate_name(n), 10.0 * n + 1, "wall") for n in (16, 2, 0)]
    others = [a_signal("loader_rate_wide", 1, "wall"), a_signal("getitem", 1, "wall")]

    assert list(loader_rates([*signals, *others]).items()) == [(0, 1.0), (2, 21.0), (16, 161.0)]


@pytest.mark.parametrize(("step", "expected"), [(50, 0), (150, 4), (190, None), (500, None)])
def test_the_fewest_workers_that_are_enough(step: float, expected: int | None) -> None:
    assert fewest_workers({4: 200.0, 2: 120.0, 0: 60.0}, step) == expected
