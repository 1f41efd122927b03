"""Input: what a sample costs to read, decode and resize, and how many samples rfdetr's own loader yields.

No model is built and nothing trains. A sample is one ``__getitem__`` of rfdetr's training set, in this process and on
one thread, as a worker of the loader has it. Files lie in the page cache, unless they are a user's: no disk is timed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from perf.annotations import DataSet
from perf.case import Case
from perf.dataset import read_data_set
from perf.gates import INPUT_CALLS
from perf.input_rate import rate_name
from perf.photos import FORMATS, Format, PhotoSpec, write_photos
from perf.probes.phases import CurrentPhase
from perf.probes.work import calls_of, calls_signal
from perf.record import Part, Signal
from perf.rfdetr_configs import shipped_resolution, shipped_resolutions, task_of, version
from perf.rfdetr_input import (
    AUGMENTING,
    KORNIA,
    Clock,
    augmentation_of,
    clocked,
    device_augmentation,
    input_module,
    seed_draws,
    training_loader,
    training_set,
)

WORKERS = (0, 2, 4, 8, 16)
PHOTOS = PhotoSpec()
LARGE = PhotoSpec(images=6, width=1920, height=1080)
PARTS = ("decode", "resize")
GETITEM, MEMORY = "getitem", "memory_per_worker"


@dataclass(frozen=True)
class Plan:
    """How much is measured: samples of the case's own data and of each other set, after ``warmup`` of each.

    A loader is timed for ``seconds`` at least, and ``limit`` at most, once ``drain`` s have emptied what it read ahead.
    """

    own: int = 48
    each: int = 24
    warmup: int = 2
    seconds: float = 1.5
    limit: float = 6.0
    drain: float = 4.0
    batches: int = 8


@dataclass(frozen=True)
class Item:
    """What one sample took, in ms: all of it, and its parts by name."""

    total: float
    parts: Mapping[str, float]


@dataclass
class Reading:
    """The samples that were read of one data set, and what the others failed with."""

    items: list[Item] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass
class InputProbe:
    """Measures the input of ``case`` on ``data``, and rfdetr's input in general on the generated ``photos``.

    ``notes`` says what was not measured and why; ``cpus`` is how many this process may use.
    """

    case: Case
    data: DataSet
    photos: Mapping[Format, Path]
    scratch: Path
    cpus: int
    say: Callable[[str], None] = lambda _: None
    plan: Plan = Plan()
    notes: list[str] = field(default_factory=list)

    def measure(self) -> Iterator[list[Signal]]:
        """Yield the signals of one question after another.

        What needs the case's own data comes last: whatever is wrong with that costs no other signal.

        Raises:
            ValueError: rfdetr rejects the data, reads no sample of it, or its loader yields no batch.
        """
        if task_of(self.case).keypoints:
            self.notes.append("image formats and resolutions not measured: the generated photographs have no keypoints")
        else:
            yield self._formats("", self.photos)
            yield self._formats("_large", write_photos(self.scratch, LARGE))
            yield self._resolutions()
        self.say("reading samples of the data set")
        module = input_module(self.case, self.data, self.scratch)
        self.notes.append(f"augmentation_backend={self.case.augmentation!r} is {augmentation_of(module)} here")
        yield self._own(training_set(module))
        yield from self._loaders(module)
        yield self._augmented("augment_cpu", self._augment_cpu)
        yield self._augmented("augment_gpu", self._augment_gpu)

    def _formats(self, suffix: str, roots: Mapping[Format, Path]) -> list[Signal]:
        """Return what a sample costs by image format, at the resolution that the config is shipped with."""
        self.say(f"reading photographs by format{suffix.replace('_', ', ')}")
        resolution = shipped_resolution(self.case)
        return self._compare({f"{GETITEM}_{kind}{suffix}": (roots[kind], resolution) for kind in FORMATS})

    def _resolutions(self) -> list[Signal]:
        """Return what a JPEG costs by resolution, for each that a config is shipped with."""
        self.say("reading photographs by resolution")
        return self._compare({f"{GETITEM}_{side}": (self.photos["jpeg"], side) for side in shipped_resolutions()})

    def _compare(self, wanted: Mapping[str, tuple[Path, int]]) -> list[Signal]:
        sets: dict[str, Any] = {}
        for name, (root, resolution) in wanted.items():
            with self._noting(name):
                data = read_data_set(root)
                sets[name] = training_set(input_module(self.case, data, self.scratch, resolution=resolution))
        signals = []
        for name, reading in read_samples(sets, self.plan.each, self.plan.warmup).items():
            self._note_errors(name, reading)
            signals += [getitem_signal(name, reading.items)] if reading.items else []
        return signals

    def _own(self, samples: Any) -> list[Signal]:
        reading = read_samples({GETITEM: samples}, self.plan.own, self.plan.warmup)[GETITEM]
        if not reading.items:
            msg = f"rfdetr {version()} reads no sample of {self.data.root}: {reading.errors[0]}"
            raise ValueError(msg)
        self._note_errors(GETITEM, reading)
        for part in PARTS:
            if not any(part in item.parts for item in reading.items):
                self.notes.append(f"{part} was not seen: rfdetr {version()} does it elsewhere, its time is in other")
        signal = getitem_signal(GETITEM, reading.items)
        signals = [signal, *shares(signal)]
        with self._noting("calls"):
            signals += sample_calls(samples)
        return signals

    def _note_errors(self, name: str, reading: Reading) -> None:
        if reading.errors:
            failed, tried = len(reading.errors), len(reading.errors) + len(reading.items)
            self.notes.append(f"{name}: {failed} of {tried} samples could not be read, the first: {reading.errors[0]}")

    def _loaders(self, module: Any) -> Iterator[list[Signal]]:
        """Yield the rate of the loader by number of workers, the case's own among them."""
        workers = sorted({*WORKERS, self.case.workers})
        if crowded := [count for count in workers if count > self.cpus]:
            listed = ", ".join(map(str, crowded))
            self.notes.append(f"loaders with {listed} workers: more than this machine's {self.cpus} CPUs")
        memory: list[float] = []
        for count in workers:
            self.say(f"loading batches, {count} workers")
            with self._noting(rate_name(count)):
                signal, used = loader_rate(module, count, self.plan)
                # Of the case's own workers, or of the fewest that there are.
                memory = used if count == self.case.workers or not memory else memory
                yield [signal]
        if memory:
            yield [Signal(name=MEMORY, kind="info", unit="MB", value=median(memory), samples=memory)]

    def _augmented(self, name: str, measured: Callable[[], tuple[list[float], list[Part]]]) -> list[Signal]:
        self.say(name.replace("_", ", on the "))
        with self._noting(name):
            samples, parts = measured()
            return [Signal(name=name, kind="wall", unit="ms", value=median(samples), samples=samples, parts=parts)]
        return []

    def _augment_cpu(self) -> tuple[list[float], list[Part]]:
        module = input_module(self.case, self.data, self.scratch, backend="cpu")
        if augmentation_of(module) == KORNIA:
            self.notes.append("augment_cpu: torchvision's, since rfdetr takes kornia for 'cpu' where it is installed")
            module = input_module(self.case, self.data, self.scratch, backend="torchvision")
        count = self.plan.batches * self.case.batch_size
        reading = read_samples({GETITEM: training_set(module)}, count, self.plan.warmup)[GETITEM]
        return by_batch([item.parts for item in reading.items], self.case.batch_size)

    def _augment_gpu(self) -> tuple[list[float], list[Part]]:
        module = input_module(self.case, self.data, self.scratch, backend="gpu")
        device, move, augment = device_augmentation(self.case, module)
        count = (self.plan.warmup + self.plan.batches) * self.case.batch_size
        batches = [move(batch) for batch in training_loader(module, 0, count)]
        if augment(batches[0]) is batches[0]:
            msg = f"rfdetr {version()} leaves the batch as it is"
            raise ValueError(msg)
        times = [_augmented_ms(augment, batch, device) for batch in batches]
        return times[self.plan.warmup :], []

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Let an error end this one question only."""
        try:
            yield
        except Exception as error:
            self.notes.append(f"{what} not measured: {last_line(error)}")


def last_line(error: Exception) -> str:
    """Return one line of an error; of one in a worker, which comes with its traceback, what was raised there."""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if len(lines) > 1 else f"{type(error).__name__}: {lines[0]}"


def read_samples(sets: Mapping[str, Any], count: int, warmup: int) -> dict[str, Reading]:
    """Read ``count`` samples of each data set, one of each in turn, so that all see the same machine.

    The n-th sample of each has the same random draws. A sample that cannot be read is among the errors.
    """
    readings = {name: Reading() for name in sets}
    with one_thread(), clocked() as clock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an image library's advice on single files
        for number in range(-warmup, count):
            for name, samples in sets.items():
                _read(samples, number, count, clock, readings[name])
    return readings


def _read(samples: Any, number: int, count: int, clock: Clock, reading: Reading) -> None:
    # Over the whole set where it is larger: the pictures of a camera, or of a class, often lie together.
    index = number * max(1, len(samples) // count) % len(samples)
    seed_draws(number % count)
    clock.reset()
    started = time.perf_counter()
    try:
        samples[index]
    except Exception as error:
        if number >= 0:
            reading.errors.append(last_line(error))
        return
    total = time.perf_counter() - started
    if number >= 0:
        reading.items.append(Item(1e3 * total, {part: 1e3 * taken for part, taken in clock.seconds.items()}))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have torch use one thread, as each worker of a DataLoader does."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def getitem_signal(name: str, items: Sequence[Item]) -> Signal:
    """Return the median of ``items``, ms a sample; each part has its share of the time of all of them."""
    totals = [item.total for item in items]
    value, whole = median(totals), sum(totals)
    parts = [Part(name=part, value=value * _sum(items, part) / whole) for part in PARTS]
    rest = value - sum(part.value for part in parts)
    parts.append(Part(name="other", value=max(0.0, rest)))
    return Signal(name=name, kind="wall", unit="ms", value=value, samples=totals, parts=parts)


def _sum(items: Iterable[Item], part: str) -> float:
    return sum(item.parts.get(part, 0.0) for item in items)


def shares(getitem: Signal) -> list[Signal]:
    """Return which share of a sample's time each part is, in percent."""
    by_name = {part.name: part.value for part in getitem.parts}
    return [
        Signal(name=f"{part}_share", kind="info", unit="%", value=100 * by_name[part] / getitem.value) for part in PARTS
    ]


