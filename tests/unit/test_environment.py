from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from factories import an_environment

from perf.environment import (
    Environment,
    checkout_state,
    collect,
    cpu_model,
    device_slug,
    gpu_states,
    minor_of,
    rfdetr_source,
    throttle_reasons,
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
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("Tesla T4 (MIG 1g.5gb)", "tesla-t4-mig-1g-5gb"),
    ],
)
def test_device_slug(name: str, slug: str) -> None:
    assert device_slug(name) == slug


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


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0b0, []),
        (0b1, []),
        (0b100, ["sw-power-cap"]),
        (0b1101001, ["hw-slowdown", "sw-thermal-slowdown", "hw-thermal-slowdown"]),
        (1 << 20, ["bit-20"]),
    ],
)
def test_throttle_reasons(mask: int, names: list[str]) -> None:
    assert throttle_reasons(mask) == names


class FakeNvml:
    """Two GPUs; whatever is not set here, this fake driver does not support."""

    uuids = ("GPU-aaa", "GPU-bbb")
    pids: tuple[int, ...] = ()

    def answer(self, name: str) -> Any:
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlDeviceGetCount": lambda: len(self.uuids),
            "nvmlDeviceGetHandleByIndex": self.by_index,
            "nvmlDeviceGetHandleByUUID": self.by_uuid,
            "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=150_000_000_000),
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
            "nvmlDeviceGetMigMode": lambda _: [0, 0],
            "nvmlDeviceGetClockInfo": lambda handle, clock: 1980 - 100 * handle - clock,
            "nvmlDeviceGetTemperature": lambda handle, _: 40 + handle,
            "nvmlDeviceGetPowerUsage": lambda _: 77_500,
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=12),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0b100,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=pid) for pid in self.pids],
        }
        return answers.get(name, self.unsupported)

    def by_index(self, index: int) -> int:
        if index >= len(self.uuids):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def by_uuid(self, uuid: str) -> int:
        if uuid not in self.uuids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.uuids.index(uuid)

    def unsupported(self, *_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    for name in dir(pynvml):
        if name.startswith(("nvmlDeviceGet", "nvmlDeviceIs", "nvmlSystemGet")) or name in ("nvmlInit", "nvmlShutdown"):
            monkeypatch.setattr(pynvml, name, fake.answer(name))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake_torch(monkeypatch)
    return fake


def fake_torch(monkeypatch: pytest.MonkeyPatch, *uuids: str, initialized: bool = False) -> None:
    """Put a torch that sees the GPUs with these UUIDs in place of the real one, if that is loaded."""
    cuda = SimpleNamespace(
        is_available=lambda: bool(uuids),
        is_initialized=lambda: initialized,
        device_count=lambda: len(uuids),
        get_device_properties=lambda index: SimpleNamespace(uuid=uuids[index]),
    )
    cudnn = SimpleNamespace(version=lambda: 92400)
    torch = SimpleNamespace(cuda=cuda, backends=SimpleNamespace(cudnn=cudnn), version=SimpleNamespace(cuda="13.0"))
    torch.get_num_threads = lambda: 2
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_state_of_each_gpu(nvml: FakeNvml) -> None:
    first, second = gpu_states()

    assert (first.index, second.index) == (0, 1)
    assert (first.sm_clock_mhz, first.memory_clock_mhz) == (1979, 1978)
    assert (first.temperature_c, second.temperature_c) == (40, 41)
    assert (first.power_w, first.utilization_percent) == (77.5, 12)
    assert first.throttle_reasons == ["sw-power-cap"]


@pytest.mark.parametrize(
    ("listed", "temperatures"),
    [("1", [41]), ("1,0", [41, 40]), ("GPU-bbb", [41]), ("", []), ("-1", []), ("0,-1,1", [40]), ("0, 7", [40])],
)
def test_hidden_gpus_are_left_out(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, listed: str, temperatures: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)

    assert [state.temperature_c for state in gpu_states()] == temperatures


def test_cuda_knows_better_than_the_variable_which_gpus_are_meant(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    fake_torch(monkeypatch, "bbb")

    assert [state.temperature_c for state in gpu_states()] == [41]


def test_a_mig_slice_is_found_by_its_own_uuid(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.uuids = ("GPU-aaa", "MIG-ccc")
    fake_torch(monkeypatch, "ccc")

    assert [state.temperature_c for state in gpu_states()] == [41]


def test_other_processes_are_not_this_one(nvml: FakeNvml) -> None:
    nvml.pids = (os.getpid(), 17, 5)

    assert gpu_states()[0].other_processes == [5, 17]


def test_in_a_container_one_unknown_process_is_this_one(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.pids = (1_000_005, 1_000_017)
    assert len(gpu_states()[0].other_processes) == 2

    fake_torch(monkeypatch, "aaa", initialized=True)
    assert len(gpu_states()[0].other_processes) == 1


def test_what_the_driver_does_not_say_is_none(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GetPowerUsage", "GetClockInfo", "GetCurrentClocksThrottleReasons", "GetComputeRunningProcesses"):
        monkeypatch.setattr(pynvml, f"nvmlDevice{name}", nvml.unsupported)
    state = gpu_states()[0]

    assert (state.power_w, state.sm_clock_mhz, state.throttle_reasons, state.other_processes) == (None, None, [], [])


def test_collect_on_the_gpu_lane(nvml: FakeNvml) -> None:
    pytest.importorskip("rfdetr")
    environment = collect("gpu")

    assert (environment.device, environment.gpu_name) == ("nvidia-h200", "NVIDIA H200")
    assert (environment.gpu_count, environment.gpu_memory_bytes) == (2, 150_000_000_000)
    assert (environment.mig, environment.power_limit_w, environment.driver) == (False, 700.0, "580.1")
    assert (environment.cuda, environment.cudnn) == ("13.0", "92400")


def test_without_a_driver_there_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_library)

    assert gpu_states() == []
    pytest.importorskip("rfdetr")
    with pytest.raises(RuntimeError, match="no GPU that this process may use"):
        collect("gpu")


def test_the_suite_s_state_is_its_commit_and_whether_that_is_all() -> None:
    long = "0123456789abcdef"
    assert an_environment(suite_commit=long).suite_state == "012345678"
    assert an_environment(suite_commit=long, suite_dirty=True).suite_state == "012345678 with changes"
    assert an_environment(suite_commit=None).suite_state is None
