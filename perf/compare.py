"""Comparisons: the records of a base and of a head -> verdicts on the head.

Where both sides come from one session of :mod:`perf.ab`, run i of the one was measured beside run i of the other, and
time and memory are judged by intervals. Two sessions are judged as a session is against a stored baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perf.baselines import FOLDER, Baseline, find_baseline
from perf.judge import Options, judge, last_line
from perf.pool import by_case
from perf.record import Record
from perf.refresh import unapproved
from perf.stats import Noise, noise_of
from perf.verdicts import CaseVerdict, Judgement, SignalVerdict

# The sides of a session that interleaves them, and the names of their folders in it.
BASE, HEAD = "base", "head"
# Left by such a session in its folder; without it two folders are two sessions.
MANIFEST = "ab.json"


def sides(first: Path, second: Path | None) -> tuple[Path, Path]:
    """Return the folders of base and head: those given, or those in the one folder of an interleaved session.

    Raises:
        ValueError: one folder, and it is no such session.
    """
    if second is not None:
        return first, second
    if not (first / MANIFEST).is_file():
        msg = f"{first}: no {MANIFEST} there, so it is no session of rfdetr-perf ab; give two folders, base and head"
        raise ValueError(msg)
    return first / BASE, first / HEAD


def of_one_session(base: Path, head: Path) -> bool:
    """Return whether these folders are the two sides of one interleaved session."""
    base, head = base.resolve(), head.resolve()
    session = base.parent
    return session == head.parent and (session / MANIFEST).is_file() and {base.name, head.name} == {BASE, HEAD}


def compare(base: Sequence[Record], head: Sequence[Record], options: Options) -> Judgement:
    """Judge the runs of ``head`` against those of ``base``, case by case; a case that one side lacks is a verdict.

    Raises:
        ValueError: runs of one side that cannot be pooled; names both.
    """
    before, after = by_case(base), by_case(head)
    baselines: dict[str, Baseline] = {}
    kept: list[Record] = []
    for case_id, runs in after.items():
        earlier = [record for record in before.get(case_id, []) if record.status == "finished"]
        earlier, now = usable_pairs(earlier, runs) if options.one_session and earlier else (earlier, runs)
        kept += now
        if earlier:
            baselines[case_id] = unapproved(earlier)
    found = judge(kept, baselines, expected=list(before), options=options)
    return found.model_copy(update={"cases": [_with_failed_base(case, before) for case in found.cases]})


def _with_failed_base(case: CaseVerdict, base: Mapping[str, Sequence[Record]]) -> CaseVerdict:
    """Return the verdict with a row for what the base failed with, where that is why nothing can be compared."""
    runs = base.get(case.case_id, [])
    if not runs or any(run.status == "finished" for run in runs):
        return case
    row = SignalVerdict(
        case_id=case.case_id,
        signal=BASE,
        kind="info",
        verdict="no-baseline",
        message=f"the base did not finish: {last_line(runs[0])}",
        reproduce=runs[0].command,
    )
    return case.model_copy(update={"signals": [row, *case.signals]})


def usable_pairs(base: Sequence[Record], head: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return the finished runs that both sides have, side by side, and with those of ``head`` all that failed.

    Pairs in which a run compiled cold are left out, unless all are such: memory's peak is another while Inductor
    compiles, and only one side of a pair may have had to.
    """
    first, second = ({record.run: record for record in side if record.status == "finished"} for side in (base, head))
    failed = [record for record in head if record.status != "finished"]
    paired = sorted(set(first) & set(second))
    warm = [run for run in paired if not (_is_cold(first[run]) or _is_cold(second[run]))] or paired
    return [first[run] for run in warm], [*(second[run] for run in warm), *failed]


def known_noise(head: Sequence[Record], baselines: Path = FOLDER) -> dict[tuple[str, str], Noise]:
    """Return what the stored baselines of this device teach about the scatter of device signals.

    Raises:
        ValueError: a baseline that cannot be used; names the file.
    """
    found = {}
    for case_id, records in by_case(head).items():
        baseline = find_baseline(baselines, records[0])
        for signal in baseline.signals if baseline else []:
            if signal.kind == "device":
                found[case_id, signal.name] = noise_of(signal.runs)
    return found


def _is_cold(record: Record) -> bool:
    missed = record.signal("inductor_cache_misses")
    return missed is not None and missed.value > 0
