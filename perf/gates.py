"""Gates: the rule of each kind of signal, approved values against the runs of now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perf.baselines import BaselineSignal
from perf.pool import parts_by_name, pooled
from perf.record import Direction, Kind, Part, Signal
from perf.stats import (
    MOST_FURTHER_RUNS,
    RatioInterval,
    further_runs,
    pooled_interval,
    ratio_interval,
)
from perf.verdicts import PartChange, Verdict

# A refactor that adds three ops of 3419 must not stop a pull request; 1 % of them is 34.
VOLUME_TOLERANCE = 0.01
# By signal, where that does not fit: seed, weights and batch of the first loss are the same in every run, and boxes
# mirrored in one image of two move it by 0.27 % (tests/faults/mirrored_boxes_small.py).
VOLUME_TOLERANCES = {"first_loss": 0.002}
# Of these neither way is the better one: a loss that lacks a term is lower, and no improvement.
EITHER_WAY = frozenset({"first_loss"})
# Machines of one kind differ by 0.5 % in GPU busy, so a stored baseline cannot see less than this.
DEVICE_FLOOR = 0.01
# Nor of a compiled step less than this: Inductor chooses by stopwatch, and in five sessions on five H200s, each with
# its own cold compile, nano-b4-compile had 10.26, 10.22, 10.15, 10.05 and 10.04 ms, 2.2 % apart (nano-b4 1 %).
INDUCTOR_FLOOR = 0.03
# Runs that scatter so much would let a real regression through: then nothing is proven.
DEVICE_BAND_LIMIT = 0.05
# How often a session of unchanged code may claim a change, on all of its device signals and of its wall signals.
DEVICE_ERROR, WALL_ERROR = 0.001, 0.01
# Run medians scatter by 2 to 6 % on a shared host, so that about ten runs a side resolve this.
WALL_TOLERANCE = 0.05
# By signal, where the default does not fit. A first step is 157 to 178 s cold and 18 to 21 s with a warm cache.
WALL_TOLERANCES = {"first_step": 0.5}
PARTS_IN_MESSAGE = 10
LINES_IN_MESSAGE = 3
LARGEST_SHOWN = 100.0
# Two, and more where a change of one in many would read as none.
DECIMALS = range(2, 7)

# What proves that a case compiled: all frames, those that fell back to eager, and those of the model's own forward
# that compiled. Without the last, a helper that compiles itself would prove a model that runs eager.
FRAMES, FRAMES_FAILED, MODEL_FRAMES = "frames", "frames_failed", "model_frames"
PROOF = (FRAMES, FRAMES_FAILED, MODEL_FRAMES)
EVAL_FRAMES_FAILED = "eval_frames_failed"
# Younger than many stored baselines. Against one that has none of them they are shown, and its next refresh takes them
# in.
GROWTH, HELD, LOSS, GROUPS = "memory_growth", "step_memory", "first_loss", "optimizer_groups"
WORKERS, FORWARDS, AVERAGINGS = "loader_workers", "validation_forwards", "ema_updates"
INPUT_CALLS = ("input_python_calls", "input_c_calls")
YOUNG = frozenset({GROWTH, HELD, LOSS, GROUPS, WORKERS, FORWARDS, AVERAGINGS, *INPUT_CALLS})


class Outcome(NamedTuple):
    """What a gate says. ``interval`` is that of the ratio now / baseline; ``parts`` are those that changed.

    The first line of ``message`` is the point, and each further line is one part. No verdict: shown, not gated.
    """

    verdict: Verdict | None
    message: str = ""
    parts: Sequence[PartChange] = ()
    interval: RatioInterval | None = None
    listed: bool = False


def compile_gate(
    found: Mapping[str, Sequence[Signal]], runs: int, known: Callable[[str], bool] = lambda _: False
) -> tuple[str, Outcome] | None:
    """Return the verdict not-compiled and the signal that shows it; None where all ``runs`` prove they compiled.

    ``found`` holds the signals of ``PROOF`` by name, one a run: without them nothing is proven. A part of the frames
    that failed is excused where it is ``known``, by its name.
    """
    absent = [name for name in PROOF if len(found.get(name, ())) < runs]
    if absent:
        message = f"nothing proves that it compiled: not every run has the signal {' and '.join(absent)}"
        return absent[0], Outcome("not-compiled", message)
    frames, failed, model = (found[name] for name in PROOF)
    if min(signal.value for signal in frames) <= 0:
        return FRAMES, Outcome("not-compiled", "compile=True, and no frame was compiled: the step ran eager")
    compiled = [total.value - fallen.value for total, fallen in zip(frames, failed, strict=True)]
    for name, signals in ((FRAMES_FAILED, failed), (EVAL_FRAMES_FAILED, found.get(EVAL_FRAMES_FAILED, ()))):
        if any(fallen_back(signal, known) > 0 for signal in signals):
            return name, _fallen_back(signals, compiled if name == FRAMES_FAILED else None)
    for own, others in zip(model, compiled, strict=True):
        if own.value <= 0:
            message = f"the model's own forward was not compiled: {plain(others)} other frames were"
            return MODEL_FRAMES, Outcome("not-compiled", message)
    return None


# A frame that hit the limit did compile, and is eager for further shapes: a count of its own, gated as any other.
_LIMIT = re.compile(r"(recompile|cache[ _]size)[ _]limit")


def fallen_back(failed: Signal, known: Callable[[str], bool] = lambda _: False) -> float:
    """Return how many of the frames that failed never compiled, but for those whose part's name is ``known``."""
    excused = sum(part.value for part in failed.parts if _LIMIT.search(part.name) or known(part.name))
    return failed.value - excused


