"""The tables of the compile matrix: a row of the store -> a line of Markdown cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from perf.case import Case
from perf.compile_matrix import EVALUATION, Cache, Row, pay_back
from perf.configs import KNOWN
from perf.report.humanize import number
from perf.report.markdown import code, table, text
from perf.suites import suite

COCO_IMAGES = 118287
NOT_RUN = "not run"


def count(row: Row, name: str) -> str:
    """Return a count of a row, or that it has none."""
    return f"{row.counts[name]:g}" if name in row.counts else "-"


def _section(kind: str, rows: list[Row]) -> str:
    title, head, columns, cells = _SECTIONS[kind]
    lines = [cells(row) for row in sorted(rows, key=lambda row: (len(row.case_id), row.case_id))]
    missing = _not_run(kind, rows)
    rest = [[", ".join(map(code, missing)), *[NOT_RUN] * (len(columns) - 1)]] if missing else []
    return f"#### {title}\n\n{head}\n\n{table(columns, [*lines, *rest])}"


def _not_run(kind: str, rows: Sequence[Row]) -> list[str]:
    """Return the cases of a kind's suites that nobody has measured: a table without them would pass for whole."""
    cases = [case for name in _SUITES[kind] for case in suite(name, rows[0].lane) if case.config in KNOWN]
    measured = {row.case_id for row in rows}
    return list(dict.fromkeys(case.id for case in cases if case.id not in measured))


def _setting(row: Row) -> list[str]:
    counted = [count(row, name) for name in ("graphs", "graph_breaks", "recompiles")]
    said = f"unsupported here: {_outcome(row)} without" if row.case and _needs_a_gpu(row.case) else _outcome(row)
    return [code(row.case_id), said, *counted, _time(row.step_seconds), _figure(row, "gpu_busy", "ms")]


def _needs_a_gpu(case: Case) -> bool:
    return case.lane == "cpu" and (case.cuda_graphs or case.mode == "reduce-overhead")


def _outcome(row: Row) -> str:
    return f"{row.outcome}{f': {code(row.why)}' if row.why else ''}"


def _shape(row: Row) -> list[str]:
    counted = [count(row, name) for name in ("distinct_shapes", "graphs", "graph_breaks", "recompiles")]
    limit = [count(row, name) for name in ("recompile_limit", "recompile_limit_hits", "eager_steps")]
    places = [f"{part.value:g} {part.name}" for part in row.reasons.get("pos_embed_interpolations", [])]
    cost = _figure(row, "pos_embed_time", "ms")
    return [code(row.case_id), row.outcome, *counted, *limit, ", ".join(places) or "none", cost]


def _compared(row: Row) -> list[str]:
    difference = f"{row.figures['parity_difference']:.2g}" if "parity_difference" in row.figures else "-"
    return [code(row.case_id), _outcome(row), _told(row, "parity_mismatches"), _ties(row), difference]


def _ties(row: Row) -> str:
    """Return how many keys ties explain, by explanation: the same few explain them all."""
    whys = Counter(part.name.partition(": explained by ")[2] for part in row.reasons.get("parity_ties", []))
    told = "; ".join(f"{keys} by {text(why)}" for why, keys in whys.items())
    return told or count(row, "parity_ties")


def _told(row: Row, name: str) -> str:
    """Return a count and, where there are any, what it counts."""
    parts = ", ".join(code(part.name) for part in row.reasons.get(name, []))
    return f"{count(row, name)}{': ' + parts if parts else ''}"


def _figure(row: Row, name: str, unit: str) -> str:
    return number(row.figures[name], "wall", unit) if name in row.figures else "-"


# By kind: title, what it shows, columns, cells.
_SECTIONS: dict[str, tuple[str, str, Sequence[str], Callable[[Row], list[str]]]] = {
    "settings": (
        "Settings of torch.compile and Dynamo",
        "The same step, compiled otherwise than rfdetr asks for. GPU busy is on a GPU only.",
        ("case", "outcome", "graphs", "breaks", "recompiles", "step", "GPU busy"),
        _setting,
    ),
    "epoch": (
        "Shapes",
        "One epoch of 20 steps over the generated data set, which has 8 sizes of image.",
        (
            *("case", "outcome", "distinct shapes", "graphs", "breaks", "recompiles", "limit", "hits of it"),
            *("eager steps", "interpolations of the positional embedding", "their time a step"),
        ),
        _shape,
    ),
    "parity": (
        "Parity",
        "Keys of the loss and gradients in which the compiled step differs from the eager one, on the same weights and "
        "batch. The difference is the largest of all keys, 1 being its tolerance.",
        ("case", "outcome", "mismatches", "explained by ties", "difference"),
        _compared,
    ),
}


