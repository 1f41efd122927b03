"""What a cost is that was measured by leaving something out, round by round: a number with its interval, or none."""

from __future__ import annotations

from perf.findings import Runs
from perf.report.humanize import between, number, over_runs
from perf.stats import median_interval

# Measured by leaving something out, in rounds.
COSTS = ("logging_cost", "sync_cost")


def cost(runs: Runs, name: str) -> str:
    """Return the median of the rounds of all runs with its 95 % interval; where that holds 0, that no cost is seen.

    A round holds updates with and without against each other in one process, so that what a run shares, such as a slow
    host, is in neither end. The interval asks nothing of how they scatter: one round on a busy host lies far out.
    """
    signals = [signal for record in runs.finished if (signal := record.signal(name))]
    kind, unit = signals[0].kind, signals[0].unit
    rounds = [sample for signal in signals for sample in signal.samples]
    if not rounds:
        return over_runs([signal.value for signal in signals], kind, unit)
    count = (
        f"{len(rounds)} round{'s' if len(rounds) > 1 else ''} in {len(signals)} run{'s' if len(signals) > 1 else ''}"
    )
    found = median_interval(rounds)
    if found is None:
        return f"not told: {count}, {between(min(rounds), max(rounds), kind, unit)}, are too few for an interval"
    interval = f"95 % interval {between(found.low, found.high, kind, unit)}"
    if not found.excludes_none:
        return f"not told apart from none: {interval} of the median of {count}"
    return f"{number(found.median, kind, unit)} ({interval}; median of {count})"