def sample_calls(samples: Any) -> list[Signal]:
    """Return the Python and C calls of reading the first sample, which was read before."""
    phase = CurrentPhase()
    phase.enter("input")
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an image library's advice on single files
        seed_draws(0)
        counted = calls_of(lambda: samples[0], phase)
    return [calls_signal(name, tally) for name, tally in zip(INPUT_CALLS, counted, strict=True)]


def by_batch(parts: Sequence[Mapping[str, float]], batch_size: int) -> tuple[list[float], list[Part]]:
    """Return the ms that each batch of samples spends in being augmented, and the parts of their median.

    Raises:
        ValueError: no sample was augmented in a way that is known, or there is no whole batch.
    """
    each = [sum(sample.get(part, 0.0) for part in AUGMENTING) for sample in parts]
    batches = [sum(each[k : k + batch_size]) for k in range(0, len(each) - batch_size + 1, batch_size)]
    if not batches or sum(batches) == 0:
        msg = f"rfdetr {version()} augmented and normalized none of {len(parts)} samples in functions that are known"
        raise ValueError(msg)
    value = median(batches)
    sums = {part: sum(sample.get(part, 0.0) for sample in parts) for part in AUGMENTING}
    return batches, [Part(name=part, value=value * taken / sum(sums.values())) for part, taken in sums.items()]


