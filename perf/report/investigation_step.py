"""Sections of an investigation about the step: its phases, memory, logging, compile, a candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perf.findings import Runs, Spread
from perf.investigation import BASE, HEAD, Found
from perf.quality_gates import MAP
from perf.report.blocks import Block, Code, Command, Figure, Heading, Paragraph, Table, Text
from perf.report.figures import stacked, swatch
from perf.report.humanize import over_runs
from perf.report.investigation_cost import COSTS, cost
from perf.report.investigation_setting import commands
from perf.report.investigation_updates import strips_of, updates_told
from perf.report.missing import Missing
from perf.stats import paired_interval

# Of a long list the first; the rest is in the records.
MOST_ROWS = 12
# Phases have to sum to the update within so much of it.
SUMS = 0.01
# What adding up floats may lose.
EXACT = 1e-9


def shown(spread: Spread | None) -> str:
    """Return a number over runs, ``-`` for none."""
    return "-" if spread is None else over_runs(spread.values, spread.kind, spread.unit)


def made_by(found: Found, runs: Runs) -> list[Block]:
    """Return the command that makes a table's runs again."""
    return [Command(line) for line in commands(runs, found.asked.runs)]


def step_section(found: Found, missing: Missing) -> list[Block]:
    """Return the phases of an update: host time, GPU time, kernels; and how updates scatter."""
    title: list[Block] = [Heading("Where an update goes")]
    fit = found.of("fit")
    step = fit.spread("fit_step") if fit else None
    if fit is None or step is None:
        return [*title, *missing.say("phases of an update", fit, "fit_step")]
    table = _phases_table(fit, step)
    return [*title, *table, *updates_told(fit), *made_by(found, fit), *_phases_figure(fit, step), *strips_of(fit)]


def _phases_table(fit: Runs, step: Spread) -> list[Block]:
    host, busy, idle, kernels = (fit.parts(n) for n in ("fit_step", "fit_gpu_busy", "fit_gpu_idle", "fit_kernels"))
    rows: list[list[Text]] = []
    for name, spread in host.items():
        per_kernel = [shown(column.get(name)) for column in (busy, idle, kernels)]
        rows.append([Code(name), shown(spread), share(spread.median, step.median), *per_kernel])
    whole = [shown(fit.spread(name)) for name in ("fit_gpu_busy", "fit_gpu_idle", "fit_kernels")]
    rows.append(["sum", shown(step), "100 %", *whole])
    headings = ("phase", "host", "share", "GPU busy", "GPU idle, profiled", "kernels")
    # Columns of a GPU that is not there would be dashes only.
    kept = [0, 1, 2, *(i for i, column in enumerate((busy, idle, kernels), 3) if column)]
    table = Table([headings[i] for i in kept], [[row[i] for i in kept] for row in rows], _swatches(host))
    told = (
        "Host: the phase that the loop is in. A GPU works behind the host, so that a kernel counts to the phase that "
        "launched it. Criterion is without matching; optimizer with clipping, zero_grad and the schedule; logging is "
        "self.log and Lightning's metrics. "
    )
    return [table, Paragraph(told + _residual(fit, host, step))]


def _residual(fit: Runs, host: Mapping[str, Spread], step: Spread) -> str:
    """Return what is in no phase, and whether phases sum to the update: in each run, since medians need not."""
    rest = host.get("other")
    named = f"What is in no named phase is other, {share(rest.median, step.median)} of it. " if rest else ""
    signals = [signal for record in fit.finished if (signal := record.signal("fit_step")) and signal.value]
    apart = max((abs(sum(p.value for p in one.parts) - one.value) / one.value for one in signals), default=0.0)
    if apart > SUMS:
        return f"{named}The phases do not sum to the update, but miss it by {100 * apart:.3g} %: trust no share of it."
    return f"{named}In every run the phases sum to the update{f' within {100 * apart:.2g} %' if apart > EXACT else ''}."


def _swatches(host: Mapping[str, Spread]) -> list[str]:
    return [swatch(index) for index in range(len(host))]


def _phases_figure(fit: Runs, step: Spread) -> list[Block]:
    host, busy = fit.parts("fit_step"), fit.parts("fit_gpu_busy")
    rows = {f"host: {step.median:.4g} ms": {name: spread.median for name, spread in host.items()}}
    whole = step.median
    if busy:
        total = sum(spread.median for spread in busy.values())
        rows[f"GPU busy: {total:.4g} ms"] = {name: spread.median for name, spread in busy.items()}
        whole = max(whole, total)
    told = "An update: what the host is in, and below it how long the GPU is busy, by what launched it."
    return [Figure(stacked(rows, list(dict.fromkeys([*host, *busy])), whole), f"{told} Colours: table.")]


def share(part: float, whole: float) -> str:
    """Return a part in percent of the whole, ``-`` of none."""
    return f"{100 * part / whole:.2g} %" if whole else "-"


def signal_rows(runs: Runs, names: Mapping[str, str], missing: Missing) -> tuple[list[list[Text]], list[Block]]:
    """Return a row for each signal that is there, and what stands for the others."""
    rows: list[list[Text]] = []
    rest: list[Block] = []
    for what, name in names.items():
        spread = runs.spread(name)
        if spread is None:
            rest += missing.say(what, runs, name)
        else:
            value = cost(runs, name) if name in COSTS else shown(spread)
            rows.append([(what, " (", Code(name), ")"), value])
    return rows, rest


