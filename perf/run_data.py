"""Measures that need a data set, each of which builds what it measures upon it."""

from __future__ import annotations

from pathlib import Path

from perf.dataset import read_data_set, workload
from perf.epochs import DEFAULT_EPOCHS, EPOCHS, epoch_signals
from perf.evidence import CURVE, left_behind
from perf.photos import write_photos
from perf.probes.convergence import Curve, check_whole, converge, keep
from perf.probes.convergence import signals as convergence_signals
from perf.probes.fit import FIT_PLANS, Fit
from perf.probes.input_pipeline import PHOTOS, InputProbe
from perf.probes.throughput import engine_layers
from perf.recipe import recipe_of, write_data
from perf.report.epochs import draw_metrics
from perf.rfdetr_configs import task_of
from perf.rfdetr_epochs import EpochClock, build_epochs, fit_epochs
from perf.rfdetr_fit import build_fit, write_fit_data
from perf.rfdetr_train import METRICS_FILE, build_training
from perf.run_record import RunRecord


def measure_on_data(run: RunRecord, scratch: Path) -> None:
    """Measure what ``run``'s case asks for, on its order's data set or a generated one below ``scratch``.

    Raises:
        ValueError: the data set, or the lack of one, does not fit the case.
    """
    measures = {"convergence": _train, "fit": _fit, "input": _input, "epochs": _epochs}
    measures[run.order.case.measure](run, scratch)


def _train(run: RunRecord, scratch: Path) -> None:
    """Train with the run's index for a seed, and keep the curve whatever becomes of it."""
    case, stem, recipe = run.order.case, run.order.stem, recipe_of(run.order.case)
    data = read_data_set(run.order.data or write_data(scratch / "data", recipe))
    run.record.environment.workload = f"{workload(case.data, data)}, {recipe.text}"
    built = build_training(case, recipe, data, scratch / "out", seed=run.order.run)
    run.record.adaptations += built.adaptations
    run.take(built)
    curve = Curve()
    try:
        with run.progress.during("training", lambda: curve.text):
            converge(built, data, curve, stem.with_suffix(CURVE), run.progress.say)
    finally:
        run.record.notes += keep(curve, scratch / "out", stem)
        run.record.evidence = left_behind(stem)
    check_whole(curve, recipe.steps)
    run.add(convergence_signals(curve))
    run.add_proof()


def _epochs(run: RunRecord, _: Path) -> None:
    """Train whole epochs on a COCO 2017 tree, going on where an earlier process of this run ended."""
    case, order = run.order.case, run.order
    if order.data is None:
        msg = f"{case.id}: whole epochs need a data set: rfdetr-perf epoch --coco-root DIR"
        raise ValueError(msg)
    output = order.stem.with_suffix(".out").resolve()
    built = build_epochs(case, order.data, output, case.steps or DEFAULT_EPOCHS)
    run.record.adaptations += built.adaptations
    run.take(built)
    clock = EpochClock(order.stem.with_suffix(EPOCHS), case.batch_size, run.progress.say)
    with run.progress.during("training", lambda: clock.text):
        fit_epochs(built, clock)
    run.record.notes += draw_metrics(output / METRICS_FILE)
    run.add([*epoch_signals(clock.epochs), engine_layers(run.model)])
    run.add_proof()


def _fit(run: RunRecord, scratch: Path) -> None:
    """Fit as users do, over a real loader; what one pass could not measure is a note, and the others stay."""
    case, plan = run.order.case, FIT_PLANS[run.order.case.lane]
    updates = case.steps or plan.updates
    data = read_data_set(run.order.data or write_fit_data(scratch / "data", case, updates))
    run.record.environment.workload = workload(case.data, data)
    built = build_fit(case, data, scratch / "out", updates, plan.val_batches)
    run.record.adaptations += built.adaptations
    run.take(built)
    run.record.warmup_steps = 2 + plan.warmup  # the first, and that of the first validation
    probe = Fit(built, plan, run.order.stem, run.progress)
    try:
        probe.run(data)
    finally:
        run.record.notes += probe.notes
        run.record.evidence = left_behind(run.order.stem)
        run.add(run.wanted(probe.signals))
    run.add_proof()


def _input(run: RunRecord, scratch: Path) -> None:
    """Read samples as a training does; what could not be read is told by a note."""
    case = run.order.case
    if run.order.untimed:
        msg = f"{case.id}: input is mostly time: measure it without --untimed"
        raise ValueError(msg)
    if task_of(case).keypoints and run.order.data is None:
        msg = f"{case.id}: the generated data set has no keypoints; give a data set with them by --data"
        raise ValueError(msg)
    photos = write_photos(scratch, PHOTOS)
    data = read_data_set(run.order.data or photos["jpeg"])
    # Of generated pictures the digest depends on the library that wrote the files, and their cost does not.
    run.record.environment.workload = workload(case.data, data) if run.order.data else PHOTOS.text
    cpus = run.record.environment.cpu_count
    probe = InputProbe(case, data, photos, scratch, cpus, run.progress.say)
    run.record.notes = probe.notes
    for signals in probe.measure():
        run.add(signals)
