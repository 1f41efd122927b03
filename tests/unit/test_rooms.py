from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_has_its_place_in_the_map_of_rooms() -> None:
    table = (ROOT / "docs" / "rooms.md").read_text(encoding="utf-8").partition("| --- |")[2]
    named = Counter(re.findall(r"`([\w/]+)`", "\n".join(line for line in table.splitlines() if line.startswith("|"))))
    named.pop("baselines/")  # the folder of the repository
    perf = ROOT / "perf"
    packages = {f"{path.name}/" for path in perf.iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.stem for path in perf.glob("*.py")} - {"__init__"}

    assert set(named) == modules | packages
    assert [name for name, count in named.items() if count > 1] == []
