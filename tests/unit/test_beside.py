"""Environments beside another, with a real interpreter: what is found first, and what only behind it."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

from perf.beside import holds, put_before


def an_environment(folder: Path) -> Path:
    """Make an environment and return its site-packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    [found] = folder.glob("lib/python*/site-packages")
    return found


def test_its_own_packages_come_first_and_those_behind_are_found_too(tmp_path: Path) -> None:
    front, behind = an_environment(tmp_path / "front"), an_environment(tmp_path / "behind")
    for place, text in ((front, "front"), (behind, "behind")):
        (place / "both.py").write_text(f"value = {text!r}\n", encoding="utf-8")
    (behind / "only.py").write_text("value = 'only'\n", encoding="utf-8")
    editable = tmp_path / "editable"
    editable.mkdir()
    (editable / "checkout.py").write_text("value = 'checkout'\n", encoding="utf-8")
    (behind / "of-an-editable-install.pth").write_text(f"{editable}\n", encoding="utf-8")
    put_before(tmp_path / "front", tmp_path / "behind")

    code = "import both, only, checkout; print(both.value, only.value, checkout.value)"
    command = [str(tmp_path / "front" / "bin" / "python"), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "front only checkout\n"


def test_only_the_very_release_is_held(tmp_path: Path) -> None:
    front = an_environment(tmp_path / "front")
    assert not holds(tmp_path / "front", "1.10.1")

    (front / "rfdetr-1.10.1.dist-info").mkdir()
    assert not holds(tmp_path / "front", "1.10.1"), "its installation was stopped"

    (front / "rfdetr-1.10.1.dist-info" / "INSTALLER").write_text("pip", encoding="utf-8")
    assert holds(tmp_path / "front", "1.10.1")
    assert not holds(tmp_path / "front", "1.10.0")


def test_what_is_no_environment_is_named(tmp_path: Path) -> None:
    an_environment(tmp_path / "front")

    with pytest.raises(ValueError, match="nowhere: no site-packages below it"):
        put_before(tmp_path / "nowhere", tmp_path / "front")
    with pytest.raises(ValueError, match="must be of one Python minor"):
        put_before(tmp_path / "front", tmp_path / "nowhere")
