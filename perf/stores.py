"""Stores: files with a row a line, each a JSON object; and documents that are made from such a store alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from perf.record import explain, parse_json, write_atomically

R = TypeVar("R", bound=BaseModel)


def read_rows(path: Path, parse: Callable[[object], R], key: Callable[[R], Sequence[str]] | None = None) -> list[R]:
    """Return the rows of the store at ``path``, each as ``parse`` makes it; none where there is no such file.

    With ``key`` no two rows may have the same.

    Raises:
        ValueError: a line is malformed, or a key comes twice; names the file and the line.
    """
    rows: list[R] = []
    seen: set[tuple[str, ...]] = set()
    for number, line in enumerate(_lines(path), start=1):
        try:
            row = parse(parse_json(line.decode()))
            if key:
                _note(tuple(key(row)), seen)
        except ValueError as error:
            raise ValueError(explain(Path(f"{path}:{number}"), _short(error))) from error
        rows.append(row)
    return rows


def _lines(path: Path) -> list[bytes]:
    """Return the lines of the file, still bytes: what is no text is then found in its line."""
    return path.read_bytes().splitlines() if path.exists() else []


def _note(key: tuple[str, ...], seen: set[tuple[str, ...]]) -> None:
    if key in seen:
        msg = f"a second row for {', '.join(key)}"
        raise ValueError(msg)
    seen.add(key)


def _short(error: ValueError) -> Exception:
    """Return json's complaint without its own count of lines, which is of the one line; pydantic's as it is."""
    return (
        error if isinstance(error, ValidationError) else ValueError(re.sub(r": line 1 (column)", r", \1", str(error)))
    )


def rows_text(rows: Iterable[BaseModel], *always: str) -> str:
    """Return the store with these rows, a line each; what a row has by default is left out, but for ``always``."""
    dumped = (
        row.model_dump(mode="json", exclude_defaults=True) | {name: getattr(row, name) for name in always}
        for row in rows
    )
    return "".join(f"{json.dumps(values, ensure_ascii=False, allow_nan=False)}\n" for values in dumped)


def renew(files: Mapping[Path, str], command: str, *, check: bool) -> tuple[int, str]:
    """Write the files that do not hold their text; return exit code and what to say.

    With ``check`` nothing is written, and the code is 1 where a file would change: ``command`` would do that.
    """
    stale = [path for path, text in files.items() if not _holds(path, text)]
    if check:
        said = [f"{path}: not what the store gives; make it anew: {command}\n" for path in stale]
        return int(bool(stale)), "".join(said)
    for path in stale:
        write_atomically(path, files[path])
    return 0, "".join(f"{path}: {'written' if path in stale else 'nothing changes'}\n" for path in files)


def _holds(path: Path, text: str) -> bool:
    return (path.read_text(encoding="utf-8") if path.exists() else "") == text
