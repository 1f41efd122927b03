from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from factories import an_environment

from perf.environment import (
    Environment,
    checkout_state,
    collect,
    cpu_model,
    minor_of,
    rfdetr_source,
    usable_cpus,
)

ROOT = Path(__file__).resolve().parents[2]


def test_importing_it_imports_neither_torch_nor_rfdetr() -> None:
    program = "import sys, perf.environment; print(sorted({'torch', 'rfdetr', 'pynvml'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_collect_tells_what_is_installed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rfdetr")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    environment = collect("cpu")

    assert environment.device == "cpu"
    assert environment.torch == metadata.version("torch")
    assert environment.torch.startswith(f"{environment.torch_minor}.")
    assert environment.rfdetr == metadata.version("rfdetr")
    assert environment.transformers == metadata.version("transformers")
    assert environment.cpu_count == usable_cpus() >= 1
    assert environment.threads["OMP_NUM_THREADS"] == "2"
    assert int(environment.threads["torch"]) >= 1
    assert environment.gpu_name is None


def test_the_fingerprint_holds_no_path_and_no_name_of_this_machine() -> None:
    pytest.importorskip("rfdetr")
    text = collect("cpu").model_dump_json()

    assert os.uname().nodename not in text
    assert str(ROOT) not in text
    assert Environment.model_validate_json(text).device == "cpu"


@pytest.mark.parametrize("missing", ["torch", "rfdetr"])
def test_what_is_not_installed_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.distribution

    def hiding(name: str) -> metadata.Distribution:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    # version() asks distribution() too.
    monkeypatch.setattr(metadata, "distribution", hiding)

    with pytest.raises(RuntimeError, match=f"{missing} is not installed in this environment; run the suite through"):
        collect("cpu")


@pytest.mark.parametrize(
    ("version", "minor"), [("2.14.1+cu130", "2.14"), ("2.2.2", "2.2"), ("2.15.0.dev20260101", "2.15"), ("3.0", "3.0")]
)
def test_minor_of(version: str, minor: str) -> None:
    assert minor_of(version) == minor


def test_cpu_model_is_read_from_cpuinfo(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: A CPU @ 2.0GHz\nmodel name\t: another\n", encoding="utf-8")

    assert cpu_model(cpuinfo) == "A CPU @ 2.0GHz"
    assert cpu_model(tmp_path / "none")


def a_distribution(folder: Path, direct_url: Mapping[str, object] | None) -> metadata.Distribution:
    info = folder / "rfdetr-1.11.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rfdetr\nVersion: 1.11.2\n", encoding="utf-8")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url), encoding="utf-8")
    return metadata.PathDistribution(info)


def test_source_of_a_release(tmp_path: Path) -> None:
    source = rfdetr_source(a_distribution(tmp_path, None))

    assert (source.text, source.commit, source.dirty) == ("release 1.11.2", None, None)


def test_source_of_a_git_url_keeps_no_credentials(tmp_path: Path) -> None:
    vcs = {"vcs": "git", "commit_id": "1f2e3d", "requested_revision": "main"}
    origin = {"url": "https://user:secret@host.example/o/rf-detr.git", "vcs_info": vcs}

    source = rfdetr_source(a_distribution(tmp_path, origin))

    assert source.text == "git+https://host.example/o/rf-detr.git"
    assert (source.commit, source.dirty) == ("1f2e3d", False)


def test_source_of_a_local_repository_is_its_name_only(tmp_path: Path) -> None:
    origin = {"url": "file:///home/me/rf-detr.git", "vcs_info": {"vcs": "git", "commit_id": "1f2e3d"}}

    assert rfdetr_source(a_distribution(tmp_path, origin)).text == "git+rf-detr.git"


def test_source_of_a_wheel_is_its_name_only(tmp_path: Path) -> None:
    origin = {"url": "file:///home/me/rfdetr-1.11.2-py3-none-any.whl", "archive_info": {}}

    assert rfdetr_source(a_distribution(tmp_path, origin)).text == "archive rfdetr-1.11.2-py3-none-any.whl"


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@host.example"]
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def a_checkout(root: Path) -> str:
    root.mkdir()
    (root / "file").write_text("1", encoding="utf-8")
    git(root, "init", "--quiet")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "--message", "first")
    return git(root, "rev-parse", "HEAD")


@pytest.mark.parametrize("editable", [True, False])
def test_source_of_a_checkout_has_its_commit_and_changes(tmp_path: Path, editable: bool) -> None:
    root = tmp_path / "rf detr"
    commit = a_checkout(root)
    distribution = a_distribution(tmp_path, {"url": root.as_uri(), "dir_info": {"editable": editable}})

    clean = rfdetr_source(distribution)
    (root / "file").write_text("2", encoding="utf-8")
    changed = rfdetr_source(distribution)

    assert (clean.text, clean.commit, clean.dirty) == ("local rf detr", commit, False)
    assert (changed.text, changed.commit, changed.dirty) == ("local rf detr", commit, True)


def test_a_folder_inside_a_repository_is_not_that_repository(tmp_path: Path) -> None:
    a_checkout(tmp_path / "outer")
    inner = tmp_path / "outer" / "inner"
    inner.mkdir()

    assert checkout_state(inner) == (None, None)


def test_without_git_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_checkout(tmp_path / "root")
    monkeypatch.setenv("PATH", "")

    assert checkout_state(tmp_path / "root") == (None, None)


def test_the_suite_s_state_is_its_commit_and_whether_that_is_all() -> None:
    long = "0123456789abcdef"
    assert an_environment(suite_commit=long).suite_state == "012345678"
    assert an_environment(suite_commit=long, suite_dirty=True).suite_state == "012345678 with changes"
    assert an_environment(suite_commit=None).suite_state is None
