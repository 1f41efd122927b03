"""The cheapest pairs of the replay for real: two releases, fetched from the index, over the torch that is here."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from perf.beside import put_before
from perf.replay import chosen, releases

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ("optimizer-groups", "one-matching-for-all-layers")


def interpreter(folder: Path, release: str) -> Path:
    """Make an environment with one release of rfdetr, and this one's packages behind it; return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, f"rfdetr=={release}"], check=True)
    put_before(folder, Path(sys.prefix))
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("releases")
    return {release: interpreter(folder / release, release) for release in releases(chosen("ci", PAIRS))}


def replay(records: Path, pythons: dict[str, Path], *words: str) -> subprocess.CompletedProcess[str]:
    chosen_ones = [word for name in PAIRS for word in ("-k", name)]
    told = [f"--python={release}={path}" for release, path in pythons.items()]
    command = [sys.executable, "-m", "perf.cli", "replay", "--records", str(records), *chosen_ones, *told, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_what_two_releases_changed_is_caught_with_its_place(tmp_path: Path, pythons: dict[str, Path]) -> None:
    done = replay(tmp_path, pythons)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[-1] == "2 replays: 2 caught"
    assert "optimizer torch/optim/adam.py 1554 -> 422" in lines
    # Both from one run of each release.
    assert len(list(tmp_path.rglob("*.record.json"))) == 2
    [session] = tmp_path.iterdir()
    again = replay(tmp_path, {}, "--again", session.name)
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_an_interpreter_with_another_release_catches_nothing(tmp_path: Path, pythons: dict[str, Path]) -> None:
    done = replay(tmp_path, dict.fromkeys(pythons, pythons["1.10.0"]))

    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "2 replays: 2 not caught"
    assert "! 1.9.4: its runs measured rfdetr 1.10.0" in done.stdout
