"""What a posted result must state: machine, versions, workload, flags, and how each number was taken."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath

from perf.environment import Environment, processor
from perf.findings import Runs, placeless
from perf.investigation import PHOTOGRAPHS, Found
from perf.record import Record
from perf.report.blocks import Block, Code, Heading, Items, Paragraph, Table, Text, joined, pieces
from perf.report.humanize import minutes, number


def setting(found: Found) -> list[Block]:
    """Return the table of what was measured with; nothing where there is no record."""
    records = found.records
    if not records:
        return [Paragraph("There is no record yet.")]
    fit = found.of("fit")
    first = fit.records[0] if fit and fit.records else records[0]
    rows = [[name, told] for name, told in (*_machine(first.environment), *_workload(first, found)) if told]
    return [Heading("Measured with"), Table(["", ""], rows), *_mixed(records)]


def _machine(found: Environment) -> list[tuple[str, Text]]:
    cuda = "".join(f", {name} {value}" for name, value in (("CUDA", found.cuda), ("cuDNN", found.cudnn)) if value)
    return [
        ("torch", Code(f"{found.torch}{cuda}")),
        ("GPU", Code(_gpu(found))),
        ("driver", Code(found.driver or "none")),
        ("CPU", Code(processor(found.cpu_model, found.cpu_count))),
        ("rfdetr", Code(f"{found.rfdetr} ({_source(found)})")),
        (
            "beside it",
            Code(f"Python {found.python}, transformers {found.transformers}, Lightning {found.pytorch_lightning}"),
        ),
    ]


def _source(found: Environment) -> str:
    commit = f", commit {found.rfdetr_commit[:12]}" if found.rfdetr_commit else ""
    return f"{found.rfdetr_source}{commit}{', with changes' if found.rfdetr_dirty else ''}"


def _gpu(found: Environment) -> str:
    if not found.gpu_name:
        return "none"
    memory = f", {number(float(found.gpu_memory_bytes), 'device', 'B')}" if found.gpu_memory_bytes else ""
    limit = f", power limit {found.power_limit_w:g} W" if found.power_limit_w else ""
    return f"{found.gpu_name}, 1 of {found.gpu_count}{memory}{limit}{', MIG' if found.mig else ''}"


def _workload(record: Record, found: Found) -> list[tuple[str, Text]]:
    case = record.case
    flags: Text = joined([Code(f"{name}={value}") for name, value in record.flags.items()]) if record.flags else ""
    return [
        ("model size", Code(case.config) if case.lane == "gpu" else (Code(case.config), ", reduced (cpu lane)")),
        ("batch size", f"{case.batch_size}"),
        ("workers", f"{case.workers}"),
        ("precision", _precision(record)),
        ("processes", "one, no DDP" if not case.distributed else f"{case.ranks}, DDP"),
        ("data", (Code(record.environment.workload or found.asked.data or "the generated set"), _generated(record))),
        ("flags other than rfdetr's defaults", flags or "not recorded"),
        ("done to rfdetr", joined([Code(one) for one in record.adaptations])),
        ("candidate", Code(f"{found.asked.head} ({found.asked.head_sha256[:8]})") if found.asked.head else ""),
        ("disturbances", _disturbed(found.records)),
        ("this suite", Code(_suite(record.environment))),
    ]


def _generated(record: Record) -> str:
    """Return that photographs are generated ones: their name does not say so."""
    return ", generated" if record.case.data == PHOTOGRAPHS else ""


def _suite(found: Environment) -> str:
    commit = f", commit {found.suite_commit[:12]}" if found.suite_commit else ""
    return f"rfdetr-perf {found.suite}{commit}{', with changes' if found.suite_dirty else ''}"


def _precision(record: Record) -> Text:
    told = record.precision or "as rfdetr chose it, not recorded"
    return (Code(record.case.precision), ": ", Code(told))


def _disturbed(records: Sequence[Record]) -> Text:
    """Return what got in the way of the runs, and what was looked at: a host that others use too is not seen."""
    unseen = "not looked at: load of the host's CPUs, its memory, its other GPUs"
    if not any(record.gpu_before or record.gpu_after for record in records):
        return unseen
    seen = joined([Code(one) for one in _disturbances(records)])
    looked = "looked at, before and after each run: lower clocks of this GPU and why (NVML), other processes on it"
    return (*pieces(seen or "none seen"), f"; {looked}; {unseen}")


def _disturbances(records: Sequence[Record]) -> list[str]:
    """Return what NVML saw in the way of the runs."""
    found: dict[str, None] = {}
    for state in (state for record in records for state in (*record.gpu_before, *record.gpu_after)):
        found |= dict.fromkeys(f"GPU {state.index} throttled: {why}" for why in state.throttle_reasons)
        if count := len(state.other_processes):
            found[f"GPU {state.index} used by {count} other process{'es' if count > 1 else ''}"] = None
    return list(found)


_SAME: dict[str, Callable[[Environment], object]] = {
    "torch": lambda one: one.torch,
    "rfdetr": lambda one: one.rfdetr,
    "GPU": lambda one: one.gpu_name,
    "driver": lambda one: one.driver,
    "CPU": lambda one: one.cpu_model,
}


def differences(records: Sequence[Record]) -> list[Text]:
    """Return in what the records are not of one machine and one installation."""
    values = {name: {str(get(record.environment)) for record in records} for name, get in _SAME.items()}
    return [(f"{name}: ", Code(" or ".join(sorted(each)))) for name, each in values.items() if len(each) > 1]


def _mixed(records: Sequence[Record]) -> list[Block]:
    """Return a warning where the records are not of one machine and one installation."""
    differ = differences(records)
    if not differ:
        return []
    return [Paragraph("These runs are not of one machine and installation, so take no number as one:"), Items(differ)]


def methods(found: Found) -> list[Block]:
    """Return how the steps were timed, and the commands."""
    count = found.asked.runs
    measured = [runs for runs in found.sides["base"].values() if runs.records]
    lines: list[Text] = [(Code(r.case.id), ": ", _how(r), " Again: ", Code(_again(r, count))) for r in measured]
    rounds = f"{found.asked.runs} rounds of one run a case" if found.asked.runs > 1 else "one run a case"
    if found.asked.budget:
        rounds = f"up to {rounds}, as many as fit into {minutes(found.asked.budget)}"
    told = f"Each run is a fresh process; {rounds}. Numbers are medians over runs, in parentheses their range."
    made: list[Text] = [("All of it: ", Code(found.asked.command))] if found.asked.command else []
    return [Heading("How it was measured"), Paragraph(told), Items([*made, *lines]), *_data_set(measured)]


def _data_set(measured: Sequence[Runs]) -> list[Block]:
    """Return where a generated data set comes from: who reads a report has not got its folder."""
    if not any(_GENERATED.search(runs.records[0].command) for runs in measured):
        return []
    photographs, investigate, out = (Code(one) for one in (f"FOLDER/data/{PHOTOGRAPHS}", "investigate", "--out FOLDER"))
    return [Paragraph((photographs, " is a generated data set: ", investigate, " with ", out, " writes it first."))]


def _again(runs: Runs, count: int) -> str:
    return f"{_posted(runs.records[0].command)} --runs {count}"


# They lie in the report's own folder, wherever that is.
_GENERATED = re.compile(rf"\S*/data/{PHOTOGRAPHS}")


def _posted(command: str) -> str:
    """Return a command without the folders of this machine; FOLDER is the report's own."""
    try:
        words = shlex.split(command)
    except ValueError:  # not one of this suite's
        return placeless(command)
    shown = [
        f"FOLDER/data/{PHOTOGRAPHS}"
        if _GENERATED.fullmatch(word)
        else PurePath(word).name
        if word.startswith("/")
        else word
        for word in words
    ]
    return shlex.join(shown)