def _fallen_back(failed: Sequence[Signal], compiled: Sequence[float] | None) -> Outcome:
    fallen = pooled(failed)
    parts = [_part_change(name, None, part) for name, part in parts_by_name(fallen.parts).items() if part.value]
    if compiled is None:
        head = f"frames that fell back to eager in validation: {plain(fallen.value)}"
    else:
        most, rest = max((signal.value, -others) for signal, others in zip(failed, compiled, strict=True))
        head = f"frames that fell back to eager: {plain(most)}, compiled: {plain(-rest)}"
    return Outcome("not-compiled", _with_parts(head, parts), parts)


def strict_gate(base: BaselineSignal, now: Sequence[Signal]) -> Outcome:
    """Judge a strict count: any rise, of the total or of a part, regressed; else any fall improved."""
    value = pooled(now)
    parts = changed_parts(base, value)
    turn = sign(base.direction)
    most, least = max(turn * run for run in base.runs), min(turn * run for run in base.runs)
    total = turn * value.value
    if total > most or any(turn * (part.new - part.old) > 0 for part in parts):
        return Outcome("regressed", _strict_message(base, now, value, parts), parts)
    # Where the baseline's own runs differ, a part that fell may be that difference; the total decides.
    if total < least or (parts and most == least):
        return Outcome("improved", _strict_message(base, now, value, parts), parts)
    return Outcome("pass")


def volume_gate(base: BaselineSignal, now: Sequence[Signal]) -> Outcome:
    """Judge a volume count: every change is listed, and beyond its tolerance, ``VOLUME_TOLERANCE``, it is gated.

    A value within the range of the baseline's own runs is no change. Of a signal of ``EITHER_WAY`` a fall is
    ``regressed`` too.
    """
    value = pooled(now)
    noisy = min(base.runs) != max(base.runs)
    if noisy and min(base.runs) <= value.value <= max(base.runs):
        return Outcome("pass")
    parts = changed_parts(base, value)
    worse = _worsening(base, value.value)
    if base.name in EITHER_WAY:
        worse = abs(worse)
    if value.value == base.value and not parts:
        return Outcome("pass")
    message = _with_parts(_moved(base, value.value), parts)
    tolerance = VOLUME_TOLERANCES.get(base.name, VOLUME_TOLERANCE)
    return Outcome(_beyond(worse, tolerance), message, parts, listed=abs(worse) <= tolerance)


def device_gate(
    base: BaselineSignal, now: Sequence[Signal], error: float = DEVICE_ERROR, floor: float = DEVICE_FLOOR
) -> Outcome:
    """Judge a device signal of a later session: the change against a band of at least ``floor``.

    The band is the half-width of the pooled interval of confidence 1 - ``error``, which runs of both sides teach.
    Between the floor and a wider band nothing is settled. What another compile may do passes, and is listed.
    """
    runs = [signal.value for signal in now]
    change = _worsening(base, pooled(now).value)
    interval = pooled_interval(base.runs, runs, 1 - error) if all_positive(base, runs) else None
    band = max(floor, interval.high / interval.ratio - 1) if interval else floor
    told = f"{_share(base, pooled(now).value)}, the band is +/-{100 * band:.2f} %"
    if abs(change) > band:
        return Outcome(_beyond(change, band), told, interval=interval)
    if abs(change) > floor or (interval and not _tells(base, runs)):
        message = f"{told} from {_count(base.runs, 'baseline run')} and {len(runs)} now: more runs narrow it"
        return Outcome("inconclusive", message, interval=interval)
    if abs(change) > DEVICE_FLOOR:
        return Outcome("pass", f"{told}: another compile may do that", interval=interval, listed=True)
    return Outcome("pass", interval=interval)


