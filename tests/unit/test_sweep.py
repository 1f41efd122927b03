"""Sweeps whose cells are made up by a stand-in for the process; tests/e2e/test_sweep_session.py has real ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from factories import H200, a_record, a_signal, an_environment
from filelock import FileLock

from perf import sweep as sweeps
from perf.case import Case, Lane
from perf.cli import main
from perf.launch import RunFailed
from perf.levers import Machine
from perf.record import Record, write_record
from perf.run_order import Order
from perf.sweep import Asked, Sweep, measure
from perf.sweep_files import read_sweep, store
from perf.sweep_plan import Grid

CPU = Machine("cpu", (1, 11))
GRID = Grid(configs=("nano",), lane="cpu", precisions=("fp32",), levers=("eager", "graphs"), batch_sizes=(1, 2, 4, 8))
TOO_LARGE = "Traceback (most recent call last):\nRuntimeError: you tried to allocate 2097152 bytes. Error code 12\n"


def cell_record(order: Order, seconds: float = 10, **changes: object) -> Record:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    rate = a_signal("images_per_second", 10.0 * order.case.batch_size, "wall", "images/s", direction="higher")
    values: dict[str, object] = {
        "session": order.session,
        "started": started,
        "finished": started + timedelta(seconds=seconds),
        "precision": "32-true",
    }
    return a_record([rate, a_signal("first_step", 1, "info", "s")], order.case, order.run, **(values | changes))


class Cells:
    """A stand-in for the process of a cell: leaves a record, runs out of memory, raises, or is interrupted."""

    def __init__(
        self, out_of_memory: int = 1000, interrupted_at: int = -1, raising: frozenset[int] = frozenset()
    ) -> None:
        self.out_of_memory, self.interrupted_at, self.raising = out_of_memory, interrupted_at, raising
        self.measured: list[int] = []

    def __call__(self, order: Order, tell: Callable[[str], None], timeout: float) -> Record:
        batch = order.case.batch_size
        if len(self.measured) == self.interrupted_at:
            write_record(order.record_path, cell_record(order, status="running", finished=None))
            raise KeyboardInterrupt
        self.measured.append(batch)
        error = TOO_LARGE if batch >= self.out_of_memory else "ValueError: no" if batch in self.raising else None
        record = cell_record(order, status="failed" if error else "finished", error=error)
        write_record(order.record_path, record)
        if error:
            raise RunFailed(error, record)
        return record


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cells], Cells]:
    def used(cells: Cells) -> Cells:
        monkeypatch.setattr(sweeps, "run_in_fresh_process", cells)
        return cells

    return used


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up records are taken to be of this machine and its software."""
    monkeypatch.setattr("perf.environment.machine", lambda _: ("cpu", "EPYC x8"))
    monkeypatch.setattr("perf.environment.changed_since", lambda _: "")


def a_sweep(folder: Path, told: list[str] | None = None, again: bool = False, **asked: object) -> Sweep:
    values: dict[str, object] = {"grid": GRID} | asked
    return Sweep(
        Asked.model_validate(values), CPU, folder / "s", (told if told is not None else []).append, again=again
    )


def test_memory_that_runs_out_is_a_cell_and_the_next_series_goes_on(
    use: Callable[[Cells], Cells], tmp_path: Path
) -> None:
    done, told = use(Cells(out_of_memory=4)), list[str]()
    grid = GRID.model_copy(update={"levers": ("eager", "compile")})

    cells = measure(a_sweep(tmp_path, told, grid=grid))

    assert done.measured == [1, 2, 4, 1, 2, 4]
    outcomes = [(cell.lever, cell.outcome) for cell in cells if cell.case.batch_size == 4]
    assert [one for one in outcomes if one[0] == "eager"] == [("eager", "out of memory")]
    assert cells[2].asked == 2 * 2**20
    assert "  out of memory (asked for 2 MiB): RuntimeError: you tried to allocate 2097152 bytes. Error code 12" in told


@pytest.mark.parametrize("at", range(4))
def test_killed_at_any_cell_a_sweep_loses_that_cell_only(
    use: Callable[[Cells], Cells], tmp_path: Path, at: int
) -> None:
    first = use(Cells(interrupted_at=at))
    with pytest.raises(KeyboardInterrupt):
        measure(a_sweep(tmp_path))
    second = use(Cells())

    cells = measure(a_sweep(tmp_path))

    assert first.measured + second.measured == [1, 2, 4, 8]
    assert [cell.outcome for cell in cells] == ["measured"] * 4


