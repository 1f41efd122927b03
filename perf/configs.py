"""Configs: what the installed rfdetr ships, read from its source, so that collecting cases imports nothing heavy."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path

# Shipped by rfdetr 1.9.0 to 1.11.2: the names to offer where no rfdetr is installed.
KNOWN = (
    "nano",
    "small",
    "medium",
    "large",
    "base",
    "large-deprecated",
    "seg-preview",
    "seg-nano",
    "seg-small",
    "seg-medium",
    "seg-large",
    "seg-xlarge",
    "seg-2xlarge",
    "keypoint-preview",
)

_ROOT_CLASS = "ModelConfig"


def config_name(class_name: str) -> str:
    """Return the short name of a config class of rfdetr: ``RFDETRSeg2XLargeConfig`` is ``seg-2xlarge``."""
    core = class_name.removeprefix("RFDETR").removesuffix("Config")
    return re.sub(r"_+|(?<=[a-z])(?=[A-Z0-9])", "-", core).strip("-").lower()


@functools.cache
def installed_source() -> Path | None:
    """Return the file of the installed rfdetr that defines its configs; None where there is no rfdetr."""
    spec = importlib.util.find_spec("rfdetr")
    folders = list(spec.submodule_search_locations or []) if spec else []
    paths = [Path(folder, "config.py") for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def config_names() -> tuple[str, ...]:
    """Return the names of the configs that the installed rfdetr ships, in a stable order; else the known ones.

    A config that is new in rfdetr comes last and appears by itself.
    """
    source = installed_source()
    classes = model_classes(source.read_text(encoding="utf-8")) if source else []
    # A source that cannot be read so: the run says what is wrong with it.
    found = {config_name(name) for name in classes} or set(KNOWN)
    return (*(name for name in KNOWN if name in found), *sorted(found - set(KNOWN)))


@functools.cache  # a session asks for the names dozens of times, and parsing takes 15 ms
def model_classes(source: str) -> list[str]:
    """Return the public classes of the module ``source`` that descend from rfdetr's ``ModelConfig``, as written.

    None of a text that is not Python.
    """
    family, found = {_ROOT_CLASS}, []
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return []
    for node in body:
        if isinstance(node, ast.ClassDef) and family & {_base_name(base) for base in node.bases}:
            family.add(node.name)
            found.append(node.name)
    return [name for name in found if not name.startswith("_")]


def _base_name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