def _tells(base: BaselineSignal, runs: Sequence[float]) -> bool:
    """Return whether a change of ``DEVICE_BAND_LIMIT`` would be seen at all among runs that scatter as these do."""
    usual = pooled_interval(base.runs, runs)
    return usual is not None and usual.high / usual.ratio - 1 <= DEVICE_BAND_LIMIT


def all_positive(base: BaselineSignal, runs: Sequence[float]) -> bool:
    """Return whether every run has a value of which a ratio can be taken."""
    return min(*base.runs, *runs) > 0


def wall_gate(base: BaselineSignal, now: Sequence[Signal]) -> Outcome:
    """Judge a wall signal by the interval of its ratio over runs; what that does not settle is inconclusive."""
    interval = _interval(base, now)
    if interval is None:
        return Outcome("inconclusive", no_interval(base, now))
    tolerance = WALL_TOLERANCES.get(base.name, WALL_TOLERANCE)
    # Turned so that above 1 is worse.
    worse = interval if base.direction == "lower" else interval.inverse()
    text = f"{percent(interval.ratio - 1)}, interval {interval_text(interval)}, tolerance {100 * tolerance:.0f} %"
    if worse.low > 1 + tolerance:
        return Outcome("regressed", text, interval=interval)
    if worse.high < 1 - tolerance:
        return Outcome("improved", text, interval=interval)
    if worse.high < 1 + tolerance:
        return Outcome("pass", text, interval=interval)
    return Outcome("inconclusive", f"{text}; {_to_settle(base, now, tolerance)}", interval=interval)


Gate = Callable[[BaselineSignal, Sequence[Signal]], Outcome]
GATES: dict[Kind, Gate] = {
    "count-strict": strict_gate,
    "count-volume": volume_gate,
    "device": device_gate,
    "wall": wall_gate,
}


def changed_parts(base: BaselineSignal, now: Signal) -> list[PartChange]:
    """Return the parts that differ, largest change first; none where a side does not say what it consists of."""
    if _unattributed(base.value, base.parts) or _unattributed(now.value, now.parts):
        return []
    before, after = parts_by_name(base.parts), parts_by_name(now.parts)
    pairs = [(name, before.get(name), after.get(name)) for name in {**before, **after}]
    changes = [_part_change(*pair) for pair in pairs if _value(pair[1]) != _value(pair[2])]
    return sorted(changes, key=lambda c: (-abs(c.new - c.old), c.name))


def plain(value: float) -> str:
    """Return a number without a needless fraction: counts exactly, others to six digits."""
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def interval_text(interval: tuple[float, ...]) -> str:
    """Return the two ends of the interval of a ratio as changes, ``+1.2 % to +3.4 %``."""
    return f"{percent(interval[-2] - 1)} to {percent(interval[-1] - 1)}"


def _value(part: Part | None) -> float:
    return part.value if part else 0


def _part_change(name: str, old: Part | None, new: Part | None) -> PartChange:
    before, after = old or Part(name=name, value=0), new or Part(name=name, value=0)
    more, less = (after, before) if after.value >= before.value else (before, after)
    # The lines of now, where there are any: those are what the reader has open.
    lines = after.where or before.where
    # A side that does not say its lines, as the baseline of a volume count, does not say which are new either.
    if less.value and not less.where:
        return PartChange(name=name, old=before.value, new=after.value, where=lines)
    changed = sorted(set(more.where) - set(less.where), key=_line_order)
    same = sorted(set(lines) - set(changed), key=_line_order)
    return PartChange(name=name, old=before.value, new=after.value, where=[*changed, *same], changed_lines=changed)