_SUITES = {"settings": ("settings",), "epoch": ("shapes", "shapes-backward"), "parity": ("parity",)}


def sections(by_kind: Mapping[str, list[Row]]) -> list[str]:
    """Return the tables of the kinds that there are rows of, under their headings."""
    return [_section(kind, by_kind[kind]) for kind in _SECTIONS if kind in by_kind]


_CONFIGS = (
    *("config", "case", "outcome", "frames", "graphs", "breaks", "recompiles", "evaluation"),
    *("first step", "runs", "measured"),
)


def configs(rows: Sequence[Row]) -> str:
    """Return the table of every case, and the shipped configs of which none was run."""
    rank = {name: place for place, name in enumerate(KNOWN)}
    last = len(rank)
    ordered = sorted(rows, key=lambda r: (rank.get(r.config, last), r.config, len(r.case_id), r.case_id))
    missing = [name for name in KNOWN if name not in {row.config for row in rows}]
    rest = [[", ".join(missing), *[NOT_RUN] * (len(_CONFIGS) - 1)]] if missing else []
    return table(_CONFIGS, [*map(_config, ordered), *rest])


def _config(row: Row) -> list[str]:
    counted = [count(row, name) for name in ("frames", "graphs", "graph_breaks", "recompiles")]
    runs = f"{row.runs}{', which differ in ' + text('; '.join(row.differing)) if row.differing else ''}"
    measured = f"{row.measured:%Y-%m-%d}{', ' + text(row.suite_commit) if row.suite_commit else ''}"
    seen = [*counted, _evaluation(row), _first_steps(row)]
    return [text(row.config), code(row.case_id), _outcome(row), *seen, runs, measured]


def _evaluation(row: Row) -> str:
    if not any(name in row.counts for name in EVALUATION):
        return NOT_RUN
    numbers = " / ".join(count(row, name) for name in ("eval_graphs", "eval_graph_breaks", "eval_recompiles"))
    failed = row.counts.get("eval_frames_failed", 0)
    return f"{numbers}{f', {failed:g} frames fell back' if failed else ''}"


def _first_steps(row: Row) -> str:
    if not row.first:
        return NOT_RUN
    words = {"cold": "cold ", "warm": "warm ", "none": ""}
    return ", ".join(f"{words[cache]}{_time(first.seconds)}" for cache, first in row.first.items())


_PAYING = ("case", "first step: eager", "cold", "warm", "step: eager", "compiled", "pays back: cold", "warm")
_CACHES: tuple[Cache, ...] = ("cold", "warm")


def paying(rows: Sequence[Row], eager: Mapping[str, Row], steps_per_epoch: int | None) -> list[str]:
    """Return the table that says when compiling pays back, of the rows that Inductor compiled; none without one."""
    lines = [_pays_back(row, eager.get(row.eager), steps_per_epoch) for row in rows if row.backend == "inductor"]
    return [f"#### When compiling pays back\n\n{table(_PAYING, lines)}"] if lines else []


def _pays_back(row: Row, eager: Row | None, steps_per_epoch: int | None) -> list[str]:
    before = eager.first.get("none") if eager else None
    first = [before, *(row.first.get(cache) for cache in _CACHES)]
    steps = [eager.step_seconds if eager else None, row.step_seconds]
    times = [_time(value) for value in (*(found.seconds if found else None for found in first), *steps)]
    return [code(row.case_id), *times, *(_pays(row, eager, cache, steps_per_epoch) for cache in _CACHES)]


def _time(value: float | None) -> str:
    return NOT_RUN if value is None else number(value, "wall", "s")


def _pays(row: Row, eager: Row | None, cache: Cache, steps_per_epoch: int | None) -> str:
    """Return after how many steps, and epochs, a compiled run has overtaken an eager one, in words."""
    steps = pay_back(row, eager, cache)
    if steps is None:
        return NOT_RUN
    if math.isinf(steps):
        return "never: the step is not faster"
    epoch = steps_per_epoch or math.ceil(COCO_IMAGES / row.batch)
    return f"{steps:g} steps ({steps / epoch:.2g} epochs)"
