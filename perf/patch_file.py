"""Patches: a user's or a candidate's Python file, imported before rfdetr is built."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def import_patch(path: Path) -> None:
    """Import the Python file at ``path`` as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"patch_{path.stem}", path)
    if spec is None or spec.loader is None:
        msg = f"--patch {path}: not a Python file"
        raise ValueError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
