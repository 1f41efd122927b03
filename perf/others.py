"""What other tools say of the same runs: pytest-benchmark's compare, and TraceML's.

Each by its own code: pytest-benchmark's statistics and ``--benchmark-compare-fail``, TraceML's ``compare``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perf.record import Record, parse_json

# What a user of pytest-benchmark would set; TraceML's is the same share.
COMPARE_FAIL, PERCENT = "mean:5%", 5
# The samples of a run, by what it measures: those of the step are pytest-benchmark's own.
_SAMPLES = ("step_time", "fit_step", "getitem")

Said = Literal["fails", "silent"]


class Opinion(NamedTuple):
    """Whether another tool fails the head, and by how many percent it saw the time change."""

    said: Said
    percent: float


def benchmark_opinion(base: Record, head: Record) -> Opinion | None:
    """Return what ``--benchmark-compare-fail=mean:5%`` makes of one run a side; None where no time was sampled."""
    from pytest_benchmark.utils import parse_compare_fail

    sides = [_stats(record) for record in (base, head)]
    if None in sides:
        return None
    before, after = sides
    check = parse_compare_fail(COMPARE_FAIL)
    percent = float(check.compute(after, before))
    return Opinion("fails" if check.fails(after, before) else "silent", percent)


def _stats(record: Record) -> dict[str, Any] | None:
    """Return the statistics that pytest-benchmark makes of a run's samples, as its JSON has them."""
    from pytest_benchmark.stats import Stats

    samples: Sequence[float] = next((s.samples for n in _SAMPLES if (s := record.signal(n)) and s.samples), ())
    if not samples:
        return None
    stats = Stats()
    for sample in samples:
        stats.update(sample / 1e3)
    found: dict[str, Any] = stats.as_dict()
    return found


def traceml_opinion(python: Path, base: Path, head: Path, out: Path) -> Opinion:
    """Return what ``traceml compare`` makes of two final summaries; ``python`` has it installed.

    Raises:
        ValueError: it ended with an error, or its answer cannot be read; says which.
    """
    limit = ["--max-step-time-regression-pct", str(PERCENT)]
    words = [
        str(python),
        "-m",
        "traceml_ai.launcher.cli",
        "compare",
        str(base),
        str(head),
        "--output",
        str(out),
        *limit,
    ]
    written = out.with_name(f"{out.name}.json")
    written.unlink(missing_ok=True)  # an answer of before is none to this
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=out.parent)
    if not written.is_file():
        msg = f"TraceML's compare left no {written}: {(done.stderr or done.stdout).strip()[-300:]}"
        raise ValueError(msg)
    return parse_opinion(parse_json(written.read_text(encoding="utf-8")))


def parse_opinion(document: Any) -> Opinion:
    """Return TraceML's opinion from its answer: its own figure for step time against its own threshold.

    Its policy calls every pair inconclusive whose summaries have no guard declaration, and they have none here.

    Raises:
        ValueError: the answer has no step time; says what it has.
    """
    try:
        policy = document["ci_policy"]
        percent, threshold = float(policy["pct_change"]), float(policy["threshold_pct"])
    except (KeyError, TypeError) as error:
        msg = f"TraceML's compare says nothing of step time: {json.dumps(document)[:300]}"
        raise ValueError(msg) from error
    return Opinion("fails" if percent > threshold else "silent", percent)
