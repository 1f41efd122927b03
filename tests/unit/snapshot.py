"""Snapshots: what a renderer made when somebody last looked at it. RFDETR_PERF_SNAPSHOTS=write takes new ones."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def check_snapshot(name: str, text: str) -> None:
    """Check that ``text`` is what the snapshot of this name holds."""
    path = FOLDER / name
    if os.environ.get("RFDETR_PERF_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; look at it, RFDETR_PERF_SNAPSHOTS=write keeps it"
