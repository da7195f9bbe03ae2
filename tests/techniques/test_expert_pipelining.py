"""expert_pipelining is held to what every technique is, and to the counts that it chooses."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import pytest
from generators.plan_cases import Case
from oracles.brute_force import Restriction, Space
from ranks.expert_runs import ExpertSizes
from toys.technique_spaces import small_space
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.explain.hidden_exchanges import layer_exchanges
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.planner.technique import Place
from shardwright.planner.techniques import SHIPPED
from shardwright.planner.techniques.expert_pipelining import TECHNIQUE as CHOICE
from shardwright.spec.errors import InputError
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import technique_violation, with_value
from shardwright.spec.techniques.expert_pipelining import (
    COUNTS,
    NAME,
    TECHNIQUE,
    ExpertPipelining,
    exchange_groups,
    from_word,
)
from shardwright.spec.workload.workload import DtypeRecord

EP2 = LayerStrategy(ep=2)
SIZES = ExpertSizes(blocks=3, hidden=64, vocab=256, moe=Moe(experts=4, topk=2, ffn=96))
WIDE = ExpertSizes(blocks=2, hidden=256, vocab=512, moe=Moe(experts=4, topk=2, ffn=512))
FEW = (
    Restriction(axis="recompute", allowed=("none",)),
    Restriction(axis="cp", allowed=(1,)),
    Restriction(axis="tp", allowed=(1,)),
    Restriction(axis="etp", allowed=(1,)),
    Restriction(axis="schedule", allowed=("1f1b",)),
    Restriction(axis="micro_batch", allowed=(1,)),
)


class TestExpertPipelining(TechniqueSuite):
    known = SHIPPED
    name = NAME
    base, ranks, sizes = EP2, 2, SIZES
    pinned = ("ep=2", "recompute=none", "micro_batch=1", "shard=zero0")
    refused = (
        Refused(word="2/2", because="several ranks: ep above 1"),
        Refused(word="2/2:hierarchical", because="inside one", strategy=EP2, ranks=2),
        Refused(
            word="2/2",
            because="fp8",
            strategy=EP2,
            ranks=2,
            dtype=DtypeRecord.from_shorthand("fp8"),
        ),
    )

    @cached_property
    def named(self) -> dict[str, Any]:
        """A few flat words: two devices are one node."""
        return {word: self.value.from_word(word) for word in ("2/2", "1/2", "4/2")}

    def spaces(self) -> list[Space]:
        return [small_space(SHIPPED, NAME, ("none", "2/2", "1/4"), *FEW, sizes=WIDE)]


def test_words_are_their_values() -> None:
    assert len(TECHNIQUE.words) == len({*TECHNIQUE.words}) == 4 * 4 - 1 + 2
    assert from_word("2/4:hierarchical@2") == ExpertPipelining(
        forward=2, backward=4, exchange="hierarchical", node_ranks=2
    )
    for word in ("1/1", "3/2", "2/4:flat", "2/4@2", "2/4:hierarchical@0", "2/4:hierarchical@99999"):
        assert from_word(word) is None


def test_groups_of_both_levels_are_those_of_the_nodes() -> None:
    value = ExpertPipelining(exchange="hierarchical", node_ranks=8)
    found = exchange_groups(with_value(LayerStrategy(ep=16, etp=2), NAME, value))
    assert found == ((4, 8), (4, 2))


@pytest.mark.parametrize(
    ("moe", "because"),
    [
        ({"capacity_factor": 1.0}, "capacity factor"),
        ({"bias": True}, "biases"),
        ({"weigh": "inputs"}, "weighed inputs"),
    ],
)
def test_experts_that_no_run_cuts_are_refused(moe: dict[str, Any], because: str) -> None:
    sizes = ExpertSizes(moe=Moe(experts=4, topk=2, ffn=24, **moe))
    strategy = with_value(EP2, NAME, ExpertPipelining())
    layer, dtype = sizes.model().layers()[1], DtypeRecord.from_shorthand("fp32")
    assert because in str(technique_violation(layer, strategy, 2, dtype))


def test_dense_blocks_are_refused_by_pins() -> None:
    asked = resolve(Inputs(model="gpt2", cluster="2xA100-80GB", global_batch=2, seq_len=64))
    with pytest.raises(InputError, match="expert_pipelining"):
        resolve_pins(("expert_pipelining=2/2",), asked)


@pytest.mark.parametrize("cluster", ["8x2xH100-80GB", "2x8xA100-80GB"])
def test_the_chosen_counts_are_the_quickest_of_all(cluster: str) -> None:
    problem = resolve(
        Inputs(model="mixtral-8x7b", cluster=cluster, global_batch=16, seq_len=1024, dtype="bf16")
    )
    pricer = Pricer(problem.machine, problem.stack)
    lowering = Lowering(
        problem.model, problem.workload, problem.stack, problem.techniques.prices, {}
    )
    simulator = Simulator(lowering, pricer)
    for ep, etp in ((8, 1), (4, 2), (8, 2)):
        place = Place(
            index=1,
            layer=lowering.layers[1],
            strategy=LayerStrategy(ep=ep, etp=etp),
            ranks=16,
            samples=1,
            workload=problem.workload,
            tiers={},
            simulator=simulator,
        )

        def seconds(value: ExpertPipelining | None, place: Place = place) -> float:
            strategy = with_value(place.strategy, NAME, value)
            lowered = lowering.layer(1, strategy, None, 16, 16)
            return sum(pricer.layer_pass(way).time_s for way in (lowered.forward, lowered.backward))

        every = [None] + [
            ExpertPipelining(forward=f, backward=b)
            for f, b in product(COUNTS, repeat=2)
            if f * b > 1
        ]
        found = [*CHOICE.tried(place)] if CHOICE.tried is not None else []  # type: ignore[arg-type]
        best_s = min(seconds(value) for value in every)
        assert min(map(seconds, [None, *found])) <= best_s * (1 + 1e-9)


def test_an_explanation_says_what_of_the_exchanges_hides() -> None:
    strategy = with_value(EP2, NAME, from_word("4/4"))
    case = Case(name="", sizes=WIDE, ranks=2, micro_batch=4, strategies=strategy)
    plan = replace(case.plan(), cluster=parse_cluster("1x2xA100-80GB").cluster)
    stage = plan.program.stages[0]
    devices = (replace(stage.devices[0], device_group=plan.cluster.groups[0].name),)
    program = replace(plan.program, stages=(replace(stage, devices=devices),))
    plan = replace(plan, programs=(program,))
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
    (row,) = layer_exchanges(plan, simulator)
    assert (row.first_layer, row.layers) == (1, WIDE.blocks)
    assert 0 < row.forward_exposed_s < row.forward_s
    assert 0 < row.backward_exposed_s < row.backward_s
