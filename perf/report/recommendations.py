"""docs/recommendations.md from stored sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perf.environment import Environment, processor
from perf.recommend import Advice
from perf.report.sweep import advice_text, arguments_text, cells_table, rows, rows_table
from perf.sweep_files import Stored

_HEAD = """# What to train RF-DETR with, by GPU

Made by `rfdetr-perf recommend SWEEP... --out docs/recommendations.md` from sweeps that are stored; nothing in it is
estimated. [sweep.md](sweep.md) says how a sweep measures: fixed batches of one size, without loading, EMA and
validation, so that an epoch is slower by what those take. A row that was not measured says so.
"""


def document(found: Iterable[tuple[Stored, Sequence[Advice]]], images: int, headroom: float) -> str:
    """Return the whole document: for each device a table of rows, what is recommended and all cells."""
    return _HEAD + "".join(_section(sweep, advices, images, headroom) for sweep, advices in found)


def _section(sweep: Stored, advices: Sequence[Advice], images: int, headroom: float) -> str:
    where = sweep.environment.gpu_name or sweep.environment.cpu_model
    told = "\n\n".join(advice_text(advice, where, images, headroom) for advice in advices)
    python = "\n".join(arguments_text(a.fastest, a.workers) for a in advices if a.fastest)
    return "\n".join(
        [
            f"\n## {where}: {', '.join(advice.config for advice in advices)}\n",
            _made_with(sweep.environment) + "\n",
            rows_table(rows(advices, sweep.environment)),
            f"```\n{told}\n```\n",
            f"```python\n{python}```\n",
            "<details><summary>all cells</summary>\n",
            cells_table(sweep.found, sweep.unsupported),
            "\n</details>\n",
        ]
    )


def _made_with(environment: Environment) -> str:
    told = [
        f"rfdetr {environment.rfdetr} ({environment.rfdetr_source})",
        f"torch {environment.torch}",
        f"Python {environment.python}",
        *([f"driver {environment.driver}"] if environment.driver else []),
        processor(environment.cpu_model, environment.cpu_count),
        *([f"suite at {environment.suite_commit[:7]}"] if environment.suite_commit else []),
    ]
    return ", ".join(told) + "."
