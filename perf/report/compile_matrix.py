"""The compile matrix as a document: Markdown, from the rows of the store alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from perf.case import Case
from perf.compile_matrix import Row, merged, read_store, rows_of, store_text, version_key
from perf.matrix import DEFAULT_MINOR, DEFAULT_RFDETR, MATRIX, RELEASES, KnownFailure, known_failure, matcher
from perf.record import read_records
from perf.report.compile_tables import COCO_IMAGES, NOT_RUN, configs, count, paying, sections
from perf.report.html import escape
from perf.report.markdown import code, table, text
from perf.stores import renew


def regenerate(
    records: Sequence[Path], store: Path, out: Path, steps_per_epoch: int | None = None, check: bool = False
) -> tuple[int, str]:
    """Merge the records below ``records`` into the store and write the document; return exit code and what to say.

    With ``check`` nothing is written, and the code is 1 where a file would change.

    Raises:
        ValueError: a record or the store cannot be used, or there is no record; names the file, and the store's line.
    """
    rows = read_store(store)
    found = [record for path in records for record in read_records(path)]
    rows = merged(rows, rows_of(found))
    files = {store: store_text(rows), out: document(rows, steps_per_epoch)}
    return renew(files, "rfdetr-perf matrix", check=check)


KNOWN_BAD = "known not to work"

_INTRO = """\
# Compile matrix

What `torch.compile` makes of RF-DETR's training step: rfdetr release x torch minor x config, as measured. Made from
[compile-matrix.jsonl](compile-matrix.jsonl) by

    rfdetr-perf matrix [RECORDS ...]

which takes the rows of new records into that file first. Do not edit by hand: `rfdetr-perf matrix --check` fails then.

- *compiled*: the model's own forward was compiled and no frame fell back. *fell back*: a frame failed and ran eagerly.
  *not compiled*: compile was on, and the model's forward ran eagerly all the same. *raised*: the run ended with an
  error. *not run*: nobody has measured it yet. *cut off*: the run was stopped when its training steps had been counted.
- Numbers of graphs and breaks are of the training steps of one run, those under *evaluation* are what the validation
  loop adds: graphs / breaks / recompiles.
- First step: *cold* and *warm* say whether Inductor had to compile a graph or found all of them in its cache; with
  another backend no code is generated, and the time is that of capturing.
- Compiling *pays back* after (first step compiled - first step eager) / (step eager - step compiled) steps. {epochs}
  These are wall times, which differ between sessions and machines more than within one.
"""


def document(rows: Sequence[Row], steps_per_epoch: int | None = None) -> str:
    """Return the document: Markdown, from the rows alone. An epoch is COCO's unless ``steps_per_epoch`` is given."""
    if steps_per_epoch is None:
        epochs = f"An epoch is\n  COCO 2017 train's: {COCO_IMAGES} images over the batch size, rounded up."
    else:
        epochs = f"An epoch has\n  {steps_per_epoch} steps."
    intro = _INTRO.replace("{epochs}", epochs)
    devices = sorted({row.device for row in rows})
    parts = [_device([row for row in rows if row.device == device], steps_per_epoch) for device in devices]
    return "\n".join([intro, *(parts or ["Nothing has been measured yet.\n"]), _not_working(rows)])


def _device(rows: Sequence[Row], steps_per_epoch: int | None) -> str:
    compiled = [row for row in rows if _compiles(row)]
    blocks = [f"## On {code(rows[0].device)}\n"]
    blocks += [_releases(case_id, compiled) for case_id in _charted(compiled)]
    pairs = sorted({(row.rfdetr, row.torch_minor) for row in rows}, key=_newest, reverse=True)
    by_pair = [_pair(pair, [row for row in rows if _pair_of(row) == pair], steps_per_epoch) for pair in pairs]
    blocks += [
        by_pair[0],
        *(_fold(_pair_name(pair), block) for pair, block in zip(pairs[1:], by_pair[1:], strict=True)),
    ]
    return "\n".join([*blocks, *_details(rows)])


