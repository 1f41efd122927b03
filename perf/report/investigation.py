"""An investigation's folder -> ``report.md``, ready for an issue, and ``report.html``, one file for any browser.

Made from the records alone: needs neither torch nor rfdetr, and can be made again at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perf.compare import is_cold
from perf.diagnosis import Diagnosis, diagnose
from perf.findings import budgets
from perf.investigation import Found, read_found
from perf.record import Record, Signal, write_atomically
from perf.report.blocks import Block, Code, Heading, Items, Link, Paragraph, Text
from perf.report.blocks_html import page
from perf.report.blocks_markdown import markdown
from perf.report.investigation_gpu import gpu_section
from perf.report.investigation_input import input_section
from perf.report.investigation_setting import differences, methods, setting
from perf.report.investigation_step import (
    candidate,
    compile_section,
    memory_section,
    more_section,
    step_section,
)
from perf.report.investigation_syncs import sync_section
from perf.report.investigation_traceml import traceml_section
from perf.report.missing import Missing

REPORTS = ("report.md", "report.html")
_SECTIONS: tuple[Callable[[Found, Missing], list[Block]], ...] = (
    candidate,
    step_section,
    gpu_section,
    sync_section,
    input_section,
    more_section,
    memory_section,
    compile_section,
    traceml_section,
)


def write_report(folder: Path) -> list[Path]:
    """Write both reports of the investigation in ``folder``, and return where they are.

    Raises:
        ValueError: there is no investigation, or its manifest cannot be read.
    """
    found = read_found(folder)
    blocks = document(found)
    texts = (markdown(blocks), page(_title(found), blocks))
    paths = [folder / name for name in REPORTS]
    for path, text in zip(paths, texts, strict=True):
        write_atomically(path, text)
    return paths


def document(found: Found) -> list[Block]:
    """Return the whole report: what was found first, then what it was measured with, then every number."""
    missing = Missing()
    sections = [block for section in _SECTIONS for block in section(found, missing)]
    return [
        Heading(_title(found), 1),
        *_diagnosis(found),
        *setting(found),
        *sections,
        *methods(found),
        *_not_measured(found, missing),
        *_notes(found, missing),
        *_files(found),
    ]


def _title(found: Found) -> str:
    runs = next(iter(found.sides["base"].values()))
    case, records = runs.case, found.records
    device = (records[0].environment.gpu_name or records[0].environment.cpu_model) if records else "no record"
    lane = " (reduced, cpu lane)" if case.lane == "cpu" else ""
    return f"Where a training step goes: {case.config}{lane}, batch size {case.batch_size}, {device}"


def _diagnosis(found: Found) -> list[Block]:
    fit = found.of("fit")
    if fit is None:
        return [Paragraph("No diagnosis: the training loop was not asked for (fit).", strong=True)]
    if differ := differences(fit.finished):
        told = "No diagnosis: the runs of the training loop are not of one machine and installation."
        return [Paragraph(told, strong=True), Items(differ)]
    made = diagnose(budgets(fit), fit.case.workers, has_gpu=fit.case.lane == "gpu")
    said: list[Block] = [Paragraph(made.told, strong=True)]
    evidence: list[Text] = [*made.evidence, *_agreement(made), *(one.text for one in made.ceilings[1:])]
    return [*said, Items(evidence)] if evidence else said


def _agreement(made: Diagnosis) -> list[str]:
    if made.agree == made.runs:
        return []
    return [f"of {made.runs} runs {made.agree} come to this by themselves: more runs would tell"]


def _not_measured(found: Found, missing: Missing) -> list[Block]:
    problems = (problem.replace(f"{found.folder}/", "") for problem in found.problems)
    lines: list[Text] = [*missing.lines, *map(Code, problems)]
    for side, cases in found.sides.items():
        for runs in cases.values():
            lines += [(f"{side}, ", Code(runs.case.id), ": ", Code(failure)) for failure in runs.failures]
            lines += _too_few(found, side, runs.case.id, len(runs.records))
    if any(runs.case.lane == "cpu" for runs in found.sides["base"].values()):
        lines.append("anything of a GPU: this is the cpu lane, with a reduced model; its times say nothing of a GPU")
    lines += [*_one_size(found), *_warm_caches(found)]
    lines.append(("several GPUs: ", Code("--suite distributed"), " does"))
    return [Heading("Not measured"), Items(lines)]


def _one_size(found: Found) -> list[Text]:
    """Return what is not seen where batches have one size, which is not what rfdetr does by default."""
    if any(record.case.multi_scale != "off" for record in found.records) or not found.records:
        return []
    told = (
        " here: every batch has the model's own size. rfdetr's default, ",
        Code("per-batch"),
        ", draws another for each: resizing it, interpolating the positional embedding, other kernels and recompiling "
        "for its shapes are in no number here",
    )
    return [("training at several sizes: ", Code("multi_scale='off'"), *told)]


def _warm_caches(found: Found) -> list[Text]:
    """Return which runs' first step is no cold compile: they found their graphs in Inductor's cache."""
    compiled = found.of("step", compiled=True)
    hits = [int(s.value) for r in compiled.finished if not is_cold(r) and (s := _hits(r))] if compiled else []
    if compiled is None or not hits:
        return []
    runs = f"{len(hits)} of {len(compiled.finished)} compiled runs"
    graphs = f"{min(hits)}" if min(hits) == max(hits) else f"{min(hits)} to {max(hits)}"
    told = f" of {runs} is with a warm cache, {graphs} graphs from it and none generated"
    return [("compiling cold: ", Code("first_step"), told)]


def _hits(record: Record) -> Signal | None:
    found = record.signal("inductor_cache_hits")
    return found if found and found.value else None


def _notes(found: Found, missing: Missing) -> list[Block]:
    """Return what the runs say of themselves, unless it has been said."""
    each = [runs for cases in found.sides.values() for runs in cases.values()]
    lines: list[Text] = [(Code(r.case.id), ": ", Code(n)) for r in each for n in r.notes if n not in missing.told]
    return [Heading("What the runs note"), Items(lines)] if lines else []


def _too_few(found: Found, side: str, case_id: str, there: int) -> list[Text]:
    wanted = found.asked.runs
    if there >= wanted:
        return []
    more = " (--budget leaves out what would not fit: --resume with a larger one goes on)" if found.asked.budget else ""
    return [(f"{side}, ", Code(case_id), f": {there} of {wanted} runs left a record{more}")]


def _files(found: Found) -> list[Block]:
    """Return the records, traces and explanations that lie beside the report."""
    kept: dict[str, None] = {}
    for path in sorted(found.folder.rglob("*")):
        if path.is_file() and path.name.endswith(_KEPT) and path.parent != found.folder:
            kept[path.relative_to(found.folder).as_posix()] = None
    links: Sequence[Text | Link] = [Link(path) for path in kept] or ["none"]
    return [Heading("Records, traces and explanations beside this report"), Items(links)]


_KEPT = (".record.json", ".explain.txt", ".recompiles.log", ".json.gz", ".curve.svg", "final_summary.json", ".txt")