def test_what_raised_is_kept_unless_it_is_asked_for_again(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    use(Cells(raising=frozenset({2}), out_of_memory=8))
    assert [cell.outcome for cell in measure(a_sweep(tmp_path))] == ["measured", "raised", "measured", "out of memory"]

    kept = use(Cells())
    measure(a_sweep(tmp_path))
    assert kept.measured == []
    anew = use(Cells())
    measure(a_sweep(tmp_path, again=True))
    assert anew.measured == [2]


def test_several_runs_a_cell_stop_at_one_that_failed(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    done = use(Cells(out_of_memory=4))

    cells = measure(a_sweep(tmp_path, runs=3))

    assert done.measured == [1, 1, 1, 2, 2, 2, 4]
    assert [cell.runs for cell in cells] == [3, 3, 0]


def test_a_cell_that_is_interrupted_from_outside_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = list[Case]()

    def interrupted(order: Order, *_: object) -> Record:
        tried.append(order.case)
        record = cell_record(order, status="failed", error="Traceback (most recent call last):\nKeyboardInterrupt\n")
        msg = "interrupted"
        raise RunFailed(msg, record)

    monkeypatch.setattr(sweeps, "run_in_fresh_process", interrupted)

    cells = measure(a_sweep(tmp_path))

    assert {(cell.outcome, cell.detail) for cell in cells} == {("not run", "it was interrupted from outside")}
    assert len(tried) == len(cells) == 4


def test_a_broken_environment_ends_the_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> Record:
        msg = "exit code 1 before a record was begun; log: ModuleNotFoundError: torch"
        raise RunFailed(msg)

    monkeypatch.setattr(sweeps, "run_in_fresh_process", broken)

    with pytest.raises(RunFailed, match="before a record was begun"):
        measure(a_sweep(tmp_path))


def test_a_budget_too_short_for_one_cell_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--budget 5s is too short for one cell: the shortest takes about 25 s"):
        measure(a_sweep(tmp_path, budget=5))


def test_a_budget_measures_what_fits_and_says_what_did_not(
    use: Callable[[Cells], Cells], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = iter(range(0, 100_000, 20))  # each cell takes 20 s
    monkeypatch.setattr("perf.sweep.time.monotonic", lambda: next(clock))
    done = use(Cells())

    cells = measure(a_sweep(tmp_path, budget=50))

    assert done.measured == [1, 2]
    left_out = [(cell.case.batch_size, cell.detail) for cell in cells if cell.outcome == "not run"]
    assert left_out == [(batch, "takes about 15 s, 10 s of the budget left") for batch in (4, 8)]


def test_a_cell_that_outlasts_the_budget_is_stopped_and_measured_when_the_sweep_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, use: Callable[[Cells], Cells]
) -> None:
    limits = list[float]()

    def endless(order: Order, _: object, timeout: float) -> Record:
        limits.append(timeout)
        record = cell_record(order, status="failed", error=f"no end after {timeout:.0f} s (--run-timeout); stopped")
        write_record(order.record_path, record)
        raise RunFailed(str(record.error), record)

    monkeypatch.setattr(sweeps, "run_in_fresh_process", endless)
    monkeypatch.setattr("perf.sweep.time.monotonic", lambda: 0.0)
    grid = GRID.model_copy(update={"batch_sizes": (1,)})

    [cell] = measure(a_sweep(tmp_path, grid=grid, budget=40))
    assert (cell.outcome, cell.detail) == ("not run", "no end after 100 s, longer than the budget had")
    assert limits == [100]
    again = use(Cells())
    assert [cell.outcome for cell in measure(a_sweep(tmp_path, grid=grid))] == ["measured"]
    assert again.measured == [1]


def test_a_run_timeout_of_its_own_is_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def endless(order: Order, *_: object) -> Record:
        record = cell_record(order, status="failed", error="no end after 9 s (--run-timeout); stopped")
        raise RunFailed(str(record.error), record)

    monkeypatch.setattr(sweeps, "run_in_fresh_process", endless)
    sweep = a_sweep(tmp_path, grid=GRID.model_copy(update={"batch_sizes": (1,)}), budget=400)

    assert [cell.outcome for cell in measure(sweep._replace(timeout=9))] == ["raised"]


def test_a_budget_too_short_for_the_first_cell_measures_a_shorter_one(
    use: Callable[[Cells], Cells], tmp_path: Path
) -> None:
    use(Cells())
    grid = GRID.model_copy(update={"levers": ("compile", "eager"), "batch_sizes": (1,)})

    cells = measure(a_sweep(tmp_path, grid=grid, budget=30))

    assert [(cell.lever, cell.outcome) for cell in cells] == [("eager", "measured"), ("compile", "not run")]


def test_what_the_budget_left_out_is_told_wherever_it_came_to_it(
    use: Callable[[Cells], Cells], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = iter(range(0, 100_000, 20))
    monkeypatch.setattr("perf.sweep.time.monotonic", lambda: next(clock))
    use(Cells())
    grid = GRID.model_copy(update={"levers": ("eager", "compile"), "batch_sizes": (1, 2, 4)})

    cells = measure(a_sweep(tmp_path, grid=grid, budget=55))

    # Compile comes at the batch where eager saturates, which the plan did not know when it was told.
    assert not any("-" in cell.detail for cell in cells)  # a budget that was overdrawn has nothing left
    assert ("compile", 4, "not run") in [(cell.lever, cell.case.batch_size, cell.outcome) for cell in cells]


def test_a_sweep_that_goes_on_with_another_grid_is_refused(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))

    with pytest.raises(ValueError, match="asked for batch sizes 1, 2, 4, 8; start a new one"):
        measure(a_sweep(tmp_path, grid=GRID.model_copy(update={"batch_sizes": (1,)})))
    with pytest.raises(ValueError, match="asked for runs 1; start a new one"):
        measure(a_sweep(tmp_path, runs=2))


def test_a_sweep_that_measured_nothing_yet_may_be_asked_for_something_else(
    use: Callable[[Cells], Cells], tmp_path: Path
) -> None:
    use(Cells())
    with pytest.raises(ValueError, match="too short"):
        measure(a_sweep(tmp_path, budget=5))

    assert len(measure(a_sweep(tmp_path, grid=GRID.model_copy(update={"batch_sizes": (1,)})))) == 1


@pytest.mark.parametrize(
    ("name", "found", "told"),
    [
        ("machine", ("nvidia-l4", "EPYC x8"), "cpu, EPYC x8, now nvidia-l4, EPYC x8"),
        ("machine", ("cpu", "Xeon x8"), "cpu, EPYC x8, now cpu, Xeon x8"),
        ("changed_since", "torch 2.13.0, now 2.14.1", "torch 2.13.0, now 2.14.1"),
    ],
)
def test_a_sweep_does_not_go_on_where_its_cells_would_not_compare(
    use: Callable[[Cells], Cells], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, found: object, told: str
) -> None:
    use(Cells(interrupted_at=2))
    with pytest.raises(KeyboardInterrupt):
        measure(a_sweep(tmp_path))
    monkeypatch.setattr(f"perf.environment.{name}", lambda _: found)

    with pytest.raises(ValueError, match=f"it was measured with {told}; start a new one"):
        measure(a_sweep(tmp_path))


def test_two_processes_do_not_measure_one_sweep(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))

    with (
        FileLock(tmp_path / "s" / "sweep.lock"),
        pytest.raises(ValueError, match="another process measures this sweep"),
    ):
        measure(a_sweep(tmp_path))


def test_records_that_are_no_cells_are_left_alone(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))
    step = Order(Case(config="nano", lane="cpu", batch_size=2), "s", 0, tmp_path / "s")
    write_record(step.record_path, a_record([], step.case, status="failed", error="ValueError: no"))
    half = tmp_path / "s" / "nano-cpu-b4-fp32-throughput" / "run-0.record.json"
    half.write_text(half.read_text()[:300])
    anew = use(Cells())

    assert len(measure(a_sweep(tmp_path, again=True))) == 4
    assert anew.measured == [4]


