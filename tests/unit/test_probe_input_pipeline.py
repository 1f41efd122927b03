from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perf.case import Case
from perf.dataset import read_data_set
from perf.input_rate import rate_name
from perf.photos import Format, PhotoSpec, write_photos
from perf.probes import input_pipeline
from perf.probes.input_pipeline import (
    InputProbe,
    Item,
    Plan,
    arrivals,
    by_batch,
    chunk_rates,
    getitem_signal,
    last_line,
    loader_rate,
    read_samples,
    sample_calls,
    shares,
)
from perf.record import Signal
from perf.rfdetr_configs import shipped_resolutions
from perf.rfdetr_input import input_module

pytestmark = pytest.mark.filterwarnings("default")
CASE = Case(config="nano", lane="cpu", batch_size=2, workers=1, measure="input")
QUICK = Plan(own=4, each=2, warmup=1, seconds=0.05, limit=2.0, drain=1.0, batches=2)
SMALL = PhotoSpec(images=3, width=200, height=160)
FAST = PhotoSpec(images=2, width=320, height=240)


def items(*times: tuple[float, float, float]) -> list[Item]:
    return [Item(total, {"decode": decode, "resize": resize}) for total, decode, resize in times]


def test_a_sample_costs_the_median_and_its_parts_sum_to_it() -> None:
    signal = getitem_signal("getitem", items((10, 4, 3), (20, 8, 6), (30, 12, 9)))

    assert (signal.value, signal.samples, signal.kind, signal.unit) == (20, [10, 20, 30], "wall", "ms")
    assert {part.name: part.value for part in signal.parts} == pytest.approx({"decode": 8, "resize": 6, "other": 6})
    assert {one.name: one.value for one in shares(signal)} == pytest.approx({"decode_share": 40, "resize_share": 30})


def test_a_part_that_was_not_seen_is_in_other() -> None:
    signal = getitem_signal("getitem", [Item(10, {"resize": 4})])
    assert {part.name: part.value for part in signal.parts} == pytest.approx({"decode": 0, "resize": 4, "other": 6})


def test_augmentation_is_summed_by_whole_batches() -> None:
    each = [{"augment": 1.0, "normalize": 2.0}, {"normalize": 3.0}, {"augment": 4.0, "normalize": 2.0}]
    batches, parts = by_batch(each, batch_size=2)

    assert batches == [6.0]
    assert sum(part.value for part in parts) == pytest.approx(6)
    with pytest.raises(ValueError, match="augmented and normalized none of 2 samples"):
        by_batch([{"decode": 1.0}, {}], batch_size=1)


@pytest.mark.parametrize(
    ("times", "chunk", "expected"),
    [
        ([0, 1, 2, 3], 1, [4, 4, 4]),
        ([0, 1, 2, 4, 6, 10, 14], 1, [4, 2, 1]),
        ([0, 0, 2, 2, 4, 4, 6], 2, [4, 4, 4]),  # bursts of two
        ([0, 1], 4, [4]),
    ],
)
def test_a_rate_is_that_of_whole_bursts(times: list[float], chunk: int, expected: list[float]) -> None:
    assert chunk_rates(times, chunk, batch_size=4) == expected


def test_what_was_read_ahead_is_not_timed() -> None:
    taken: list[int] = []

    def batches() -> Iterator[int]:
        for number in itertools.count(1):
            taken.append(number)
            yield number

    times = arrivals(batches(), ahead=5, chunk=2, plan=Plan(seconds=0.0))
    assert len(taken) == 1 + 5 + len(times) - 1
    assert len(times) == 7  # three bursts of two, after their start
    assert times == sorted(times)