def _augmented_ms(augment: Callable[[Any], Any], batch: Any, device: Any) -> float:
    """Return the ms that ``augment`` takes, host and device, on a ``batch`` that is on ``device``."""
    import torch

    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronize()
    started = time.perf_counter()
    augment(batch)
    synchronize()
    return 1e3 * (time.perf_counter() - started)


def loader_rate(module: Any, workers: int, plan: Plan) -> tuple[Signal, list[float]]:
    """Return the samples/s of a loader that is emptied as fast as it can be, and the MB of each of its workers.

    Worker start-up and the batches that are read ahead meanwhile are left out.

    Raises:
        ValueError: the loader yields no batch.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice against more workers than CPUs
        before = {child.pid for child in multiprocessing.active_children()}
        # More than any loader yields in the time that it has.
        loader = training_loader(module, workers, samples=10_000 * module.train_config.batch_size)
        iterator = iter(loader)
        try:
            times = arrivals(iterator, ahead=workers * (loader.prefetch_factor or 0), chunk=max(1, workers), plan=plan)
            used = [_unique_mb(child.pid) for child in multiprocessing.active_children() if child.pid not in before]
        finally:
            # Now, not whenever an error lets go of the loader: its workers go on reading ahead.
            getattr(iterator, "_shutdown_workers", lambda: None)()
    rates = chunk_rates(times, max(1, workers), module.train_config.batch_size)
    signal = Signal(
        name=rate_name(workers), kind="wall", unit="samples/s", direction="higher", value=median(rates), samples=rates
    )
    return signal, used


def arrivals(batches: Iterator[Any], ahead: int, chunk: int, plan: Plan) -> list[float]:
    """Return the times in s at which batches come, the first of them the start of the timing.

    ``ahead`` batches are there already: they are taken first. Workers take turns, so that batches come in bursts of
    ``chunk``; three bursts are waited for, but no longer than ``plan.limit``.

    Raises:
        ValueError: there is no batch, or only one.
    """
    if next(batches, None) is None:
        msg = "the training loader yields no batch"
        raise ValueError(msg)
    started = time.perf_counter()
    for _ in range(ahead):
        if time.perf_counter() - started > plan.drain or next(batches, None) is None:
            break
    times = [time.perf_counter()]
    for _ in batches:
        times.append(time.perf_counter())
        elapsed = times[-1] - times[0]
        if elapsed > plan.limit or (elapsed > plan.seconds and len(times) > 3 * chunk):
            break
    if len(times) < 2:
        msg = "the training loader yields too few batches to be timed"
        raise ValueError(msg)
    return times


def chunk_rates(times: Sequence[float], chunk: int, batch_size: int) -> list[float]:
    """Return the samples/s of up to three stretches of equal length, whole bursts of ``chunk`` where there are such."""
    batches = len(times) - 1
    length = max(1, batches // 3)
    length = length // chunk * chunk or length
    ends = range(length, batches + 1, length)
    return [length * batch_size / (times[end] - times[end - length]) for end in list(ends)[:3]]


def _unique_mb(pid: int | None) -> float:
    """Return the memory in MB that a process shares with no other: what one worker more costs."""
    return float(psutil.Process(pid).memory_full_info().uss / 1e6)
