"""Section of an investigation about the GPU: how busy it is, and with which kernels."""

from __future__ import annotations

from collections.abc import Sequence

from perf.findings import Runs, Spread
from perf.investigation import Found
from perf.probes.fit_profile import REST
from perf.report.blocks import Block, Code, Figure, Heading, Paragraph, Table, Text
from perf.report.figures import Bar, bars
from perf.report.humanize import number
from perf.report.investigation_step import MOST_ROWS, made_by, share, shown, signal_rows
from perf.report.kernel_names import short_names
from perf.report.missing import Missing


def gpu_section(found: Found, missing: Missing) -> list[Block]:
    """Return how busy the GPU is and with what."""
    title: list[Block] = [Heading("GPU")]
    fit = found.of("fit")
    busy = fit.spread("fit_gpu_busy") if fit else None
    if fit is None or busy is None:
        return [*title, *missing.say("GPU busy, idle, kernels, GEMM", fit, "fit_gpu_busy")]
    names = {
        "GPU busy a step": "fit_gpu_busy",
        "busy as a share of the step's wall time": "gpu_utilization",
        "GPU idle a step, while profiled": "fit_gpu_idle",
        "kernels a step": "fit_kernels",
        "of them under 5 us": "small_kernels",
        "matrix products (GEMM)": "gemm_time",
        "rate of these": "gemm_rate",
    }
    rows, rest = signal_rows(fit, names, missing)
    return [*title, Table(("signal", "value"), rows), *rest, *_small(fit), *_kernels(fit), *made_by(found, fit)]


def _small(fit: Runs) -> list[Block]:
    small, all_of_them = fit.spread("small_kernels"), fit.spread("fit_kernels")
    if not (small and all_of_them and all_of_them.median):
        return []
    return [Paragraph(f"{share(small.median, all_of_them.median)} of the kernels are under 5 us.")]


def _kernels(fit: Runs) -> list[Block]:
    parts = {name: spread for name, spread in fit.parts("kernel_time").items() if name != REST}
    if not parts:
        return []
    order = sorted(parts.items(), key=lambda item: -item[1].median)[:MOST_ROWS]
    named = dict(zip(short_names([name for name, _ in order]), (spread for _, spread in order), strict=True))
    drawn = [Bar(short, one.median, number(one.median, one.kind, one.unit)) for short, one in named.items()]
    rows: list[list[Text]] = [[Code(short), shown(one)] for short, one in named.items()]
    rows += [[REST, shown(_rest(fit, [name for name, _ in order]))], ["sum", shown(fit.spread("kernel_time"))]]
    told = "Kernels alone: GPU busy above has copies and fills too. Names are shortened; the records have them whole."
    table = Table(("top kernels", "time a step"), rows)
    return [table, Paragraph(told), Figure(bars(drawn), "Top kernels: time a step.")]


def _rest(fit: Runs, named: Sequence[str]) -> Spread:
    """Return the time of the kernels that are not ``named``, also of those that records name."""
    signals = [signal for record in fit.finished if (signal := record.signal("kernel_time"))]
    values = [one.value - sum(part.value for part in one.parts if part.name in named) for one in signals]
    return Spread(values, signals[0].kind, signals[0].unit)