def _fold(summary: str, block: str) -> str:
    """Return a block that a reader opens by its summary, which is plain text."""
    return f"<details><summary><code>{escape(summary)}</code></summary>\n\n{block}\n</details>\n"


def _pair_name(pair: tuple[str, str]) -> str:
    return f"rfdetr {pair[0]}, torch {pair[1]}"


def _compiles(row: Row) -> bool:
    return row.case.compile if row.case else row.case_id != row.eager


def _pair_of(row: Row) -> tuple[str, str]:
    return (row.rfdetr, row.torch_minor)


def _newest(pair: tuple[str, str]) -> tuple[object, ...]:
    rfdetr, minor = pair
    # What is measured unless asked otherwise comes first.
    return (rfdetr == DEFAULT_RFDETR, minor == DEFAULT_MINOR, version_key(rfdetr), version_key(minor))


def _charted(rows: Sequence[Row]) -> list[str]:
    """Return the cases worth a chart of releases: those measured with more than two, else the plainest of Nano."""
    pairs: dict[str, set[tuple[str, str]]] = {}
    rows = [row for row in rows if _kind(row) == "configs"]
    for row in rows:
        pairs.setdefault(row.case_id, set()).add(_pair_of(row))
    several = sorted(case_id for case_id, found in pairs.items() if len(found) > 2)
    nano = sorted((row.case_id for row in rows if row.config == "nano"), key=lambda case_id: (len(case_id), case_id))
    return several or nano[:1]


def _releases(case_id: str, rows: Sequence[Row]) -> str:
    """Return the chart of one case: torch minors down, rfdetr releases across."""
    found = {_pair_of(row): row for row in rows if row.case_id == case_id}
    releases = sorted({*RELEASES, *(rfdetr for rfdetr, _ in found)}, key=version_key)
    minors = sorted({*MATRIX, *(minor for _, minor in found)}, key=version_key)
    lines = [[minor, *(_chart_cell(found.get((rfdetr, minor)), minor) for rfdetr in releases)] for minor in minors]
    heading = f"### {code(case_id)}, by rfdetr release (across) and torch minor (down)\n"
    return "\n".join(
        [heading, "Graphs / graph breaks of what compiled.\n", table(["torch", *map(text, releases)], lines)]
    )


def _chart_cell(row: Row | None, minor: str) -> str:
    if row is None:
        return KNOWN_BAD if known_failure(minor, compiled=False) else NOT_RUN
    numbers = f" {count(row, 'graphs')} / {count(row, 'graph_breaks')}" if "graphs" in row.counts else ""
    return f"{row.outcome}{numbers}{', runs differ' if row.differing else ''}"


def _pair(pair: tuple[str, str], rows: Sequence[Row], steps_per_epoch: int | None) -> str:
    with_what = dict.fromkeys(f"torch {r.torch}, transformers {r.transformers}, Python {r.python}" for r in rows)
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(_kind(row), []).append(row)
    compiled = by_kind.get("configs", [])
    if "settings" in by_kind:  # beside the step as rfdetr compiles it
        tried = {(row.config, row.batch, row.lane) for row in by_kind["settings"]}
        by_kind["settings"] += [row for row in compiled if (row.config, row.batch, row.lane) in tried]
    eager = {row.case_id: row for row in rows if not _compiles(row)}
    blocks = [
        f"### Configs with {text(_pair_name(pair))}\n",
        f"Measured with {text('; '.join(with_what))}.\n",
        configs(compiled),
        *sections(by_kind),
        *paying(compiled, eager, steps_per_epoch),
    ]
    return "\n".join(blocks)


def _kind(row: Row) -> str:
    """Return which table a row belongs to."""
    case = row.case
    if not _compiles(row):
        return "eager"
    if case is None or case.measure == "step":
        return "configs" if case is None or _as_rfdetr_compiles(case) else "settings"
    return case.measure


def _as_rfdetr_compiles(case: Case) -> bool:
    own = (case.dynamic, case.mode, case.suppress_errors, case.capture_scalars, case.cuda_graphs)
    return own == ("rfdetr", "default", None, None, False)