def test_what_is_stored_reads_as_what_was_measured(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    use(Cells(out_of_memory=8))
    measure(a_sweep(tmp_path))

    found = read_sweep(tmp_path / "s")
    store(tmp_path / "stored.json", found)
    again = read_sweep(tmp_path / "stored.json")

    assert again == found
    assert [(c.case.batch_size, c.outcome) for c in again.found] == [
        (1, "measured"),
        (2, "measured"),
        (4, "measured"),
        (8, "out of memory"),
    ]
    assert list(again.unsupported.values()) == ["CUDA graphs need an NVIDIA GPU"]


def test_records_of_two_gpus_or_two_releases_are_refused(
    use: Callable[[Cells], Cells], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = Case(config="nano", precision="bf16", measure="throughput")
    for device in ("nvidia-h200", "nvidia-l4"):
        order = Order(gpu, device, 0, tmp_path / "two" / device)
        found = H200.model_copy(update={"device": device})
        write_record(order.record_path, cell_record(order, environment=found, precision="bf16-mixed"))

    assert main(["recommend", str(tmp_path / "two")]) == 2
    assert "pass --device nvidia-h200 or --device nvidia-l4" in capsys.readouterr().err
    assert main(["recommend", str(tmp_path / "two"), "--device", "nvidia-l4"]) == 0

    for release, batch in (("1.11.1", 1), ("1.11.2", 2)):
        case = Case(config="nano", lane="cpu", batch_size=batch, precision="fp32", measure="throughput")
        order = Order(case, release, 0, tmp_path / "releases" / release)
        write_record(order.record_path, cell_record(order, environment=an_environment(rfdetr=release)))
    assert main(["train-args", str(tmp_path / "releases")]) == 2
    assert "were measured with rfdetr 1.11.1 and 1.11.2: give one sweep" in capsys.readouterr().err


def test_a_stored_sweep_with_a_cell_that_is_none_is_named(
    use: Callable[[Cells], Cells], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))
    stored = tmp_path / "stored.json"
    store(stored, read_sweep(tmp_path / "s"))
    stored.write_text(stored.read_text().replace('"measured"', '"mesured"'))

    assert main(["train-args", str(tmp_path / "s")]) == 0
    assert "measured as a reduced model: this is no advice" in capsys.readouterr().err
    assert main(["recommend", str(stored)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rfdetr-perf: {stored}: ")
    assert "'measured', 'fell back'" in line
    (tmp_path / "empty").mkdir()
    assert main(["recommend", str(tmp_path / "empty")]) == 2
    assert "no record below it; measure first: rfdetr-perf sweep" in capsys.readouterr().err


def test_what_is_stored_has_the_loader_that_was_given(use: Callable[[Cells], Cells], tmp_path: Path) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))
    write_record(tmp_path / "input" / "run-0.record.json", loader_record("cpu"))

    told = ["--loader", str(tmp_path / "input"), "--store", str(tmp_path / "stored.json")]
    assert main(["recommend", str(tmp_path / "s"), *told]) == 0

    assert read_sweep(tmp_path / "stored.json").loader == {"nano": {2: 50}}


def loader_record(lane: Lane, cpu_model: str = "EPYC") -> Record:
    signals = [a_signal("loader_rate_w2", 50, "wall", "samples/s")]
    return a_record(
        signals,
        Case(config="nano", lane=lane, batch_size=2, measure="input"),
        environment=an_environment(cpu_model=cpu_model),
    )


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (a_record(), "no record there measured the loader; measure it first"),
        # The cpu lane reads smaller images.
        (loader_record("gpu"), "with EPYC x8, gpu lane and EPYC x8, cpu lane: the one says nothing of the other"),
        (
            loader_record("cpu", "Xeon"),
            "with Xeon x8, cpu lane and EPYC x8, cpu lane: the one says nothing of the other",
        ),
    ],
)
def test_a_loader_of_elsewhere_or_none_is_refused(
    use: Callable[[Cells], Cells], tmp_path: Path, capsys: pytest.CaptureFixture[str], record: Record, told: str
) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))
    write_record(tmp_path / "input" / "run-0.record.json", record)

    assert main(["recommend", str(tmp_path / "s"), "--loader", str(tmp_path / "input")]) == 2
    assert told in capsys.readouterr().err