def _how(runs: Runs) -> str:
    case = runs.case
    name = {"fit": "fit_step", "step": "step_time"}.get(case.measure, "")
    timed = [len(signal.samples) for record in runs.finished if (signal := record.signal(name))]
    warmup = max((record.warmup_steps for record in runs.finished), default=0)
    counted = f"{_between(timed)} timed in each run" if timed else "none was timed"
    return _HOW[case.measure].format(steps=counted, warmup=f"{warmup} of warm-up" if warmup else "the warm-up")


def _between(counts: Sequence[int]) -> str:
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


_HOW: dict[str, str] = {
    "fit": "rfdetr's own fit with its own loader; updates after {warmup}, {steps}, each by its mean, so that phases "
    "sum to it; by the host's clock, nothing waiting for the GPU; validation, the first update and the profiled ones "
    "are not among them.",
    "step": "one fixed batch through Lightning's own optimization loop; steps after {warmup}, {steps}, by their "
    "median; the GPU is waited for after each; loading, EMA and validation are outside.",
    "input": "rfdetr's own data set and loader, no model; a sample at a time on one thread, and batches from loaders "
    "that are emptied as fast as they can be.",
    "convergence": "a whole training from random weights, the seed that of the run; mAP by pycocotools.",
    "epoch": "one epoch of the generated set.",
    "parity": "the compiled step against the eager one.",
}


def commands(runs: Runs, count: int) -> list[str]:
    """Return the command that makes the runs of a case again; empty where there is none."""
    return [_again(runs, count)] if runs.records else []
