from __future__ import annotations

import pytest

from perf.case import Case
from perf.cluster import Cluster, Place, cluster, launcher, place, session_name

PLAIN = Case(config="nano")
TWO = Case(config="nano", devices=2)
FOUR = Case(config="nano", devices=2, nodes=2)
TORCHRUN = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "abc"}
SBATCH = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "perf",
    "SLURM_JOB_PARTITION": "h200",
    "SLURM_JOB_NODELIST": "gpu[1-2]",
}
SRUN = SBATCH | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"}


def test_a_process_that_nobody_launched_is_the_first_of_one() -> None:
    assert place(PLAIN, {}) == Place(0, 0, 1)
    assert launcher({}) is launcher({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}) is None
    assert cluster(PLAIN, {}) is None
    assert session_name({}) is None


def test_torchrun_and_srun_number_the_ranks() -> None:
    assert place(TWO, TORCHRUN) == Place(1, 1, 2)
    assert place(FOUR, SRUN) == Place(3, 1, 4)
    # torchrun within a Slurm job: the inner launcher counts, as it does for Lightning.
    assert place(TWO, SRUN | TORCHRUN) == Place(1, 1, 2)


def test_a_case_of_one_process_is_so_in_any_launch() -> None:
    assert place(PLAIN, SRUN) == Place(0, 0, 1)


@pytest.mark.parametrize(("environ", "started"), [({}, 1), (TORCHRUN, 2)])
def test_another_number_of_processes_is_refused(environ: dict[str, str], started: int) -> None:
    message = rf"nano-b4-x2-nodes2 wants 4 processes \(2 a node\), and {started} were started"
    with pytest.raises(ValueError, match=message):
        place(FOUR, environ)


def test_slurm_is_told_with_its_job_and_the_node() -> None:
    details = {name: value for name, value in SBATCH.items() if name != "SLURM_JOB_ID"}
    assert cluster(FOUR, SRUN) == Cluster(
        nodes=2, node_rank=1, ranks=4, launcher="srun", scheduler="slurm", job="4711", details=details
    )
    assert cluster(PLAIN, SBATCH) == Cluster(scheduler="slurm", job="4711", details=details)


def test_a_job_of_github_is_told() -> None:
    found = cluster(PLAIN, {"GITHUB_RUN_ID": "9", "GITHUB_JOB": "perf (h200)", "RUNNER_NAME": "gpu-3"})
    assert found
    assert (found.scheduler, found.job, found.details) == (
        *("github", "9"),
        {"GITHUB_JOB": "perf (h200)", "RUNNER_NAME": "gpu-3"},
    )


def test_any_other_job_is_told_by_the_user() -> None:
    assert cluster(PLAIN, {"RFDETR_PERF_JOB": "nightly-1"}) == Cluster(scheduler="other", job="nightly-1")


def test_all_processes_of_a_launch_agree_on_the_session() -> None:
    assert session_name(SRUN) == "slurm-4711"
    assert session_name(TORCHRUN) == "torchrun-abc"
