"""Numbers and untrusted text -> what a reader sees."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from perf.gates import percent, plain
from perf.record import Kind
from perf.verdicts import SignalVerdict

# Name of a unit in records -> how many of its base unit, and the base unit's ladder below.
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES = {"B": 1.0, "bytes": 1.0, "byte": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_COUNTS = ("", "1", "count")
_TIME_LADDER = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
# Decimal units, and MB up to 10 GB: a change of 0.5 % of 1.8 GB is then seen.
_BYTES_LADDER = ((1e10, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SCALES = {"GB": 1e9}


def seconds(value: float, unit: str) -> float | None:
    """Return a time in seconds, or None where ``unit`` is none of s, ms, us, ns."""
    return value * _TIME[unit] if unit in _TIME else None


def minutes(time: float) -> str:
    """Return a time in s in words."""
    return f"{time:.0f} s" if time < 120 else f"{time / 60:.0f} min"


def number(value: float | None, kind: Kind, unit: str, *, least: int = 1) -> str:
    """Return a value with its unit: counts exactly, times and sizes on a readable scale, ``-`` for None.

    ``least``: decimals of a time or size at least, also where four digits stand before the point.
    """
    if value is None:
        return "-"
    for units, ladder in ((_TIME, _TIME_LADDER), (_BYTES, _BYTES_LADDER)):
        if unit in units:
            # Nothing is on every scale: it keeps its own.
            return _scaled(value * units[unit], ladder, least) if value else f"0 {unit}"
    shown = plain(value)
    return shown if kind.startswith("count") or unit in _COUNTS else f"{shown} {unit}"


def over_runs(values: Sequence[float], kind: Kind, unit: str) -> str:
    """Return the median of the runs with its unit, their range, and their number n; not of none."""
    middle, low, high = (_short(end(values), kind, unit) for end in (statistics.median, min, max))
    if low == high:
        return f"{middle} (n={len(values)}{', all alike' if len(values) > 1 else ''})"
    return f"{middle} ({between(min(values), max(values), kind, unit)}, n={len(values)})"


def between(low: float, high: float, kind: Kind, unit: str) -> str:
    """Return two ends, with the unit once where it is the same."""
    first, last = (_short(end, kind, unit) for end in (low, high))
    shared = last.rpartition(" ")[2]
    return f"{first.removesuffix(f' {shared}')} to {last}"


def _short(value: float, kind: Kind, unit: str) -> str:
    return number(_told(value, kind), kind, unit, least=0)


def _told(value: float, kind: Kind) -> float:
    """Return a value with the digits that a reader can use: all of a count."""
    return value if kind.startswith("count") else float(f"{value:.4g}")


def change(row: SignalVerdict) -> str:
    """Return the change of a row: absolute for counts, with the share of a volume; else relative; empty for none."""
    if row.change is None:
        return ""
    share = percent(row.change / abs(row.baseline)) if row.baseline else ""
    if row.change == 0:
        return "0"
    if row.kind.startswith("count") or not share:
        exact = f"+{plain(row.change)}" if row.change > 0 else plain(row.change)
        return f"{exact} ({share})" if share and row.kind == "count-volume" else exact
    return share


def printable(text: str) -> str:
    """Return ``text`` without control characters, which could repaint the reader's terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _scaled(value: float, ladder: tuple[tuple[float, str], ...], least: int) -> str:
    threshold, unit = next((step for step in ladder if abs(value) >= step[0]), ladder[-1])
    scaled = value / _SCALES.get(unit, threshold)
    if unit == "B":
        return f"{plain(scaled)} {unit}"
    return f"{scaled:.{_decimals(abs(scaled), least)}f} {unit}"


def _decimals(value: float, least: int) -> int:
    """Return how many decimals make four digits, at least ``least``."""
    return 3 if value < 10 else 2 if value < 100 else max(1 if value < 1000 else 0, least)
