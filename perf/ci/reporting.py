"""Reporting: what a run's jobs left -> verdicts, comment, summary, page and annotations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perf.ci.artifacts import PREFIX
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


class Place(NamedTuple):
    """Where a run lies; ``of_suite``: in the repository of this suite, which has the baselines and refresh.yml."""

    github: GitHub
    run: int
    of_suite: bool = True


class Report(NamedTuple):
    """What is told of a run. ``exit_code`` is that of the worst verdict, and never 0 where nothing was judged."""

    sections: Sequence[Section]
    comment: str
    exit_code: int


def report(
    place: Place, cells: Sequence[Cell], folder: Path, baselines: Path, origin: Origin, page: Path | None
) -> Report:
    """Fetch what the jobs of ``cells`` left in a run, judge it, and write the ``page``.

    Raises:
        OSError: GitHub does not say what the run left.
    """
    fetched = fetch(place.github, place.run, planned(cells), folder)
    return report_of(fetched, place, cells, baselines, origin, page)


def report_of(
    fetched: Fetched, place: Place, cells: Sequence[Cell], baselines: Path, origin: Origin, page: Path | None
) -> Report:
    """Judge what was fetched. What cannot be shown is a verdict too, as what cannot be judged is."""
    sections = [_section(fetched, place, cell, baselines) for cell in cells]
    try:
        return _written(sections, origin, baselines, page, _timelines(fetched, cells))
    except Exception as error:  # whoever wrote these files must not keep the verdict from being told
        what = f"judged, but cannot be shown: {type(error).__name__}: {error}"
        told = [Section(cell.id, [job_verdict(cell, "failed", what)]) for cell in cells]
        return _written(told, origin, baselines, page, {})


def _timelines(fetched: Fetched, cells: Sequence[Cell]) -> Timelines:
    """Return when each job's runs compiled again, by its section and case: machines have cases of the same name."""
    return {(cell.id, case): runs for cell in cells for case, runs in read_timelines(fetched.folders[cell.id]).items()}


def _written(
    sections: Sequence[Section], origin: Origin, baselines: Path, page: Path | None, timelines: Timelines
) -> Report:
    if page:
        write_atomically(page, render(sections, origin, approved_in(sections, baselines), timelines))
    code = exit_code(worst(row.verdict for _, _, row in rows_of(sections)))
    return Report(sections, comment(sections, origin), code)


def _section(fetched: Fetched, place: Place, cell: Cell, baselines: Path) -> Section:
    problem, conclusion = fetched.problems.get(cell.id, ""), fetched.conclusions.get(cell.id)
    folder = fetched.folders[cell.id]
    found = judge_cell(cell, folder, baselines, conclusion, problem)
    return found._replace(cases=[_refreshable(case, place, cell, folder) for case in found.cases])


def _refreshable(case: CaseVerdict, place: Place, cell: Cell, folder: Path) -> CaseVerdict:
    """Return the verdict with the command by which a person has this run's values approved."""
    rows = [
        row.model_copy(update={"refresh": _command(row.refresh, case.case_id, place, cell, folder)})
        for row in case.signals
    ]
    return case.model_copy(update={"signals": rows})


def _command(here: str, case_id: str, place: Place, cell: Cell, folder: Path) -> str:
    """Return the command to run elsewhere for the one that would approve the same ``here``; empty for none."""
    case, run = shlex.quote(case_id), place.run
    if place.of_suite:
        return f"gh workflow run refresh.yml -f run-id={run} -f cases={case} -f reason=..." if here else ""
    # In a checkout of the suite: refresh.yml is there, and reads no other repository's runs.
    session = re.match(rf"rfdetr-perf refresh {re.escape(str(folder))}/(?P<path>[\w.-]+(?:/[\w.-]+)*) ", here)
    if session is None:
        return ""
    download = f"gh run download {run} -R {place.github.repository} -n {PREFIX}{cell.id} -D run-{run}"
    return f'{download} && rfdetr-perf refresh run-{run}/{session["path"]} --case {case} --reason "..."'
