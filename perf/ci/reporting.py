"""Reporting: what a run's jobs left -> verdicts, comment, summary, page and annotations."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perf.ci.fetch import Fetched, fetch, planned
from perf.ci.github import GitHub
from perf.ci.machines import Cell
from perf.ci.outcome import job_verdict, judge_cell
from perf.record import write_atomically
from perf.report.comment import Origin, comment
from perf.report.page import Timelines, approved_in, render
from perf.report.section import Section, rows_of
from perf.report.timeline import read_timelines
from perf.verdicts import CaseVerdict, exit_code, worst


class Report(NamedTuple):
    """What is told of a run. ``exit_code`` is that of the worst verdict, and never 0 where nothing was judged."""

    sections: Sequence[Section]
    comment: str
    exit_code: int


def report(
    github: GitHub, run: int, cells: Sequence[Cell], folder: Path, baselines: Path, origin: Origin, page: Path | None
) -> Report:
    """Fetch what the jobs of ``cells`` left in a run, judge it, and write the ``page``.

    Raises:
        OSError: GitHub does not say what the run left.
    """
    fetched = fetch(github, run, planned(cells), folder)
    return report_of(fetched, run, cells, baselines, origin, page)


def report_of(
    fetched: Fetched, run: int, cells: Sequence[Cell], baselines: Path, origin: Origin, page: Path | None
) -> Report:
    """Judge what was fetched. What cannot be shown is a verdict too, as what cannot be judged is."""
    sections = [_section(fetched, run, cell, baselines) for cell in cells]
    try:
        timelines = {case: runs for cell in cells for case, runs in read_timelines(fetched.folders[cell.id]).items()}
        return _written(sections, origin, baselines, page, timelines)
    except Exception as error:  # whoever wrote these files must not keep the verdict from being told
        what = f"judged, but cannot be shown: {type(error).__name__}: {error}"
        told = [Section(cell.id, [job_verdict(cell, "failed", what)]) for cell in cells]
        return _written(told, origin, baselines, page, {})


def _written(
    sections: Sequence[Section], origin: Origin, baselines: Path, page: Path | None, timelines: Timelines
) -> Report:
    if page:
        write_atomically(page, render(sections, origin, approved_in(sections, baselines), timelines))
    code = exit_code(worst(row.verdict for _, _, row in rows_of(sections)))
    return Report(sections, comment(sections, origin), code)


def _section(fetched: Fetched, run: int, cell: Cell, baselines: Path) -> Section:
    problem, conclusion = fetched.problems.get(cell.id, ""), fetched.conclusions.get(cell.id)
    found = judge_cell(cell, fetched.folders[cell.id], baselines, conclusion, problem)
    return found._replace(cases=[_refreshable(case, run) for case in found.cases])


def _refreshable(case: CaseVerdict, run: int) -> CaseVerdict:
    """Return the verdict with the command by which a person has this run's values approved."""
    command = f"gh workflow run refresh.yml -f run-id={run} -f cases={shlex.quote(case.case_id)} -f reason=..."
    rows = [row.model_copy(update={"refresh": command if row.refresh else ""}) for row in case.signals]
    return case.model_copy(update={"signals": rows})
