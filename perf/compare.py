"""Comparisons: the records of a base and of a head -> verdicts on the head.

Where both sides come from one session of :mod:`perf.ab`, run i of the one was measured beside run i of the other, and
time and memory are judged by intervals. Two sessions are judged as a session is against a stored baseline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from perf.baselines import FOLDER, Baseline, find_baseline
from perf.expectations import last_line, not_compiled
from perf.judge import Options, judge
from perf.pool import by_case
from perf.record import Record
from perf.refresh import unapproved
from perf.run_order import MANIFEST
from perf.stats import Noise, noise_of
from perf.verdicts import CaseVerdict, Judgement, SignalVerdict, exit_code, summarize, worst

# The sides of a session that interleaves them, and the names of their folders in it.
BASE, HEAD = "base", "head"


def sides(first: Path, second: Path | None) -> tuple[Path, Path]:
    """Return the folders of base and head: those given, or those in the one folder of an interleaved session.

    Raises:
        ValueError: one folder, and it is no such session.
    """
    if second is not None:
        return first, second
    if not first.is_dir():
        msg = f"{first}: no such folder"
        raise ValueError(msg)
    if not (first / MANIFEST).is_file():
        msg = f"{first}: no {MANIFEST} there, so it is no session of rfdetr-perf ab; give two folders, base and head"
        raise ValueError(msg)
    return first / BASE, first / HEAD


def session_of(base: Path, head: Path) -> Path | None:
    """Return the folder of the interleaved session whose sides these are; None where they are no such sides."""
    base, head = base.resolve(), head.resolve()
    same = base.parent == head.parent and (base.name, head.name) == (BASE, HEAD)
    return base.parent if same and (base.parent / MANIFEST).is_file() else None


def compare(
    base: Sequence[Record],
    head: Sequence[Record],
    options: Options,
    expected: Collection[str] = (),
    against: Mapping[str, str] = {},
) -> Judgement:
    """Judge the runs of ``head`` against those of ``base``, case by case.

    ``against`` says which case of the base stands for a case of the head, where that is another one.

    A case that one side lacks is a verdict, and so is one of the ``expected`` that both lack.

    Raises:
        ValueError: runs of one side that cannot be pooled; names both.
    """
    before, after = by_case(base), by_case(head)
    named = {theirs: ours for ours, theirs in against.items()}
    before = {named.get(case_id, case_id): runs for case_id, runs in before.items()}
    baselines: dict[str, Baseline] = {}
    kept: list[Record] = []
    for case_id, runs in after.items():
        earlier = [record for record in before.get(case_id, []) if record.status == "finished"]
        earlier, now = usable_pairs(earlier, runs) if options.one_session and earlier else (earlier, runs)
        kept += now
        if earlier and not not_compiled(earlier):
            baselines[case_id] = unapproved(earlier)
    found = judge(kept, baselines, expected=list(dict.fromkeys([*before, *expected])), options=options)
    return judgement_of([_with_base(case, before.get(case.case_id, [])) for case in found.cases])


def judgement_of(cases: Sequence[CaseVerdict]) -> Judgement:
    """Return the judgement that these verdicts make."""
    code = exit_code(worst(case.verdict for case in cases))
    return Judgement(cases=list(cases), exit_code=code, summary=summarize(cases))


def _with_base(case: CaseVerdict, base: Sequence[Record]) -> CaseVerdict:
    """Return the verdict with a row for what is wrong with the base, where something is: then it is no pass."""
    failed = [run for run in base if run.status != "finished"]
    finished = [run for run in base if run.status == "finished"]
    told = ""
    if not base:
        told = "the base left no record of this case"
    elif failed:
        told = f"the base did not finish in run {failed[0].run}: {last_line(failed[0])}"
    elif reason := not_compiled(finished):
        told = f"the base did not compile: {reason}"
    if not told:
        return case
    row = SignalVerdict(
        case_id=case.case_id,
        signal=BASE,
        kind="info",
        verdict="inconclusive" if finished and failed else "no-baseline",
        message=told,
        reproduce=base[0].command if base else "",
    )
    rows = [row, *case.signals]
    verdict = worst(row.verdict for row in rows) or case.verdict
    return case.model_copy(update={"signals": rows, "verdict": verdict})


def usable_pairs(base: Sequence[Record], head: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return the finished runs that both sides have, side by side, and with those of ``head`` all that failed.

    Pairs in which a run compiled cold are left out: memory's peak is another while Inductor compiles, and only one
    side of a pair may have had to. Where all are such, those of ``head`` are marked as not timed.
    """
    first, second = ({record.run: record for record in side if record.status == "finished"} for side in (base, head))
    failed = [record for record in head if record.status != "finished"]
    paired = sorted(set(first) & set(second))
    warm = [run for run in paired if not (is_cold(first[run]) or is_cold(second[run]))]
    if warm or not paired:
        return [first[run] for run in warm], [*(second[run] for run in warm), *failed]
    untimed = [second[run].model_copy(update={"untimed": True}) for run in paired]
    return [first[run] for run in paired], [*untimed, *failed]


def warm_pairs(base: Sequence[Record], head: Sequence[Record]) -> int:
    """Return how many pairs of runs count: finished on both sides, and neither compiled cold."""
    pairs = zip(*usable_pairs(base, head), strict=False)
    return sum(not (is_cold(first) or is_cold(second)) for first, second in pairs)


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


def is_cold(record: Record) -> bool:
    """Return whether a run compiled something that Inductor's cache did not have."""
    missed = record.signal("inductor_cache_misses")
    return missed is not None and missed.value > 0