def more_section(found: Found, missing: Missing) -> list[Block]:
    """Return what else an epoch costs: logging, the positional embedding, validation."""
    fit = found.of("fit")
    title: list[Block] = [Heading("Logging, positional embedding, validation")]
    if fit is None or not fit.finished:
        return [*title, *missing.say("logging, positional embedding, validation", fit, "fit_step")]
    names = {
        "a step is longer for logging by": "logging_cost",
        "interpolating the positional embedding, a step (0: the profiler saw none)": "pos_embed",
        "a validation": "validation",
        "batches of it": "validation_steps",
        "the first validation": "first_validation",
        "the first update, with the start of the workers": "first_step",
    }
    rows, rest = signal_rows(fit, names, missing)
    parts: list[list[Text]] = [
        [("validation: ", Code(name)), shown(one)] for name, one in fit.parts("validation").items()
    ]
    return [*title, Table(("what", "value"), [*rows, *parts]), *rest, *made_by(found, fit)]


def memory_section(found: Found, missing: Missing) -> list[Block]:
    """Return the peak of memory by phase."""
    title: list[Block] = [Heading("Peak memory by phase")]
    fit = found.of("fit")
    peak = fit.spread("phase_peak_memory") if fit else None
    if fit is None or peak is None:
        return [*title, *missing.say("peak memory by phase", fit, "phase_peak_memory")]
    rows: list[list[Text]] = [[Code(name), shown(one)] for name, one in fit.parts("phase_peak_memory").items()]
    return [*title, Table(("phase", "peak allocated"), [*rows, ["highest", shown(peak)]]), *made_by(found, fit)]


_STEP_SIGNALS = (
    "step_time",
    "gpu_busy",
    "kernels",
    "aten_ops",
    "python_calls",
    "host_syncs",
    "gpu_copies",
    "first_step",
    "inductor_cache_hits",
    "inductor_cache_misses",
    "peak_memory",
    "peak_rss",
    "frames_failed",
    "graphs",
    "graph_breaks",
    "recompiles",
)


def compile_section(found: Found, missing: Missing) -> list[Block]:
    """Return the step on a fixed batch, eager beside compiled."""
    title: list[Block] = [Heading("A step on a fixed batch, eager and compiled")]
    sides = [one for one in (found.of("step"), found.of("step", compiled=True)) if one is not None]
    measured = [one for one in sides if one.finished]
    if not measured:
        return [*title, *missing.say("a step on a fixed batch", sides[0] if sides else None, "step_time")]
    said = [block for one in sides if one not in measured for block in missing.say(one.case.id, one, "step_time")]
    names = [name for name in _STEP_SIGNALS if any(one.spread(name) for one in measured)]
    rows: list[list[Text]] = [[Code(name), *(shown(one.spread(name)) for one in measured)] for name in names]
    table = Table(("signal", *(one.case.id for one in measured)), rows)
    return [*title, table, *_captured(measured), *said, *(block for one in measured for block in made_by(found, one))]


def _captured(measured: Sequence[Runs]) -> list[Block]:
    """Return a warning where what is called compiled was not generated by Inductor: its times are no compiled ones."""
    others = [one.case for one in measured if one.case.compile and one.case.backend != "inductor"]
    told = " is torch.compile without Inductor: its graphs and breaks are real, its times say nothing of Inductor."
    return [Paragraph((Code(case.id), told)) for case in others]


_CANDIDATE_SIGNALS = {
    "convergence": (MAP, "final_loss"),
    "fit": ("fit_step", "fit_gpu_busy", "fit_kernels"),
    "step": ("step_time", "gpu_busy", "kernels", "aten_ops", "host_syncs", "peak_memory", "graph_breaks"),
    "input": ("getitem",),
}


def candidate(found: Found, missing: Missing) -> list[Block]:
    """Return what a candidate changes, mAP first; nothing where there is none."""
    if not found.asked.head:
        return []
    title: list[Block] = [Heading(("Before and after ", Code(found.asked.head)))]
    rows: list[list[Text]] = []
    for measure, names in _CANDIDATE_SIGNALS.items():
        for before in (one for one in found.sides[BASE].values() if one.case.measure == measure):
            after = found.sides[HEAD][before.case.id]
            rows += [row for name in names if (row := _before_after(before, after, name))]
    said: list[Block] = []
    trained = found.of("convergence")
    if trained is None or trained.spread(MAP) is None:
        said = missing.say("mAP before and after", trained, MAP)
    table = [Table(("signal", "case", "before", "after", "after / before, 95 %"), rows)] if rows else []
    return [*title, *table, *said]


def _before_after(before: Runs, after: Runs, name: str) -> list[Text] | None:
    old, new = before.spread(name), after.spread(name)
    if old is None and new is None:
        return None
    return [Code(name), Code(before.case.id), shown(old), shown(new), _ratio(before, after, name)]


def _ratio(before: Runs, after: Runs, name: str) -> str:
    """Return the ratio with its interval; of pairs where every run has one, since they alternate."""
    sides = [{r.run: s.value for r in one.finished if (s := r.signal(name))} for one in (before, after)]
    shared = sorted(sides[0].keys() & sides[1].keys())
    old, new = ([side[run] for run in shared] for side in sides)
    if shared and old == new:
        return "the same in every run"
    if len(shared) < 2 or min(*old, *new) <= 0:
        return "-"
    found = paired_interval(old, new)
    return f"{found.ratio:.4g} ({found.low:.4g} to {found.high:.4g})"
