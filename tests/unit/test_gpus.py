from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from perf.environment import collect
from perf.gpus import device_slug, gpu_memory_bytes, gpu_states, throttle_reasons

# Not importorskip: it would import rfdetr on the fake torch below.
needs_rfdetr = pytest.mark.skipif(find_spec("rfdetr") is None, reason="rfdetr is not installed here")


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


def test_the_memory_of_the_first_gpu(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_memory_bytes() == 150_000_000_000
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.unsupported)
    assert gpu_memory_bytes() is None


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


@needs_rfdetr
def test_collect_on_the_gpu_lane(nvml: FakeNvml) -> None:
    environment = collect("gpu")

    assert (environment.device, environment.gpu_name) == ("nvidia-h200", "NVIDIA H200")
    assert (environment.gpu_count, environment.gpu_memory_bytes) == (2, 150_000_000_000)
    assert (environment.mig, environment.power_limit_w, environment.driver) == (False, 700.0, "580.1")
    assert (environment.cuda, environment.cudnn) == ("13.0", "92400")


@needs_rfdetr
def test_without_a_driver_there_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_library)

    assert gpu_states() == []
    with pytest.raises(RuntimeError, match="no GPU that this process may use"):
        collect("gpu")
