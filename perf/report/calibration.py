"""The calibration of one device as a document: Markdown, from what was measured and what is simulated with it."""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from perf.calibrate import BUSY, Calibration, Scatter, Trial
from perf.experiment import MOST_PAIRS
from perf.gates import DEVICE_ERROR, WALL_ERROR, WALL_TOLERANCE
from perf.pool import host
from perf.record import TIMED
from perf.report.humanize import number
from perf.report.markdown import code, table, text
from perf.simulation import NoiseShape, Rates, Shape, simulate, simulate_device
from perf.stats import NO_NOISE, Noise
from perf.verdicts import CaseVerdict, SignalVerdict

SHIFTS = (0.01, 0.02, 0.03, 0.05, 0.10)
# Noise of the size that was measured, in the shapes that mislead a t interval.
WALL_SHAPES: tuple[Shape, ...] = (
    "normal",
    "log-normal",
    "clock-states",
    "sticky-states",
    "linear-drift",
    "heavy-tails",
)
POWER = 0.95
# How many pairs a case may get in the search for those that find the tolerance; each costs two runs.
TRIED_PAIRS = (10, 15, 20, 30, 40, 60, 80, 100, 150)
# Sessions simulated for a power, which needs no more; false alarms are rarer and get what the command asks for.
POWER_SESSIONS = 500
DEVICE_RUNS = (1, 2, 3, 5)


def document(found: Calibration, sessions: int, command: str) -> str:
    """Return the document; ``sessions`` are simulated for each false-alarm rate, ``command`` made it."""
    blocks = [_head(found, command)]
    for case_id, scatter in found.scatter.items():
        blocks += [f"## {code(case_id)}\n", _noise(scatter), _counts(scatter), _trials(found, case_id)]
        blocks += [
            _wall(signal, found.pairs, sessions) for signal in scatter if signal.kind == "wall" and signal.paired
        ]
        blocks += [_device(signal, sessions) for signal in scatter if signal.name == BUSY and signal.sd]
    return "\n".join(blocks)


def _head(found: Calibration, command: str) -> str:
    environment = found.environment
    gpu = f"{environment.gpu_name}, driver {environment.driver}; " if environment.gpu_name else ""
    place = f"{gpu}{host(environment)}; torch {environment.torch}, rfdetr {environment.rfdetr}"
    return f"""# Calibration: {text(environment.device)}

What an A/B session can see on this machine, and how often it is wrong. Made by

    {command}

Measured with {text(place)}. Base and head are the same rfdetr; of each case
{found.pairs} pairs of unchanged runs. Stated: a session of unchanged code claims a change of time with a probability of
at most {_percent(WALL_ERROR)}, one of a device signal with at most {_percent(DEVICE_ERROR)}, all its signals together.
"""


# The line of _head that names the processor, after the GPU where there is one; in backticks where it is no plain text.
_MEASURED = re.compile(r"^Measured with [` ]*(?:.*; )?(.*); torch ", re.MULTILINE)


def place(folder: Path, device: str, processor: str, *, force: bool = False) -> Path:
    """Return where the document of ``device`` goes, unless that of another processor is there.

    Raises:
        ValueError: there is, and ``force`` does not say to replace it; names that processor.
    """
    path = folder / f"{device}.md"
    if force or not path.exists():
        return path
    found = _MEASURED.search(path.read_text(encoding="utf-8"))
    if found and found[1] == " ".join(processor.split()):
        return path
    other = f"it is of {found[1]}" if found else "it does not say of which processor it is"
    msg = f"{path}: {other}, the new one of {processor}: write to another folder with --out, or replace it with --force"
    raise ValueError(msg)


def _noise(scatter: Sequence[Scatter]) -> str:
    lines = [
        [
            signal.name,
            str(len(signal.runs)),
            number(statistics.median(signal.runs), "wall", signal.unit),
            _percent(signal.sd),
            _percent(signal.paired),
            _percent((max(signal.runs) - min(signal.runs)) / statistics.median(signal.runs)),
        ]
        for signal in scatter
        if signal.kind in TIMED and signal.sd is not None
    ]
    headings = ("signal", "runs", "median", "sd of a run", "sd within pairs", "range")
    return f"""### Noise: unchanged code

*sd of a run*: of the logarithms, within a side. *Within pairs*: that of log(head / base) over the root of 2, which is
less where the runs of a pair share what disturbs them.

{table(headings, lines)}"""


