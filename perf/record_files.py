"""Files of records: read a folder, narrow it to what was asked for, and name each file that does not go with the rest.

Records do not know where they lie; here they go with their paths, so that an error can say which file to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perf.case import find_case
from perf.pool import pooling_key, run_name
from perf.record import Record, read_files
from perf.run_order import MANIFEST

# The options that choose among the devices and the torch minors of a folder.
PLACE = ("--device", "--torch")


class Narrowing(NamedTuple):
    """Which records of a folder to take: these cases, this device, this torch minor. Empty or None: all."""

    cases: Collection[str] = ()
    device: str | None = None
    torch_minor: str | None = None


def take(folder: Path, narrowing: Narrowing = Narrowing()) -> dict[Path, Record]:  # noqa: B008  (immutable)
    """Return the records in ``folder`` that were asked for, by path, sorted by case id and run.

    Raises:
        ValueError: none there, or none that was asked for; or files that cannot be read, or cannot be taken together:
            names every such file.
    """
    if not folder.exists():
        msg = f"{folder}: no such file or folder; run the suite first (nox -s perf-2.14)"
        raise ValueError(msg)
    if (folder / MANIFEST).is_file():
        msg = (
            f"{folder}: an A/B session, whose sides must not be pooled: rfdetr-perf compare {folder}, "
            f"or give one side, {folder / 'head'}"
        )
        raise ValueError(msg)
    files, problems = read_files(folder)
    taken: dict[Path, Record] = {}
    # What is readable is checked too, so that one attempt names all there is to put right.
    try:
        taken = narrow(folder, files, narrowing)
        problems += mixtures(taken)
    except ValueError as error:
        problems.append(str(error))
    reject(problems)
    return taken


def reject(problems: Sequence[str]) -> None:
    """Raise ValueError with these lines, if there is one."""
    if problems:
        raise ValueError("\n".join(problems))


def narrow(folder: Path, files: Mapping[Path, Record], narrowing: Narrowing) -> dict[Path, Record]:
    """Return those of ``files`` that ``narrowing`` asks for.

    Raises:
        ValueError: a case, device or torch minor without a record; says which there are.
    """
    if not files:
        return {}
    _check_cases(folder, files, narrowing.cases)
    kept = {path: record for path, record in files.items() if record.case_id in (narrowing.cases or [record.case_id])}
    for name, wanted in (("device", narrowing.device), ("torch_minor", narrowing.torch_minor)):
        found = {getattr(record.environment, name): None for record in kept.values()}
        if wanted is not None and wanted not in found:
            msg = f"{folder}: no record of {name.replace('_', ' ')} {wanted}, only of {', '.join(found)}"
            raise ValueError(msg)
        kept = {p: r for p, r in kept.items() if wanted in (None, getattr(r.environment, name))}
    return kept


def _check_cases(folder: Path, files: Mapping[Path, Record], cases: Iterable[str]) -> None:
    recorded = {record.case_id: None for record in files.values()}
    missing = [case_id for case_id in dict.fromkeys(cases) if case_id not in recorded]
    # A record's case need not be in the catalogue: it may be an older or a newer suite's.
    for case_id in missing:
        find_case(case_id)
    if missing:
        wanted = " ".join(f"--case {case_id}" for case_id in missing)
        msg = (
            f"{folder}: no record of case {', '.join(missing)}, only of {', '.join(recorded)}; "
            f"measure it first: pytest tests/suite {wanted}"
        )
        raise ValueError(msg)


def mixtures(files: Mapping[Path, Record]) -> list[str]:
    """Return a line for each file of records that cannot be taken together, and what to do; empty where all can.

    The records of a lane are of one device and one torch minor. A case's runs are alike in all their values depend on.
    """
    lanes, cases = _groups(files, lambda record: record.case.lane), _groups(files, lambda record: record.case_id)
    places = [line for same in lanes.values() for line in _of_two_places(same)]
    return places or [line for same in cases.values() for line in (*_of_two_settings(same), *_repeated(same))]


def _groups(files: Mapping[Path, Record], key: Callable[[Record], object]) -> dict[object, dict[Path, Record]]:
    groups: dict[object, dict[Path, Record]] = {}
    for path, record in files.items():
        groups.setdefault(key(record), {})[path] = record
    return groups


def _of_two_places(files: Mapping[Path, Record]) -> list[str]:
    places = {p: (r.environment.device, r.environment.torch_minor) for p, r in files.items()}
    if len(set(places.values())) < 2:
        return []
    lines = [f"{path}: device {device}, torch {minor}" for path, (device, minor) in places.items()]
    values = [sorted(set(column)) for column in zip(*places.values(), strict=True)]
    told = [" or ".join(f"{option} {value}" for value in each) for option, each in zip(PLACE, values, strict=True)]
    told = [words for words, each in zip(told, values, strict=True) if len(each) > 1]
    return [*lines, f"records of several devices or torch minors cannot be taken together: pass {', and '.join(told)}"]


def _of_two_settings(files: Mapping[Path, Record]) -> list[str]:
    keys = {path: pooling_key(record.environment) for path, record in files.items()}
    first, *others = keys.values()
    differing = [name for name in first if any(other[name] != first[name] for other in others)]
    if not differing:
        return []
    lines = [f"{path}: {', '.join(f'{name} {key[name]}' for name in differing)}" for path, key in keys.items()]
    case_id = next(iter(files.values())).case_id
    return [
        *lines,
        f"the runs of {case_id} cannot be pooled: they differ in {', '.join(differing)}; take them separately",
    ]


def _repeated(files: Mapping[Path, Record]) -> list[str]:
    same = _groups(files, lambda record: (record.session, record.run))
    copies = [(path, record) for group in same.values() if len(group) > 1 for path, record in group.items()]
    lines = [f"{path}: {run_name(record)}" for path, record in copies]
    return [*lines, "one run must not count as two: remove the copies"] if lines else []
