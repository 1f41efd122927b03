from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from perf.stores import read_rows, renew, rows_text


class Fruit(BaseModel):
    what: Literal["fruit"] = "fruit"
    name: str
    grams: float = 0


APPLE, PEAR = Fruit(name="apple", grams=150), Fruit(name="pear")


def test_rows_are_read_as_they_were_written_and_no_file_has_none(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    assert read_rows(path, Fruit.model_validate) == []

    path.write_text(rows_text([APPLE, PEAR]), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == '{"name": "apple", "grams": 150.0}\n{"name": "pear"}\n'
    assert read_rows(path, Fruit.model_validate) == [APPLE, PEAR]
    assert rows_text([PEAR], "what") == '{"name": "pear", "what": "fruit"}\n'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", r"Expecting property name enclosed in double quotes, column 2"),
        ('{"grams": 1}', "name: Field required"),
        ('{"name": "plum", "grams": NaN}', "NaN is not a number"),
    ],
)
def test_a_malformed_line_is_named(line: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(f"{rows_text([APPLE])}{line}\n", encoding="utf-8")

    with pytest.raises(ValueError, match=rf"s\.jsonl:2: {why}"):
        read_rows(path, Fruit.model_validate)


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(rows_text([APPLE]).encode() + b'{"name": "\xff"}\n')

    with pytest.raises(ValueError, match=r"s\.jsonl:2: 'utf-8' codec can't decode byte 0xff"):
        read_rows(path, Fruit.model_validate)


def test_a_character_that_ends_a_line_elsewhere_ends_no_row(tmp_path: Path) -> None:
    path, odd = tmp_path / "s.jsonl", Fruit(name="a\u2028b\x85c")
    path.write_text(rows_text([odd]), encoding="utf-8")

    assert read_rows(path, Fruit.model_validate) == [odd]


def test_a_key_that_comes_twice_is_named_where_rows_have_keys(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(rows_text([APPLE, APPLE]), encoding="utf-8")

    assert read_rows(path, Fruit.model_validate) == [APPLE, APPLE]
    with pytest.raises(ValueError, match=r"s\.jsonl:2: a second row for fruit, apple"):
        read_rows(path, Fruit.model_validate, attrgetter("what", "name"))


def test_files_are_written_where_they_do_not_hold_their_text(tmp_path: Path) -> None:
    store, document = tmp_path / "s.jsonl", tmp_path / "s.md"
    files = {store: rows_text([APPLE]), document: "# Fruit\n"}
    store.write_text(files[store], encoding="utf-8")

    assert renew(files, "grow", check=True) == (1, f"{document}: not what the store gives; make it anew: grow\n")
    assert not document.exists()
    assert renew(files, "grow", check=False) == (0, f"{store}: nothing changes\n{document}: written\n")
    assert document.read_text(encoding="utf-8") == "# Fruit\n"
    assert renew(files, "grow", check=True) == (0, "")