def _line_order(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return (file, int(number)) if number.isdecimal() else (line, 0)


def _unattributed(value: float, parts: Sequence[Part]) -> bool:
    return not parts and value != 0


def sign(direction: Direction) -> int:
    """Return what turns a value so that more is worse: -1 for a rate, else 1."""
    return 1 if direction == "lower" else -1


def _worsening(base: BaselineSignal, value: float) -> float:
    """Return the relative change, above 0 where worse; infinite where the baseline is 0 and the value is not."""
    change = sign(base.direction) * (value - base.value)
    return change / abs(base.value) if base.value else change * float("inf") if change else 0.0


def _beyond(worse: float, tolerance: float) -> Verdict:
    if abs(worse) <= tolerance:
        return "pass"
    return "regressed" if worse > 0 else "improved"


def _strict_message(base: BaselineSignal, now: Sequence[Signal], value: Signal, parts: list[PartChange]) -> str:
    head = _moved(base, value.value)
    runs = [signal.value for signal in now]
    if len(set(runs)) > 1:
        head += f" (the worst of {len(runs)} runs that differ: {plain(min(runs))} to {plain(max(runs))})"
    return _with_parts(head, parts)


def _moved(base: BaselineSignal, value: float) -> str:
    if value == base.value:
        return f"the total is still {plain(value)}, but its parts were replaced"
    share = f" ({_share(base, value)})" if base.value else ""
    return f"{plain(base.value)} -> {plain(value)}{share}"


def _share(base: BaselineSignal, value: float) -> str:
    return percent(value / base.value - 1) if base.value else f"0 -> {plain(value)}"


def _with_parts(head: str, parts: list[PartChange]) -> str:
    # A reason that torch gives may have several lines; here each part is one.
    lines = [
        f"{' '.join(p.name.split())} {plain(p.old)} -> {plain(p.new)}{_at(p.lines)}" for p in parts[:PARTS_IN_MESSAGE]
    ]
    if len(parts) > PARTS_IN_MESSAGE:
        lines.append(f"and {len(parts) - PARTS_IN_MESSAGE} more parts")
    return "\n".join([head, *lines])


def _at(where: Sequence[str]) -> str:
    more = len(where) - LINES_IN_MESSAGE
    listed = ", ".join(where[:LINES_IN_MESSAGE]) + (f" and {more} more" if more > 0 else "")
    return f" at {listed}" if where else ""


def percent(fraction: float) -> str:
    """Return a change with its sign, ``+1.20 %``; a small one with the decimals that show it, ``-0.005 %``."""
    # What few runs leave open may be astronomical.
    if fraction >= LARGEST_SHOWN:
        return f"over +{100 * LARGEST_SHOWN:.0f} %"
    shown = (f"{100 * fraction:+.{decimals}f}" for decimals in DECIMALS)
    return f"{next((text for text in shown if float(text)), '+0.00')} %"


def _count(runs: Sequence[object], noun: str) -> str:
    return f"{len(runs)} {noun}{'' if len(runs) == 1 else 's'}"


def _interval(base: BaselineSignal, now: Sequence[Signal]) -> RatioInterval | None:
    """Return the interval of now / baseline, or None where there are too few runs or a value is no time or size."""
    runs = [signal.value for signal in now]
    if min(len(base.runs), len(runs)) < 2 or not all_positive(base, runs):
        return None
    return ratio_interval(base.runs, runs)


def no_interval(base: BaselineSignal, now: Sequence[Signal]) -> str:
    """Return why these runs give no interval of a ratio."""
    if min(len(base.runs), len(now)) < 2:
        return f"an interval needs 2 runs a side; there are {len(base.runs)} in the baseline and {len(now)} now"
    return "a run's value is not above 0, so there is no ratio"


def _to_settle(base: BaselineSignal, now: Sequence[Signal], tolerance: float) -> str:
    boundary = 1 + tolerance if base.direction == "lower" else 1 / (1 + tolerance)
    runs = further_runs(base.runs, [signal.value for signal in now], boundary)
    if runs is None:
        return "more runs alone will not settle it: approve a baseline of more runs, or use a quieter machine"
    return further_text(runs, "run")


def further_text(number: int | None, noun: str) -> str:
    """Return how many more runs or pairs would settle an answer; None stands for too many."""
    if number is None:
        return f"more than {MOST_FURTHER_RUNS} {noun}s would be needed: use a quieter machine"
    return f"about {number} more {noun}{'' if number == 1 else 's'} would settle it"