_TITLES = {
    "frames_failed": "frames that fell back",
    "graph_breaks": "graph breaks",
    "recompiles": "recompiles",
    "eval_frames_failed": "frames that fell back in evaluation",
    "shapes": "steps by shape",
    "eval_graph_breaks": "graph breaks in evaluation",
    "eval_recompiles": "recompiles in evaluation",
}


def _details(rows: Sequence[Row]) -> list[str]:
    """Return what the counts are made of, folded; cases that say the same share it."""
    shared: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: _newest(_pair_of(row)), reverse=True):
        for name, parts in row.reasons.items():
            if name not in _TITLES:  # in a table of its own
                continue
            same = json.dumps([part.model_dump(mode="json") for part in parts])
            shared.setdefault((name, same), []).append(row)
    order = list(_TITLES)
    return [
        _folded(name, found) for (name, _), found in sorted(shared.items(), key=lambda item: order.index(item[0][0]))
    ]


def _folded(name: str, rows: Sequence[Row]) -> str:
    parts = rows[0].reasons[name]
    total = sum(part.value for part in parts)
    lines = [[f"{part.value:g}", code(part.name), ", ".join(map(code, part.where)) or "-"] for part in parts]
    return _fold(f"{_TITLES[name]} ({total:g}): {'; '.join(_grouped(rows))}", table(("number", "what", "where"), lines))


def _grouped(rows: Sequence[Row]) -> list[str]:
    """Return the rows in words, the cases of one rfdetr and torch together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        groups.setdefault(_pair_of(row), []).append(row.case_id)
    return [f"{', '.join(cases)} ({_pair_name(pair)})" for pair, cases in groups.items()]


def _not_working(rows: Sequence[Row]) -> str:
    """Return what is known not to work, seen or not, and what was seen not to work without being known."""
    failures = [(minor, pins.known_failure) for minor, pins in MATRIX.items() if pins.known_failure]
    known = [_known(minor, failure, [row for row in rows if row.torch_minor == minor]) for minor, failure in failures]
    known += [
        [minor, "what a compiled step computes", text(pins.known_mismatch), _seen_mismatch(rows, minor)]
        for minor, pins in MATRIX.items()
        if pins.known_mismatch
    ]
    blocks = ["## Known not to work\n", "From `perf/matrix.py`.\n", table(("torch", "what", "why", "seen"), known)]
    other = [row for row in rows if row.outcome not in ("eager", "compiled") and not _is_known(row)]
    lines = [[code(row.case_id), *_places(row), row.outcome, code(row.why)] for row in other]
    if lines:
        headings = ("case", "device", "rfdetr", "torch", "outcome", "why")
        blocks += ["## Seen not to work\n", table(headings, lines)]
    return "\n".join(blocks)


def _known(minor: str, failure: KnownFailure, rows: Sequence[Row]) -> list[str]:
    what = "cases with compile" if failure.compiled else "every case"
    what += f" whose id matches {code(failure.cases)}" if failure.cases else ""
    return [minor, what, text(failure.reason), _seen(failure, rows)]


def _places(row: Row) -> list[str]:
    return [code(row.device), text(row.rfdetr), row.torch_minor]


def _is_known(row: Row) -> bool:
    known = matcher(known_failure(row.torch_minor, _compiles(row), row.rfdetr, row.case_id))
    failed = row.reasons.get("frames_failed", []) if row.outcome == "fell back" else []
    return all(known(part.name) for part in failed) if failed else known(row.why)


def _seen_mismatch(rows: Sequence[Row], minor: str) -> str:
    found = [row for row in rows if row.torch_minor == minor and row.counts.get("parity_mismatches")]
    seen = (f"{code(row.case_id)}, rfdetr {text(row.rfdetr)}: {count(row, 'parity_mismatches')} keys" for row in found)
    return f"observed: {'; '.join(seen)}" if found else "expected, not run"


def _seen(known: KnownFailure, rows: Sequence[Row]) -> str:
    for row in rows:
        if re.search(known.pattern, row.why):
            return f"observed: {code(row.case_id)} on {code(row.device)}, rfdetr {text(row.rfdetr)}: {code(row.why)}"
    return "expected; other cases were run" if rows else "expected, not run"
