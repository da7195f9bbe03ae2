"""Places of ranks and room for states, before a run builds anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from generators.plan_cases import Case, Sizes, sharded

from shardwright.api.python import simulate
from shardwright.executor.launch.preflight import (
    RankLocation,
    check_locations,
    free_bytes,
    min_bytes,
    rank_nodes,
)
from shardwright.spec.errors import RunError
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.plan.plan import Plan
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.cpu_offload import CpuOffload

GIB = 1 << 30


@pytest.fixture(scope="module")
def nodes() -> Plan:
    """Two nodes of four devices."""
    return simulate("gpt2", "2x4xA100-80GB", tp=4, micro_batch=2, global_batch=8, seq_len=512).plan


def on(hosts: str, free: int | None = 80 * GIB) -> list[RankLocation]:
    """A rank on each host named by a letter, on the next device of it."""
    return [RankLocation(h, hosts[:i].count(h), free) for i, h in enumerate(hosts)]


def test_ranks_of_a_node_on_one_host_pass(nodes: Plan) -> None:
    assert [node for _, node in rank_nodes(nodes)] == [0] * 4 + [1] * 4
    check_locations(nodes, on("aaaabbbb"))
    check_locations(nodes, on("aaaaaaaa"))  # a trial on one machine


def test_a_node_on_two_hosts_is_named(nodes: Plan) -> None:
    with pytest.raises(RunError, match=r"ranks 0 and 1 are on a and b.*--nproc-per-node 4"):
        check_locations(nodes, on("abababab"))


def test_two_ranks_on_one_device_are_named(nodes: Plan) -> None:
    places = on("aaaabbbb")
    places[6] = places[5]
    with pytest.raises(RunError, match="ranks 5 and 6 are both on CUDA device 1 of b"):
        check_locations(nodes, places)


def test_too_little_room_is_named_and_what_is_unknown_passes(nodes: Plan) -> None:
    needed = min_bytes(nodes, 0)
    places = on("aaaabbbb")
    places[3] = places[3]._replace(free_bytes=needed - 1)
    with pytest.raises(RunError, match="rank 3 on a need"):
        check_locations(nodes, places)
    places[3] = places[3]._replace(free_bytes=needed)
    check_locations(nodes, places)
    check_locations(nodes, on("aaaabbbb", free=None))


def test_cores_share_their_host() -> None:
    plan = Case(name="cores", strategies=sharded("zero3", 4)).plan()
    wanted = 4 * min_bytes(plan, 0)
    check_locations(plan, [RankLocation("a", None, wanted)] * 4)
    with pytest.raises(RunError, match="the 4 ranks on a need"):
        check_locations(plan, [RankLocation("a", None, wanted - 1)] * 4)


@pytest.mark.parametrize("level", ["zero0", "zero1", "zero3"])
def test_the_least_is_what_parameters_take(level: str) -> None:
    """16 bytes an element in float32: weight, gradient and two moments."""
    case = Case(name=level, sizes=Sizes(blocks=4), strategies=sharded(level, 4))
    plan = case.plan()
    shards = 1 if level == "zero0" else 4
    whole = 16 * plan.model.param_count()
    assert whole / shards <= min_bytes(plan, 0) <= whole / shards + 16 * 200
    halves = replace(case, stages=2, strategies=sharded(level, 2)).plan()
    assert sum(min_bytes(halves, s) for s in (0, 1)) >= whole / min(2, shards)


def test_this_machine_tells_what_is_free() -> None:
    found = free_bytes(torch.device("cpu"))
    assert found is None or found > 0


@pytest.mark.parametrize(("value", "left"), [(CpuOffload(), 8), (CpuOffload(parameters=True), 4)])
def test_what_the_host_keeps_needs_no_room_on_a_device(value: CpuOffload, left: int) -> None:
    """Of 16 bytes an element of a block; a core's memory is the host's."""
    plain = sharded("zero3", 4)
    case = Case(name="", strategies=plain)
    moved = replace(case, strategies=with_value(plain, "cpu_offload", value)).plan()
    specs = layer_parameters(moved.model.layers()[1], moved.workload.seq_len)
    elements = 4 * sum(spec.elements // 4 for spec in specs)
    before, after = min_bytes(case.plan(), 0), min_bytes(moved, 0, on_core=False)
    assert before - after == elements * (16 - left)
    assert min_bytes(moved, 0) == before
