from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from perf.probes import compilation, distributed
from perf.probes.distributed import buckets, gather, length, overlap, traffic, union, watching_graphs
from perf.probes.input_pipeline import one_thread
from perf.probes.trace import Event
from perf.record import Signal

pytestmark = pytest.mark.filterwarnings("default")


def event(category: str, name: str, start: float, end: float) -> Event:
    return Event(category, name, start, end - start, "")


def test_spans_that_touch_become_one() -> None:
    assert union([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert overlap([(0, 4), (5, 6)], [(1, 2), (3, 5.5)]) == [(1, 2), (3, 4), (5, 5.5)]
    assert length([(1, 2), (3, 4), (5, 5.5)]) == 2.5


def test_on_a_gpu_kernels_hide_collectives() -> None:
    found = traffic(
        [
            event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 0, 4000),
            event("kernel", "void at::native::gemm", 1000, 3000),
            event("kernel", "void at::native::gemm", 5000, 6000),
            event("cpu_op", "aten::mm", 0, 9000),  # the host's ops say nothing of the GPU
        ],
        wall=10,
    )
    assert (found.wall, found.inside, found.hidden) == (10, 4, 2)
    assert dict(found.names.counts) == {"nccl AllReduce": 1}


def test_on_a_cpu_ops_do() -> None:
    found = traffic(
        [
            event("user_annotation", "gloo:all_reduce", 0, 4000),
            event("cpu_op", "c10d::allreduce_", 0, 100),
            event("cpu_op", "aten::mm", 3000, 9000),
        ],
        wall=10,
    )
    assert (found.inside, found.hidden, found.names.total) == (4, 1, 1)


def test_each_collective_is_told_in_the_order_in_which_they_began() -> None:
    sent = [event("kernel", "ncclDevKernel_AllReduce", start, end) for start, end in ((5000, 6000), (0, 3000))]
    assert traffic(sent, wall=10).each == [("nccl AllReduce", 3.0), ("nccl AllReduce", 1.0)]


Sent = list[tuple[str, float]]


def sent(reduced: float, broadcast: float) -> Sent:
    return [("all_reduce", reduced), ("broadcast", broadcast)]


def transfer(monkeypatch: pytest.MonkeyPatch, *steps_of_another: Sent) -> list[Signal]:
    monkeypatch.setattr(distributed, "gather", lambda own: [own, json.dumps(steps_of_another)])
    return distributed._transfer([sent(3.0, 1.0), sent(2.0, 2.0)])


def test_the_last_rank_to_come_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = transfer(monkeypatch, sent(0.5, 4.0), sent(9.0, 2.5))
    assert (found.name, found.kind, found.unit) == ("transfer_time", "info", "ms")
    assert (found.samples, found.value) == ([1.5, 4.0], 2.75)


@pytest.mark.parametrize("other", [sent(9.0, 2.0)[:1], sent(9.0, 2.0)[::-1], []])
def test_ranks_that_sent_other_things_cannot_be_matched(monkeypatch: pytest.MonkeyPatch, other: Sent) -> None:
    assert transfer(monkeypatch, sent(0.5, 4.0), other) == []


@pytest.fixture
def group() -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=0, world_size=1)
    with one_thread():
        yield
    dist.destroy_process_group()


def a_model() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))


@pytest.mark.usefixtures("group")
def test_buckets_are_those_that_ddp_made() -> None:
    ddp = DistributedDataParallel(a_model(), bucket_cap_mb=2)  # a layer has 1 050 624 B
    for _ in range(3):
        ddp(torch.ones(2, 512)).sum().backward()

    found = buckets(ddp)
    assert (found.value, found.kind) == (2, "count-strict")
    assert [part.name for part in found.parts] == [f"bucket {i}: 2101248 B, 4 parameters" for i in range(2)]


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("optimize", "sizes"), [(True, [1050624, 2101248, 1050624]), (False, [])])
def test_graphs_are_told_apart_and_the_pieces_that_ddp_makes_of_them(optimize: bool, sizes: list[int]) -> None:
    compilation.reset()
    with torch._dynamo.config.patch(optimize_ddp=optimize), watching_graphs() as graphs:
        ddp = DistributedDataParallel(torch.compile(a_model(), backend="eager"), bucket_cap_mb=2)
        ddp(torch.ones(2, 512))
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    found = {signal.name: signal for signal in graphs.signals()}

    assert found["ddp_graph_pieces"].value == len(sizes)
    names = [part.name.partition(" ")[2] for part in found["ddp_graph_pieces"].parts]
    assert names == [f"piece {i}: {size} B of parameters" for i, size in enumerate(sizes)]
    names = [part.name for part in found["graph_nodes"].parts]
    assert len(names) == len(set(names)) == 2
    assert "test_probe_distributed.py:<lambda> " in names[1]


def digests(make: Any, argument: Any) -> list[str]:
    compilation.reset()
    with watching_graphs() as graphs:
        torch.compile(make(), backend="eager")(argument)
    return [part.name for part in graphs.captured]


def test_the_same_graph_has_the_same_hash_and_another_shape_or_type_another() -> None:
    first = digests(a_model, torch.ones(2, 512))
    assert digests(a_model, torch.ones(2, 512)) == first
    assert digests(a_model, torch.ones(3, 512)) != first
    assert digests(lambda: torch.neg, torch.ones(2)) != digests(lambda: torch.neg, torch.ones(2, dtype=torch.float64))


@pytest.mark.usefixtures("group")
def test_every_rank_gets_what_every_rank_passed() -> None:
    assert gather("mine") == ["mine"]