@pytest.mark.parametrize(("count", "said"), [(0, "yields no batch"), (1, "too few batches")])
def test_an_empty_loader_is_told(count: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        arrivals(iter(range(1, count + 1)), ahead=0, chunk=1, plan=Plan())


def test_an_error_of_a_worker_is_told_by_what_was_raised_there() -> None:
    told = "Caught OSError in DataLoader worker process 0.\nTraceback:\n  line\nOSError: image file is truncated"
    assert last_line(RuntimeError(told)) == "OSError: image file is truncated"
    assert last_line(KeyError("width")) == "KeyError: 'width'"


class _Half:
    """A data set whose odd samples cannot be read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index % 2:
            msg = f"picture {index} is truncated"
            raise OSError(msg)
        return index


def test_the_calls_of_a_sample_are_counted_by_function() -> None:
    python, native = sample_calls(_Reading())

    assert (python.name, python.kind, native.name) == ("input_python_calls", "count-volume", "input_c_calls")
    assert {part.name: part.value for part in native.parts}["input builtins.len"] == 3


class _Reading:
    """A data set that calls three functions a sample."""

    def __getitem__(self, index: int) -> list[int]:
        return [len("abc") for _ in range(3)]


def test_samples_that_cannot_be_read_cost_no_other() -> None:
    readings = read_samples({"half": _Half(), "whole": [0, 1, 2, 3]}, count=4, warmup=1)

    assert (len(readings["half"].items), len(readings["whole"].items)) == (2, 4)
    assert readings["half"].errors == ["OSError: picture 1 is truncated", "OSError: picture 3 is truncated"]


@pytest.fixture
def photos(tmp_path: Path) -> dict[Format, Path]:
    return write_photos(tmp_path, SMALL)


@pytest.fixture
def probe(photos: dict[Format, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InputProbe:
    monkeypatch.setattr(input_pipeline, "WORKERS", (0, 2))
    monkeypatch.setattr(input_pipeline, "LARGE", FAST)
    return InputProbe(CASE, read_data_set(photos["jpeg"]), photos, tmp_path, cpus=1, plan=QUICK)


def measured(probe: InputProbe) -> dict[str, Signal]:
    return {signal.name: signal for signals in probe.measure() for signal in signals}


def test_every_question_is_answered_in_the_real_rfdetr(probe: InputProbe) -> None:
    found = measured(probe)

    formats = [f"getitem_{kind}{suffix}" for suffix in ("", "_large") for kind in ("jpeg", "png", "bmp")]
    rates = [rate_name(workers) for workers in (0, 1, 2)]
    sides = [f"getitem_{side}" for side in shipped_resolutions()]
    own = ["getitem", "decode_share", "resize_share", "input_python_calls", "input_c_calls"]
    assert list(found) == [*formats, *sides, *own, *rates, "memory_per_worker", "augment_cpu"]
    for name in (*formats, *sides, "getitem"):
        signal = found[name]
        assert sum(part.value for part in signal.parts) == pytest.approx(signal.value)
        assert all(part.value > 0 for part in signal.parts)
    assert all(found[name].direction == "higher" and found[name].value > 1 for name in rates)
    assert len(found["memory_per_worker"].samples) == 1  # that of the case's own one worker
    assert 1 < found["memory_per_worker"].value < 1000
    assert multiprocessing.active_children() == []
    assert probe.notes[0].startswith("augmentation_backend='cpu' is ")
    assert probe.notes[1] == "loaders with 2 workers: more than this machine's 1 CPUs"
    assert probe.notes[2].startswith("augment_gpu not measured: ")
    assert "CUDA" in probe.notes[2]
    assert len(probe.notes) == 3


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (slice(100), "getitem_png not measured: ValueError: "),  # found before anything is read
        (slice(None), "getitem_png: 2 of 2 samples could not be read, the first: OSError: "),
    ],
)
def test_a_format_that_cannot_be_read_costs_no_other(
    probe: InputProbe, photos: dict[Format, Path], kept: slice, told: str
) -> None:
    for path in (photos["png"] / "train").glob("*.png"):
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2 : len(whole) // 2 + 200] = bytes(200)
        path.write_bytes(whole[kept])
    found = {signal.name for signal in probe._formats("", photos)}

    assert found == {"getitem_jpeg", "getitem_bmp"}
    [note] = probe.notes
    assert note.startswith(told)


def test_a_format_without_a_data_set_costs_no_other(probe: InputProbe, photos: dict[Format, Path]) -> None:
    (photos["bmp"] / "train" / "_annotations.coco.json").unlink()

    assert {signal.name for signal in probe._formats("", photos)} == {"getitem_jpeg", "getitem_png"}
    [note] = probe.notes
    assert note.startswith("getitem_bmp not measured: ValueError: ")


def test_data_of_which_nothing_can_be_read_is_an_error_and_costs_no_format(
    probe: InputProbe, photos: dict[Format, Path], tmp_path: Path
) -> None:
    [root] = write_photos(tmp_path / "own", SMALL, ["jpeg"]).values()
    probe.data = read_data_set(root)
    for path in (root / "train").glob("*.jpg"):
        path.write_bytes(b"no picture")
    found: list[str] = []

    def take() -> None:
        for signals in probe.measure():
            found.extend(signal.name for signal in signals)

    with pytest.raises(ValueError, match=r"rfdetr .* reads no sample of .*: UnidentifiedImageError"):
        take()
    assert {"getitem_jpeg", "getitem_png", "getitem_bmp_large", "getitem_384"} <= set(found)


def test_a_loader_whose_worker_dies_is_an_error_of_its_own(data_module: Any) -> None:
    data_module._dataset_train = _Dying()
    with pytest.raises(OSError, match="DataLoader worker process 0") as caught:
        loader_rate(data_module, 2, QUICK)

    assert last_line(caught.value) == "OSError: disk gone"
    assert multiprocessing.active_children() == []


class _Dying:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        msg = "disk gone"
        raise OSError(msg)


@pytest.fixture
def data_module(photos: dict[Format, Path], tmp_path: Path) -> Any:
    return input_module(CASE, read_data_set(photos["jpeg"]), tmp_path)
