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

from perf import ranked
from perf.evidence import Evidence, collecting
from perf.patch_file import import_patch
from perf.probes import compilation
from perf.probes.distributed import Graphs, communication, gather, watching_graphs
from perf.probes.epoch import run_epoch
from perf.probes.growth import step_memory
from perf.probes.learning import first_loss, loss_watched, optimizer_groups
from perf.probes.memory import peak_memory
from perf.probes.parity import ADAPTATION, FULL_FLOAT32, parity
from perf.probes.parts import Tally
from perf.probes.profile import gpu_signals, sync_lines
from perf.probes.step_time import step_time, timed_step
from perf.probes.throughput import SAID, THROUGHPUT_PLANS, listening, throughput
from perf.probes.trace import capture, without_ops
from perf.probes.work import aten_ops, call_counts, dispatched_ops
from perf.record import Record, Signal, write_record
from perf.rfdetr_api import Built, Sample, Stepper, build, fit, load, validate
from perf.rfdetr_configs import task_of
from perf.rfdetr_steering import steered
from perf.run_data import measure_on_data
from perf.run_order import MINOR_VARIABLE, Order
from perf.run_record import RunRecord
from perf.shapes import ShapesSpec, write_shapes
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


class Run(RunRecord):
    """One run in progress: what it measures, in which order."""

    def __init__(self, order: Order, plan: Plan | None = None) -> None:
        super().__init__(order)
        self.plan = plan or PLANS[order.case.lane]
        self.graphs: Graphs | None = None
        self.evidence = Evidence(order.stem, self.record)

    def measure(self, benchmark: Any) -> Record:
        """Measure the case with every probe of its lane and return the finished record.

        ``benchmark`` is pytest-benchmark's fixture. Whatever goes wrong is in the record, as status ``failed``
        with the traceback, and is raised again.
        """
        try:
            with contextlib.closing(self.turn), collecting(self.evidence):
                self._measure(benchmark)
        except BaseException:
            self.end("failed", traceback.format_exc())
            raise
        self.end("finished")
        return self.record

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
                measure_on_data(self, Path(scratch))
                return
            self.progress.say("building the model")
            built = build(case, Path(scratch))
            self.record.adaptations = [*adaptations, *built.adaptations]
            self.take(built)
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
        self.add(run_epoch(built, write_shapes(scratch, spec), self.progress))

    def _measure_throughput(self, built: Built, benchmark: Any) -> None:
        samples, plan = make_samples(built.case, built.resolution), THROUGHPUT_PLANS[built.case.lane]
        self.record.warmup_steps = 1 + plan.warmup  # fewer where a step takes seconds

        def body(stepper: Stepper) -> None:
            self.add(self._first_step(stepper))
            self.progress.say("timing steps")
            for signals in throughput(stepper, benchmark, plan):
                self.add(self.wanted(signals))

        fit(built, samples, body)

    def _measure_parity(self, built: Built, scratch: Path) -> None:
        self.record.adaptations.append(ADAPTATION)
        if str(built.trainer.precision) == "32-true" and built.case.lane == "gpu":
            self.record.adaptations.append(FULL_FLOAT32)
        with self.progress.during("compiling and comparing (parity)", compilation.progress):
            self.add(parity(built, make_samples(built.case, built.resolution), scratch))

    def _validate(self, built: Built, samples: list[Sample]) -> None:
        """Compile what the validation loop runs, over two batches so that a recompile for the second is seen."""
        compilation.forget()
        self.evidence.resume()
        with self.progress.during("compiling (validation)", compilation.progress):
            self.record.adaptations += validate(built, samples, batches=2)
        self.add(compilation.evaluation_signals())
        self.evidence.take("validation")

    def _probe(self, stepper: Stepper, benchmark: Any) -> None:
        with loss_watched(stepper.built.module.criterion) as terms:
            self.add(self._first_step(stepper))
        self.add([*first_loss(terms), optimizer_groups(stepper.built.trainer.optimizers)])
        with self.turn.alone():
            self._probe_alone(stepper, benchmark)
        # After all steps, so that a recompile in any of them is in it; but before the calls are counted, since
        # Dynamo takes the profile function's own frames for frames to compile.
        self.add([*compilation.signals(stepper.built.module.model), *(self.graphs.signals() if self.graphs else [])])
        self.evidence.take("the training steps")
        self.add(call_counts(stepper))
        self.add(step_memory(stepper))  # last: its steps are more, and what is counted above must not depend on them

    def _probe_alone(self, stepper: Stepper, benchmark: Any) -> None:
        """Measure what another process on the GPU would disturb."""
        self._warm_up(stepper)
        if not self.order.untimed:
            self.progress.say(f"timing {self.plan.timed} steps")
            self.add([step_time(stepper, benchmark, self.plan.timed)])
            self.add(peak_memory(stepper))
        self.progress.say("counting work per step")
        self.add(self._work(stepper))

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
        return self.wanted(found)


def _check_torch(minor: str) -> None:
    wanted = os.environ.get(MINOR_VARIABLE, minor)
    if minor != wanted:
        msg = f"the session is for torch {wanted}, but torch {minor} is installed; remake it without -R (nox -s ...)"
        raise RuntimeError(msg)