def _counts(scatter: Sequence[Scatter]) -> str:
    counts = [signal for signal in scatter if signal.kind not in TIMED]
    moved = [signal for signal in counts if min(signal.runs) != max(signal.runs)]
    exact = [signal.name for signal in counts if signal not in moved]
    runs = len(counts[0].runs) if counts else 0
    lines = [f"{text(s.name)} {min(s.runs):g} to {max(s.runs):g}" for s in moved]
    told = f"Counts that were the same in all {runs} runs: {', '.join(exact) or 'none'}."
    # Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249 (1983).
    told += f" So each differs in fewer than {_percent(3 / runs)} of runs (95 %, the rule of three)." if exact else ""
    return told + (f"\nCounts that differed: {'; '.join(lines)}." if lines else "") + "\n"


def _trials(found: Calibration, case_id: str) -> str:
    lines = [line for trial in found.trials if trial.case.id == case_id for line in _trial(trial)]
    headings = ("head", "signal", "verdict", "after", "seen")
    return f"### Real trials\n\n{table(headings, lines)}"


def _trial(trial: Trial) -> list[list[str]]:
    what = "unchanged" if not trial.percent else f"slower by {trial.percent:g} %"
    rows = [row for row in trial.verdict.signals if row.kind in TIMED and row.verdict]
    claims = [row.signal for row in _counts_claimed(trial.verdict)]
    lines = [
        [what, row.signal, str(row.verdict), f"{trial.pairs} pairs", text(row.message or "no change")] for row in rows
    ]
    return [*lines, [what, "all counts", ", ".join(claims) or "pass", f"{trial.pairs} pairs", ""]]


def _counts_claimed(verdict: CaseVerdict) -> list[SignalVerdict]:
    return [row for row in verdict.signals if row.kind not in TIMED and row.verdict not in ("pass", None)]


def _wall(signal: Scatter, pairs: int, sessions: int) -> str:
    sd = signal.paired or 0.0
    most = max(pairs, MOST_PAIRS)  # what a session may take by default, though fewer were measured
    alarms = [_alarms(shape, sd, most, sessions) for shape in WALL_SHAPES]
    powers = [(f"+{_percent(s)}", simulate(NoiseShape("normal", sd), s, POWER_SESSIONS, most=most)) for s in SHIFTS]
    plain = {shift: f"{_percent(rates.regressed)} of sessions" for shift, rates in powers}
    enough = _enough(sd)
    cost = f"about {enough} pairs" if enough else f"more than {TRIED_PAIRS[-1]} pairs"
    return f"""### {code(signal.name)}, simulated: at most {most} pairs, runs that scatter by {_percent(sd)}

In short: with {most} pairs a step that is 5 % slower is found here in {plain["+5 %"]}, one that is 10 % slower in
{plain["+10 %"]}. A real trial is one such session, and may be lucky or not.

Unchanged code, the runs scattering as much in other shapes:

{table(("noise", "false alarms (99 % bound)", "passes", "pairs, mean"), alarms)}
A slower head, normal noise, {POWER_SESSIONS} sessions each:

{_power_table(powers)}
A slowdown of {_percent(WALL_TOLERANCE)} is found in {_percent(POWER)} of sessions with {cost} of runs.
"""


def _alarms(shape: Shape, sd: float, most: int, sessions: int) -> list[str]:
    rates = simulate(NoiseShape(shape, sd), 0.0, sessions, most=most)
    return [shape, _bounded(rates), _percent(rates.passed), f"{rates.pairs:.1f}"]


def _enough(sd: float) -> int | None:
    found = functools.partial(simulate, NoiseShape("normal", sd), WALL_TOLERANCE, POWER_SESSIONS)
    return next((most for most in TRIED_PAIRS if found(most=most).regressed >= POWER), None)


def _device(signal: Scatter, sessions: int) -> str:
    sd = signal.sd or 0.0
    prior = Noise(sd**2, len(signal.runs) - 2)
    lines = []
    for runs in DEVICE_RUNS:
        for told, known in (("from these runs", prior), ("not", NO_NOISE)):
            simulated = functools.partial(simulate_device, sd, runs=runs, prior=known)
            alarms, found = simulated(shift=0.0, sessions=sessions), simulated(shift=0.01, sessions=POWER_SESSIONS)
            lines.append([str(runs), told, _bounded(alarms), _percent(alarms.passed), _percent(found.regressed)])
    headings = ("runs a side", "noise known beforehand", "false alarms (99 % bound)", "passes", "+1 % found")
    return f"### {code(signal.name)}, simulated: runs that scatter by {_percent(sd)}\n\n{table(headings, lines)}"


def _power_table(rows: Sequence[tuple[str, Rates]]) -> str:
    lines = [
        [
            shift,
            _percent(rates.regressed),
            _percent(rates.inconclusive),
            _percent(rates.passed),
            f"{rates.pairs:.1f}",
        ]
        for shift, rates in rows
    ]
    return table(("slowdown", "found", "inconclusive", "passed", "pairs, mean"), lines)


def _bounded(rates: Rates) -> str:
    return f"{_percent(rates.claims)} (below {_percent(rates.bounds(rates.claims)[1])})"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"
