"""The pytest options of conftest.py, as a user meets them: each in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf.session import gpu_count, worker_threads

ROOT = Path(__file__).resolve().parents[2]
USAGE = 4
no_gpu = pytest.mark.skipif(gpu_count() > 0, reason="a machine with a GPU runs what is skipped here")


def run_pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            ("--case", "nano_b4"),
            "unknown case 'nano_b4'; the closest: nano-b4, nano-b4-x2, seg-nano-b4; rfdetr-perf cases lists them all",
        ),
        (("--runs", "0"), "--runs 0: at least 1"),
        (("--at-once", "0"), "--at-once 0: at least 1"),
        (("--patch", "no/such/fix.py"), "--patch no/such/fix.py: no such file"),
        (("--data", "no/such/cells", "--suite", "convergence"), "no/such/cells: no such folder"),
        (("--data", "docs"), "--data docs: none of these cases trains"),
        (("--case", "nano-b16-convergence-on-cells"), "reads 'cells': give the folder of that name with --data"),
        (("--gate", "wall,speed"), "--gate: unknown kind speed; known: count-strict, count-volume, device"),
        (("--case", "tiny-b4"), "case 'tiny-b4': unknown config 'tiny'; known: nano, small, "),
        (("--resume", "20260101T000000Z-1"), "--resume 20260101T000000Z-1: no such session in "),
        (("--session", "../mine"), "--session ../mine: a name, not a path"),
        (("--lane", "tpu"), "invalid choice: 'tpu'"),
        (("--suite", "all"), "invalid choice: 'all'"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_says_what_is_right(option: tuple[str, ...], said: str) -> None:
    done = run_pytest("tests/suite", *option)

    assert done.returncode == USAGE
    assert said in done.stderr


@no_gpu
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_session_of_only_gpu_cases_without_a_gpu_is_no_success(workers: tuple[str, ...], tmp_path: Path) -> None:
    done = run_pytest("tests/suite", "--case", "nano-b4-compile", "--records", str(tmp_path), *workers)

    assert done.returncode == 3
    assert "nothing was measured: needs an NVIDIA GPU, and NVML shows none on this machine" in done.stdout
    assert "4 skipped" in done.stdout
    assert list(tmp_path.iterdir()) == []


ONE_GPU = """
import perf.gpus
perf.gpus.gpu_states = lambda: [perf.gpus.GpuState(index=0)]
"""


@no_gpu
def test_a_case_of_more_gpus_than_there_are_is_skipped_and_no_success(tmp_path: Path) -> None:
    (tmp_path / "one_gpu.py").write_text(ONE_GPU)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    case = ("--case", "nano-b4-compile-x2", "--records", str(tmp_path / "records"))
    done = run_pytest("tests/suite", "-p", "one_gpu", *case, PYTHONPATH=path)

    assert done.returncode == 3
    assert "nothing was measured: needs 2 GPUs, NVML shows 1" in done.stdout
    assert "4 skipped" in done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_that_dies_before_its_record_is_a_failure(workers: tuple[str, ...], tmp_path: Path) -> None:
    case = ("--case", "nano-cpu-b2", "--run-timeout", "0.1")
    done = run_pytest("tests/suite", *case, "--records", str(tmp_path), *workers)

    assert done.returncode == 1
    assert "nano-cpu-b2, missing: this case was expected and left no record" in done.stdout
    assert "2 failed" in done.stdout


@pytest.mark.parametrize("option", [("--case", "nano-b4"), ("--lane", "cpu", "--gate", "device,count-strict")])
def test_collecting_judges_nothing(option: tuple[str, ...]) -> None:
    done = run_pytest("tests/suite", "--collect-only", "-q", *option)

    assert done.returncode == 0
    assert "test_cases.py::test_verdict[nano-" in done.stdout
    assert "rfdetr-perf" not in done.stdout


def test_runs_are_collected_before_the_verdict_of_their_case() -> None:
    done = run_pytest("tests/suite", "--collect-only", "-q", "--case", "nano-cpu-b2", "--runs", "2")

    names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert names == [*["test_measure[nano-cpu-b2-run0]", "test_measure[nano-cpu-b2-run1]", "test_verdict[nano-cpu-b2]"]]


@no_gpu
@pytest.mark.parametrize("dist", ["load", "worksteal"])
def test_under_xdist_a_case_stays_on_one_worker_with_its_verdict_last(tmp_path: Path, dist: str) -> None:
    cases = ("--case", "nano-b4", "--case", "nano-b4-compile", "--records", str(tmp_path))
    done = run_pytest("tests/suite", "-n", "2", "--dist", dist, "-v", *cases)

    rows = [line.split() for line in done.stdout.splitlines() if "SKIPPED tests/suite" in line]
    for case in ("nano-b4", "nano-b4-compile"):
        ours = [(row[0], row[-1]) for row in rows if f"[{case}-run" in row[-1] or row[-1].endswith(f"[{case}]")]
        assert len(ours) == 4
        assert len({worker for worker, _ in ours}) == 1
        assert ours[-1][1].endswith(f"test_verdict[{case}]")


SAYS_ITS_SESSION = """
import os, pathlib, time
import pytest
from perf.session import STASH

@pytest.mark.parametrize("index", range(2))
def test_session(index, request):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    folder = pathlib.Path(__file__).parent
    threads = os.environ["TORCHINDUCTOR_COMPILE_THREADS"]
    (folder / worker).write_text(f"{request.config.stash[STASH].name} {threads}")
    deadline = time.monotonic() + 60
    while len(list(folder.glob("gw*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
"""
# Else two processes that start in one second would agree by chance.
OWN_NAMES = "import uuid\nimport perf.session\nperf.session.new_name = lambda: uuid.uuid4().hex\n"


@no_gpu
@pytest.mark.parametrize("told", [(), ("--session", "mine")])
def test_each_xdist_worker_belongs_to_the_same_session(tmp_path: Path, told: tuple[str, ...]) -> None:
    (tmp_path / "test_session.py").write_text(SAYS_ITS_SESSION)
    (tmp_path / "own_names.py").write_text(OWN_NAMES)
    plugins = ("-p", "own_names", "-p", "conftest", "--rootdir", str(tmp_path), "-c", os.devnull)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    done = run_pytest(str(tmp_path), "-n", "2", *plugins, *told, PYTHONPATH=path)

    assert done.returncode == 0, done.stdout + done.stderr
    names, threads = zip(*[(tmp_path / worker).read_text().split() for worker in ("gw0", "gw1")], strict=True)
    assert threads == (worker_threads(2)["TORCHINDUCTOR_COMPILE_THREADS"],) * 2
    assert names[0] == names[1]
    assert (names[0] == "mine") is bool(told)
