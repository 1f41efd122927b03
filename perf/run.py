"""A run: one fresh process measures one case and leaves one record, written anew after every probe."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perf import environment, gpus, ranked
from perf.cluster import cluster
from perf.dataset import read_data_set, workload
from perf.epochs import DEFAULT_EPOCHS, EPOCHS, epoch_signals
from perf.evidence import CURVE, Evidence, collecting, left_behind
from perf.gates import PROOF
from perf.patch_file import import_patch
from perf.photos import write_photos
from perf.probes import compilation
from perf.probes.convergence import Curve, check_whole, converge, keep
from perf.probes.convergence import signals as convergence_signals
from perf.probes.distributed import Graphs, communication, gather, watching_graphs
from perf.probes.epoch import run_epoch
from perf.probes.fit import FIT_PLANS, Fit
from perf.probes.growth import step_memory
from perf.probes.input_pipeline import PHOTOS, InputProbe
from perf.probes.learning import first_loss, loss_watched, optimizer_groups
from perf.probes.memory import peak_memory
from perf.probes.parity import ADAPTATION, FULL_FLOAT32, parity
from perf.probes.parts import Tally
from perf.probes.profile import gpu_signals, sync_lines
from perf.probes.step_time import step_time, timed_step
from perf.probes.throughput import SAID, THROUGHPUT_PLANS, engine_layers, listening, throughput
from perf.probes.trace import capture, without_ops
from perf.probes.work import aten_ops, call_counts, dispatched_ops
from perf.progress import Progress
from perf.recipe import recipe_of, write_data
from perf.record import PATCHED, TIMED, Record, Signal, file_digest, write_record
from perf.report.epochs import draw_metrics
from perf.rfdetr_api import Built, Sample, Stepper, build, fit, flags, load, validate
from perf.rfdetr_configs import task_of
from perf.rfdetr_epochs import EpochClock, build_epochs, fit_epochs
from perf.rfdetr_fit import build_fit, write_fit_data
from perf.rfdetr_steering import steered
from perf.rfdetr_train import METRICS_FILE, build_training
from perf.run_order import MINOR_VARIABLE, Order
from perf.shapes import ShapesSpec, write_shapes
from perf.turns import BESIDE, Turn
from perf.workload import make_samples


@dataclass(frozen=True)
class Plan:
    """How many steps a run takes: warm-up after the first step, timed ones, profiled ones.

    ``traffic``: those whose collectives are looked at, where there are several ranks.
    """

    warmup: int
    timed: int
    profiled: int
    traffic: int = 3


# On a CPU only counts are gated, so a few steps do. On a GPU the first ten steps still load modules and grow
# the allocator's pools; thirty timed ones make the run's median steadier than runs differ among themselves. GPU busy
# scatters by 0.12 % from step to step (H200, nano-b4) and far less from run to run, so a run profiles twelve.
PLANS = {"cpu": Plan(warmup=2, timed=5, profiled=1), "gpu": Plan(warmup=10, timed=30, profiled=12, traffic=12)}

# Within these random.Random(step) draws every size of a ladder of 7, 8 or 11; the last one comes at step 19.
EPOCH_STEPS = 20


class Run:
    """One run in progress: its record, and the file that mirrors it."""

    def __init__(self, order: Order, plan: Plan | None = None) -> None:
        self.order = order
        self.plan = plan or PLANS[order.case.lane]
        self.progress = Progress(order.progress_path, f"{order.case.id} run {order.run}")
        self.turn = Turn(order.turn, self.progress.say)
        self.turn.join()  # importing torch would disturb one that measures
        self.progress.say("importing torch")
        self.record = Record(
            case_id=order.case.id,
            case=order.case,
            session=order.session,
            run=order.run,
            command=order.command,
            environment=_fingerprint(order),
            untimed=order.untimed,
            gpu_before=gpus.gpu_states() if order.case.lane == "gpu" else [],
        )
        self.model: Any = None
        self.graphs: Graphs | None = None
        self.evidence = Evidence(order.stem, self.record)
        if order.turn:
            self.record.notes.append(BESIDE)
        self._write()

    def measure(self, benchmark: Any) -> Record:
        """Measure the case with every probe of its lane and return the finished record.

        ``benchmark`` is pytest-benchmark's fixture. Whatever goes wrong is in the record, as status ``failed``
        with the traceback, and is raised again.
        """
        try:
            with contextlib.closing(self.turn), collecting(self.evidence):
                self._measure(benchmark)
        except BaseException:
            self.record.error = traceback.format_exc()
            self._keep_compilation()
            self._end("failed")
            raise
        self._end("finished")
        return self.record

    def _take(self, built: Built) -> None:
        """Note what rfdetr was told, which a reader needs to make sense of any number."""
        self.model = built.module.model
        self.record.flags = flags(built)
        self.record.precision = str(built.trainer.precision)

    def _keep_compilation(self) -> None:
        """Add what was compiled until now to the record of a failed run: where it broke is what a reader wants."""
        if not self.order.case.compile or self.model is None or self.record.signal("graphs"):
            return
        with contextlib.suppress(Exception):  # the run's own error is the one to tell
            self.record.signals.extend(compilation.signals(self.model))

    def _measure(self, benchmark: Any) -> None:
        case = self.order.case
        _check_torch(self.record.environment.torch_minor)
        self.progress.say("importing rfdetr")
        with tempfile.TemporaryDirectory() as scratch, steered(case) as adaptations, self._watching(), self._heard():
            if self.order.patch:
                import_patch(self.order.patch)
                adaptations.append(f"patched by {self.order.patch.name}")
            load()  # a patch may replace what rfdetr imports by name
            compilation.reset()
            if case.takes_data:
                self.record.adaptations = adaptations
                self._on_data(Path(scratch))
                return
            self.progress.say("building the model")
            built = build(case, Path(scratch))
            self.record.adaptations = [*adaptations, *built.adaptations]
            self._take(built)
            if case.measure == "epoch":
                self._measure_epoch(built, Path(scratch))
            elif case.measure == "parity":
                self._measure_parity(built, Path(scratch))
            elif case.measure == "throughput":
                self._measure_throughput(built, benchmark)
            else:
                self._measure_step(built, benchmark)
            if case.distributed:
                self._merge()

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Note which graphs are captured, where ranks are to be compared."""
        if not (self.order.case.distributed and self.order.case.compile):
            yield
            return
        with watching_graphs() as self.graphs:
            yield

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Keep what rfdetr says of precision, compile and CUDA graphs where settings are compared, however it ends."""
        if self.order.case.measure not in ("throughput", "epochs"):
            yield
            return
        with listening() as lines:
            try:
                yield
            finally:
                self.record.notes += [f"{SAID}{line}" for line in lines]

    def _merge(self) -> None:
        """Put what all ranks measured into the record; each calls this, and keeps what it measured itself in a file."""
        case = self.order.case
        ranks = [Record.model_validate_json(text) for text in gather(self.record.model_dump_json())]
        if different := ranked.different_machines(ranks):
            raise RuntimeError("\n".join(["ranks cannot be taken together", *different]))
        if self.order.rank:
            return
        own = {"status": "finished", "finished": datetime.now(UTC)}
        write_record(self.order.own_path, self.record.model_copy(update=own))
        self.record.signals = ranked.merged([record.signals for record in ranks])
        if step_time := self.record.signal("step_time"):
            self.record.signals.append(ranked.rate(step_time, case.batch_size * case.ranks))

    def _measure_step(self, built: Built, benchmark: Any) -> None:
        samples = make_samples(built.case, built.resolution, seed=self.order.rank)
        fit(built, samples, lambda stepper: self._probe(stepper, benchmark))
        if built.case.compile:
            self._validate(built, samples)

    def _measure_epoch(self, built: Built, scratch: Path) -> None:
        if task_of(built.case).keypoints:
            msg = f"{built.case.id}: the generated data set has no keypoints; measure a step of this config instead"
            raise ValueError(msg)
        batch = built.case.batch_size
        spec = ShapesSpec(images_train=EPOCH_STEPS * batch * built.case.ranks, images_valid=batch)
        self._add(run_epoch(built, write_shapes(scratch, spec), self.progress))

    def _measure_throughput(self, built: Built, benchmark: Any) -> None:
        samples, plan = make_samples(built.case, built.resolution), THROUGHPUT_PLANS[built.case.lane]
        self.record.warmup_steps = 1 + plan.warmup  # fewer where a step takes seconds

        def body(stepper: Stepper) -> None:
            self._add(self._first_step(stepper))
            self.progress.say("timing steps")
            for signals in throughput(stepper, benchmark, plan):
                self._add([one for one in signals if one.kind not in TIMED or not self.order.untimed])

        fit(built, samples, body)

    def _on_data(self, scratch: Path) -> None:
        on_data = {"convergence": self._train, "fit": self._fit, "input": self._measure_input, "epochs": self._epochs}
        on_data[self.order.case.measure](scratch)

    def _measure_parity(self, built: Built, scratch: Path) -> None:
        self.record.adaptations.append(ADAPTATION)
        if str(built.trainer.precision) == "32-true" and built.case.lane == "gpu":
            self.record.adaptations.append(FULL_FLOAT32)
        with self.progress.during("compiling and comparing (parity)", compilation.progress):
            self._add(parity(built, make_samples(built.case, built.resolution), scratch))

    def _train(self, scratch: Path) -> None:
        """Train with the run's index for a seed, and keep the curve whatever becomes of it."""
        case, stem, recipe = self.order.case, self.order.stem, recipe_of(self.order.case)
        data = read_data_set(self.order.data or write_data(scratch / "data", recipe))
        self.record.environment.workload = f"{workload(case.data, data)}, {recipe.text}"
        built = build_training(case, recipe, data, scratch / "out", seed=self.order.run)
        self.record.adaptations += built.adaptations
        self._take(built)
        curve = Curve()
        try:
            with self.progress.during("training", lambda: curve.text):
                converge(built, data, curve, stem.with_suffix(CURVE), self.progress.say)
        finally:
            self.record.notes += keep(curve, scratch / "out", stem)
            self.record.evidence = left_behind(stem)
        check_whole(curve, recipe.steps)
        self._add(convergence_signals(curve))
        self._add([one for one in compilation.signals(self.model) if case.compile and one.name in PROOF])

    def _epochs(self, _: Path) -> None:
        """Train whole epochs on a COCO 2017 tree, going on where an earlier process of this run ended."""
        case, order = self.order.case, self.order
        if order.data is None:
            msg = f"{case.id}: whole epochs need a data set: rfdetr-perf epoch --coco-root DIR"
            raise ValueError(msg)
        output = order.stem.with_suffix(".out").resolve()
        built = build_epochs(case, order.data, output, case.steps or DEFAULT_EPOCHS)
        self.record.adaptations += built.adaptations
        self._take(built)
        clock = EpochClock(order.stem.with_suffix(EPOCHS), case.batch_size, self.progress.say)
        with self.progress.during("training", lambda: clock.text):
            fit_epochs(built, clock)
        self.record.notes += draw_metrics(output / METRICS_FILE)
        self._add([*epoch_signals(clock.epochs), engine_layers(self.model)])
        self._add([one for one in compilation.signals(self.model) if case.compile and one.name in PROOF])

    def _fit(self, scratch: Path) -> None:
        """Fit as users do, over a real loader; what one pass could not measure is a note, and the others stay."""
        case, plan = self.order.case, FIT_PLANS[self.order.case.lane]
        updates = case.steps or plan.updates
        data = read_data_set(self.order.data or write_fit_data(scratch / "data", case, updates))
        self.record.environment.workload = workload(case.data, data)
        built = build_fit(case, data, scratch / "out", updates, plan.val_batches)
        self.record.adaptations += built.adaptations
        self._take(built)
        self.record.warmup_steps = 2 + plan.warmup  # the first, and that of the first validation
        probe = Fit(built, plan, self.order.stem, self.progress)
        try:
            probe.run(data)
        finally:
            self.record.notes += probe.notes
            self.record.evidence = left_behind(self.order.stem)
            self._add([one for one in probe.signals if one.kind not in TIMED or not self.order.untimed])
        self._add([one for one in compilation.signals(self.model) if case.compile and one.name in PROOF])

    def _measure_input(self, scratch: Path) -> None:
        """Read samples as a training does; what could not be read is told by a note."""
        case = self.order.case
        if self.order.untimed:
            msg = f"{case.id}: input is mostly time: measure it without --untimed"
            raise ValueError(msg)
        if task_of(case).keypoints and self.order.data is None:
            msg = f"{case.id}: the generated data set has no keypoints; give a data set with them by --data"
            raise ValueError(msg)
        photos = write_photos(scratch, PHOTOS)
        data = read_data_set(self.order.data or photos["jpeg"])
        # Of generated pictures the digest depends on the library that wrote the files, and their cost does not.
        self.record.environment.workload = workload(case.data, data) if self.order.data else PHOTOS.text
        cpus = self.record.environment.cpu_count
        probe = InputProbe(case, data, photos, scratch, cpus, self.progress.say)
        self.record.notes = probe.notes
        for signals in probe.measure():
            self._add(signals)

    def _validate(self, built: Built, samples: list[Sample]) -> None:
        """Compile what the validation loop runs, over two batches so that a recompile for the second is seen."""
        compilation.forget()
        self.evidence.resume()
        with self.progress.during("compiling (validation)", compilation.progress):
            self.record.adaptations += validate(built, samples, batches=2)
        self._add(compilation.evaluation_signals())
        self.evidence.take("validation")

    def _probe(self, stepper: Stepper, benchmark: Any) -> None:
        with loss_watched(stepper.built.module.criterion) as terms:
            self._add(self._first_step(stepper))
        self._add([*first_loss(terms), optimizer_groups(stepper.built.trainer.optimizers)])
        with self.turn.alone():
            self._probe_alone(stepper, benchmark)
        # After all steps, so that a recompile in any of them is in it; but before the calls are counted, since
        # Dynamo takes the profile function's own frames for frames to compile.
        self._add([*compilation.signals(stepper.built.module.model), *(self.graphs.signals() if self.graphs else [])])
        self.evidence.take("the training steps")
        self._add(call_counts(stepper))
        self._add(step_memory(stepper))  # last: its steps are more, and what is counted above must not depend on them

    def _probe_alone(self, stepper: Stepper, benchmark: Any) -> None:
        """Measure what another process on the GPU would disturb."""
        self._warm_up(stepper)
        if not self.order.untimed:
            self.progress.say(f"timing {self.plan.timed} steps")
            self._add([step_time(stepper, benchmark, self.plan.timed)])
            self._add(peak_memory(stepper))
        self.progress.say("counting work per step")
        self._add(self._work(stepper))

    def _first_step(self, stepper: Stepper) -> list[Signal]:
        what = "compiling (first step)" if self.order.case.compile else "first step"
        batch = stepper.prepare()
        with self.progress.during(what, compilation.progress):
            started = time.perf_counter()
            timed_step(stepper, batch)
            seconds = time.perf_counter() - started
        # Shown only: whether a cache was warm is not the suite's to decide (see inductor_cache_hits).
        return [Signal(name="first_step", kind="info", unit="s", value=seconds)]

    def _warm_up(self, stepper: Stepper) -> None:
        self.progress.say(f"warming up, {self.plan.warmup} steps")
        for _ in range(self.plan.warmup):
            timed_step(stepper, stepper.prepare())
        self.record.warmup_steps = 1 + self.plan.warmup

    def _work(self, stepper: Stepper) -> list[Signal]:
        on_gpu = self.order.case.lane == "gpu"
        capture(stepper)  # thrown away: the first profile of a process loads CUPTI
        first = capture(stepper)
        more = [without_ops(capture(stepper)) for _ in range(0 if self.order.untimed else self.plan.profiled - 1)]
        called = Tally() if self.order.case.compile else dispatched_ops(stepper)
        ops = aten_ops(first, called)
        found = [ops, *gpu_signals([first, *more], sync_lines(stepper))] if on_gpu else [ops]
        if stepper.ddp is not None:
            steps = 1 if self.order.untimed else self.plan.traffic
            found += communication(stepper, steps, timed=not self.order.untimed)
        return [signal for signal in found if signal.kind not in TIMED or not self.order.untimed]

    def _add(self, signals: list[Signal]) -> None:
        self.record.signals.extend(signals)
        self._write()

    def _end(self, status: Any) -> None:
        self.record.status = status
        self.record.finished = datetime.now(UTC)
        if self.order.case.lane == "gpu":
            self.record.gpu_after = gpus.gpu_states()
        self._write()
        self.progress.say(status)

    def _write(self) -> None:
        write_record(self.order.record_path, self.record)


def _fingerprint(order: Order) -> environment.Environment:
    found = environment.collect(order.case.lane)
    found = found.model_copy(update={"cluster": cluster(order.case)})
    if order.patch is None:
        return found
    # A patched rfdetr is not the release it was installed as, and must not become a baseline.
    digest = file_digest(order.patch)[:8]  # two texts of one name are two changes
    source = f"{found.rfdetr_source}{PATCHED}{order.patch.name} ({digest})"
    return found.model_copy(update={"rfdetr_source": source, "rfdetr_dirty": True})


def _check_torch(minor: str) -> None:
    wanted = os.environ.get(MINOR_VARIABLE, minor)
    if minor != wanted:
        msg = f"the session is for torch {wanted}, but torch {minor} is installed; remake it without -R (nox -s ...)"
        raise RuntimeError(msg)
