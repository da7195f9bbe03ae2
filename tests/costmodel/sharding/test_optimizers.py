"""Bytes of states and work of updates, against published sums and closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generators.catalogue_problems import problem
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.costmodel.sharding.optimizers import (
    NEWTON_SCHULZ_STEPS,
    LocalParameter,
    state_bytes,
    update_share,
    update_work,
)
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.spec.choices import OPTIMIZERS, Optimizer
from shardwright.spec.parallel.rank_groups import RankGroup
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.rules.plan_rules import unsupported_run
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.workload import DtypeRecord

BF16 = DtypeRecord.from_shorthand("bf16")
ALONE = RankGroup(1, 1)
MATRIX = LocalParameter((4096, 14336), (4096, 14336), 4096 * 14336, hidden=True, table=False)
TABLE = LocalParameter((32000, 4096), (32000, 4096), 32000 * 4096, hidden=False, table=True)


def simulate(optimizer: str, stack: str = "megatron", shard: str = "zero0") -> Simulation:
    found = problem(
        "llama-2-7b", "1x8xH200", 64, 4096, optimizer=optimizer, stack=stack, dtype="bf16"
    )
    plan, _ = uniform_plan(found, UniformStrategy(shard=shard, recompute="full"))
    simulation = Simulator.for_plan(plan, found.machine, found.stack).run(plan)
    assert simulation is not None
    return simulation


PARAMETERS = 6_738_415_616


@pytest.mark.parametrize(
    ("optimizer", "least", "most"),
    [
        ("adamw", 8.0, 8.0),
        ("adam", 8.0, 8.0),
        ("sgd", 4.0, 4.0),
        ("lion", 4.0, 4.0),
        ("adamw8bit", 2.0, 2.2),
        ("muon", 4.0, 4.2),
        ("adafactor", 0.0, 0.01),
    ],
)
def test_bytes_of_states_a_parameter(optimizer: str, least: float, most: float) -> None:
    """Adam keeps 8 bytes, its 8-bit form 2 (Dettmers et al., figure 1), Adafactor next to none."""
    held = simulate(optimizer).memory[0].by["optimizer"] - 4 * PARAMETERS  # fp32 master weights
    assert least * PARAMETERS <= held <= most * PARAMETERS + 4 * 33 * 32000


@pytest.mark.parametrize(
    ("stack", "shard", "least", "most"),
    [
        ("megatron", "zero0", 18.0, 18.01),
        ("deepspeed", "zero0", 14.0, 18.1),
        ("deepspeed", "zero3", 16 / 8, 16 / 8 + 0.6),
        ("torchtitan", "zero3", 12 / 8, 12 / 8 + 1.0),
    ],
)
def test_bytes_of_all_states_a_parameter(stack: str, shard: str, least: float, most: float) -> None:
    """Megatron: 2 + 4 + 12 bytes. ZeRO (Rajbhandari et al., 2020, section 3): 2 + 2 + 12 over N."""
    by = simulate("adamw", stack, shard).memory[0].by
    held = by["parameters"] + by["gradients"] + by["optimizer"]
    assert least * PARAMETERS * 0.99 <= held <= most * PARAMETERS


def test_levels_of_partitioned_states_shrink_as_published() -> None:
    """At rest, before gradients: 2 + 12 bytes; zero1 and zero2 2 + 12/8; zero3 (2 + 12)/8."""
    held = []
    for level in ("zero0", "zero1", "zero2", "zero3"):
        found = problem("llama-2-7b", "1x8xH200", 64, 4096, stack="deepspeed", dtype="bf16")
        plan, _ = uniform_plan(found, UniformStrategy(shard=level, recompute="full"))
        simulation = Simulator.for_plan(plan, found.machine, found.stack).run(plan)
        assert simulation is not None
        units = [e.unit for e in simulation.chunks[0][0].layers if e.unit is not None]
        held.append(sum(u.parameter_bytes + u.optimizer_bytes for u in units) / PARAMETERS)
    assert held == pytest.approx([14, 3.5, 3.5, 14 / 8], rel=1e-3)


@given(st.integers(1, 2**28))
def test_eight_bit_moments_have_a_scale_a_block(elements: int) -> None:
    tensor = LocalParameter((elements,), (elements,), elements, hidden=False, table=False)
    found = state_bytes("adamw8bit", BF16, [tensor])
    if elements < 4096:
        assert found == 8 * elements
    else:
        assert found == 2 * elements + 2 * 4 * -(-elements // 2048)
    assert state_bytes("adamw8bit", BF16, [replace_table(tensor)]) == 8 * elements


def replace_table(tensor: LocalParameter) -> LocalParameter:
    return tensor._replace(table=True)


def test_factored_moments_are_rows_and_columns() -> None:
    assert state_bytes("adafactor", BF16, [MATRIX]) == 4 * (4096 + 14336)
    experts = LocalParameter(
        (8, 4096, 14336), (4096, 14336), 8 * 512 * 14336, hidden=True, table=False
    )
    assert state_bytes("adafactor", BF16, [experts]) == 8 * 4 * (512 + 14336)


def test_lion_reads_and_writes_one_moment() -> None:
    """Parameter in and out, gradient in, moment in and out: 5 accesses of 4 bytes, AdamW 7."""
    share = update_share("lion", (MATRIX,), (MATRIX.shard, 0), (ALONE, ALONE), False)
    kernel = update_work(share, 0, "lion", BF16, clips=False)[-1]
    assert isinstance(kernel, Kernel)
    assert (kernel.op, kernel.traffic_bytes) == ("fused_lion", 20 * MATRIX.shard)


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("sends_back", [False, True])
def test_newton_schulz_counts_its_products(ranks: int, sends_back: bool) -> None:
    """Five steps of 4 n²m + 2 n³ FLOPs, shared by the ranks that shard the momentum."""
    tensors = tuple(MATRIX._replace(shard=MATRIX.shard // ranks) for _ in range(8))
    shards = sum(t.shard for t in tensors)
    groups = (RankGroup(ranks, 1), ALONE)
    share = update_share("muon", tensors, (shards, 0), groups, sends_back)
    work = update_work(share, 0, "muon", BF16, clips=True)
    flops = sum(item.flops for item in work if isinstance(item, Kernel))
    n, m = 4096, 14336
    assert flops == 8 // ranks * NEWTON_SCHULZ_STEPS * (4 * n * n * m + 2 * n**3)
    gathers = [item for item in work if isinstance(item, Collective)]
    assert len(gathers) == (0 if ranks == 1 else 2 if sends_back else 1)
    assert all(g.payload_bytes == 2 * 8 * n * m for g in gathers)
    assert share.matrices == 0


def test_muon_leaves_tables_to_adamw() -> None:
    share = update_share(
        "muon", (MATRIX, TABLE), (MATRIX.shard + TABLE.shard, 0), (ALONE, ALONE), False
    )
    assert share.matrices == TABLE.shard
    assert share.momentum == MATRIX.shard
    assert state_bytes("muon", BF16, [MATRIX, TABLE]) == 4 * MATRIX.shard + 8 * TABLE.shard


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_adamw_and_lion_are_run(optimizer: Optimizer) -> None:
    found = problem("llama-2-7b", "1x8xH100", 64, 4096, optimizer=optimizer, dtype="bf16")
    reason = unsupported_run(LayerStrategy(), found.workload)
    assert (reason is None) == (optimizer in ("adamw", "lion"))
    assert reason is None or optimizer in reason


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_takes_time_and_few_states_take_less(optimizer: str) -> None:
    seconds: dict[str, Any] = {
        name: simulate(name, shard="zero1").critical.update_s for name in ("adamw", optimizer)
    }
    assert seconds[optimizer] > 0
    if optimizer in ("sgd", "adamw8bit", "lion"):
        assert seconds[optimizer] < seconds["adamw"]
    if optimizer == "muon":
        assert seconds[optimizer] > seconds["adamw"]


def test_defaults_are_left_out_of_documents() -> None:
    found = problem("llama-2-7b", "1x8xH100", 64, 4096, dtype="bf16")
    assert replace(found.workload, optimizer="adamw") == found.workload
