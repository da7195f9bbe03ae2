"""Pinned shardings: degrees that are no level, and link levels in the place of degrees."""

from __future__ import annotations

import pytest
from generators.catalogue_problems import problem

from shardwright.api.problem.pins import resolve_pins
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.planner.space.pins import parse_pin
from shardwright.spec.errors import InputError
from shardwright.spec.techniques import TECHNIQUES

WHOLE = ("pp=1", "micro_batch=2")


def shards(cluster: str, *pins: str) -> set[str]:
    """What the blocks of the best plan are sharded by."""
    asked = problem("gpt2-medium", cluster, 64, 1024)
    solution = solve(asked, SolveOptions(pins=resolve_pins((*WHOLE, *pins), asked)))
    ranks = solution.plan.program.stages[0].device_count
    return {s.shard.level_name(s.data_parallel(ranks)) for s in solution.plan.layer_strategies()}


@pytest.mark.parametrize(
    ("pins", "name"),
    [
        (("shard=1/1/4", "tp=1", "dp=8"), "1/1/4"),
        (("shard=1/2/8", "tp=1", "dp=8"), "1/2/8"),
        (("shard=2/2/4", "tp=2", "dp=4"), "2/2/4"),
        (("shard=hsdp", "tp=1", "dp=8"), "zero3"),
        (("shard=1/1/intra_node", "tp=1", "dp=8"), "zero1"),
        (("shard=1/1/intra_node", "tp=2", "dp=4"), "zero1"),
    ],
)
def test_a_pinned_sharding_is_searched(pins: tuple[str, ...], name: str) -> None:
    assert shards("8xA100-80GB", *pins) == {name}


@pytest.mark.parametrize(
    ("text", "tp", "name"),
    [
        ("hsdp", 1, "hsdp:8"),
        ("hsdp:intra_node", 2, "hsdp:4"),
        ("1/1/intra_node", 4, "1/1/2"),
        ("1/intra_node/inter_node", 1, "1/8/16"),
        ("hpz", 1, "hpz:8"),
        ("hpz:intra_node", 2, "hpz:4"),
        ("intra_node/intra_node/inter_node+hpz:2", 1, "8/8/16+hpz:2"),
    ],
)
def test_a_level_is_the_degree_that_tp_leaves_inside_its_groups(
    text: str, tp: int, name: str
) -> None:
    pins = (f"shard={text}", f"tp={tp}", f"dp={16 // tp}")
    assert shards("2x8xA100-80GB", *pins) == {name}


def test_the_space_names_pinned_degrees() -> None:
    asked = problem("gpt2-xl", "8xA100-80GB", 64, 1024)
    pins = resolve_pins((*WHOLE, "tp=1", "dp=8", "shard=1/1/4"), asked)
    solution = solve(asked, SolveOptions(pins=pins))
    space = solution.search.space
    assert set(space) == {
        "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "sp", "shard", "schedule", "recompute",
        "micro_batch", *(value.name for value in TECHNIQUES),
    }  # fmt: skip
    assert space["shard"] == ["1/1/4"]
    assert (space["dp"], space["cp"], space["micro_batch"]) == ([8], [1], [2])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("shard=hsdpx", "nearest: hsdp"),
        ("shard=hsdp:intra_nod", "nearest: intra_node"),
        ("shard=zero9", "nearest: zero"),
        ("shard=1/1", "P/G/O"),
        ("shard=hsdp:0", "hsdp"),
    ],
)
def test_a_slip_in_a_sharding_is_answered_with_something_usable(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_pin(text, 14)
    assert "hsdp:1" not in str(caught.value).replace("hsdp:1-", "")


def test_levels_that_the_cluster_lacks_are_refused_before_any_search() -> None:
    asked = problem("gpt2-xl", "8xA100-80GB", 64, 1024)
    with pytest.raises(InputError, match="--pin: got hsdp:inter_rack; allowed: intra_node"):
        resolve_pins(("shard=hsdp:inter_rack",), asked)
    with pytest.raises(InputError, match="nested degrees"):
        resolve_pins(("shard=intra_node/1/1",), asked)
    with pytest.raises(InputError, match="hpz:8; allowed: a degree above 1"):
        resolve_pins(("shard=hpz:intra_node",), asked)
    with pytest.raises(InputError, match="--pin: got hpz:inter_rack; allowed: intra_node"):
        resolve_pins(("shard=8/8/8+hpz:inter_rack",), asked)