def test_a_sweep_is_held_against_one_of_the_same_machine_only(
    use: Callable[[Cells], Cells], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Cells())
    measure(a_sweep(tmp_path))
    found = read_sweep(tmp_path / "s")
    store(tmp_path / "same.json", found)
    other = found.environment.model_copy(update={"cpu_model": "Xeon"})
    store(tmp_path / "other.json", found.model_copy(update={"environment": other}))

    assert main(["recommend", str(tmp_path / "s"), "--against", str(tmp_path / "same.json")]) == 0
    assert "100.0 % of the best rate" in capsys.readouterr().out
    assert main(["recommend", str(tmp_path / "s"), "--against", str(tmp_path / "other.json")]) == 2
    assert "were measured with cpu_model EPYC and Xeon: nothing can be held" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--check"], "--check takes --out FILE"), (["--against", "y", "--out", "z.md"], "--against and --out are two")],
)
def test_a_check_that_would_not_be_made_is_refused(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "x", *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--config", "nono"], "--config nono: unknown; known: nano"),
        (["--lever", "eager,turbo"], "--lever turbo: unknown; known: eager"),
        (["--precision", "int8"], "--precision int8: unknown; known: bf16"),
        (["--resume", "gone"], "--resume gone: no such sweep"),
        (["--lever", "graphs"], "nothing to measure\nunsupported here: nano fp32 graphs: CUDA graphs need"),
        (["--budget", "5s"], "--budget 5s is too short for one cell"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rfdetr")

    assert main(["sweep", "--lane", "cpu", "--records", str(tmp_path), *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lever", "--precision"])
def test_an_empty_list_is_not_all(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["sweep", option, ""])
    assert f"argument {option}: '' names none" in capsys.readouterr().err


def test_a_device_too_small_for_batch_1_is_a_sentence_and_exit_code_3(
    use: Callable[[Cells], Cells], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rfdetr")
    use(Cells(out_of_memory=1))

    assert main(["sweep", "--lane", "cpu", "--lever", "eager", "--records", str(tmp_path), "--session", "s"]) == 3

    said = capsys.readouterr()
    assert said.out.startswith("plan: 3 cells at most\n")
    assert (
        "too little memory here for nano-cpu-b1-fp32-throughput, at batch 1 already (it asked for 2 MiB more)"
        in said.err
    )
    assert main(["train-args", str(tmp_path / "s")]) == 3
