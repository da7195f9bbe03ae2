"""Techniques of a layer's passes, of its states, and of both: what is lowered and priced once."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from generators.plan_cases import Sizes
from generators.random_plans import Drawer
from oracles.brute_force import Space, needed_bytes, simulator_of
from published.planning import request_of
from toys import census_choice, parking_choice
from toys.levers import KNOWN, PACKED, PARKED, SHELVED, VALUES
from toys.technique_spaces import small_space, with_host

from shardwright.costmodel.lowering.layer_parts import LayerWorkCache
from shardwright.planner.space.search_space import SearchSpace
from shardwright.planner.tables.layer_costs import LayerCosts
from shardwright.planner.tables.option_table import OptionTables
from shardwright.planner.technique import KnownTechniques
from shardwright.spec.schedules.stage_order import ALL_KINDS
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import value_of_word


def lever_space(*words: tuple[str, tuple[str, ...]], blocks: int = 2) -> Space:
    """A small space with words of some levers."""
    (name, first), *_ = words
    space = small_space(KNOWN, name, first, sizes=Sizes(blocks=blocks, hidden=64, ffn=128))
    return with_host(space, 10**10)


def every_combination() -> tuple[LayerStrategy, ...]:
    """One split with no, one or all quarters of each lever."""
    words = (("part:0.25", "all"), ("q1", "q4"), ("q1", "q4"))
    choices = [
        (None, *(value_of_word(v, w, v.name) for w in own))
        for v, own in zip(VALUES, words, strict=True)
    ]
    return tuple(
        LayerStrategy(
            techniques={v.name: one for v, one in zip(VALUES, values, strict=True) if one}
        )
        for values in product(*choices)
    )


def test_splits_and_units_are_lowered_once_for_what_touches_them() -> None:
    simulator = simulator_of(lever_space((PARKED, ("none", "all"))))
    lowering = simulator.lowering
    strategies = every_combination()
    assert len(strategies) == 3**3
    layers = {id(lowering.layer(1, s, None, 1, 1)) for s in strategies}
    units = {id(lowering.unit((1,), s, 1)) for s in strategies}
    assert len(layers) == len(units) == 3**2
    by_names = {v.name: v.value() for v in VALUES}
    plain = LayerStrategy()
    shelved, parked = (LayerStrategy(techniques={n: by_names[n]}) for n in (SHELVED, PARKED))
    assert lowering.layer(1, shelved, None, 1, 1) is lowering.layer(1, plain, None, 1, 1)
    assert lowering.unit((1,), parked, 1) is lowering.unit((1,), plain, 1)
    packed = LayerStrategy(techniques={PACKED: by_names[PACKED]})
    assert lowering.layer(1, packed, None, 1, 1) is not lowering.layer(1, plain, None, 1, 1)


def test_a_table_of_combinations_is_one_of_each_alone() -> None:
    simulator = simulator_of(lever_space((PARKED, ("none", "all"))))
    strategies = every_combination()

    def tables() -> OptionTables:
        works = LayerWorkCache(simulator.lowering)
        return OptionTables(LayerCosts(simulator.lowering, works, simulator.pricer), (0,))

    together = tables().table(1, strategies, 1, 2, 4)
    for row, strategy in enumerate(strategies):
        alone = tables().table(1, (strategy,), 1, 2, 4)
        for name in ("microbatch_s", "step_bound_s", "step_estimate_s", "resident_bytes"):
            assert getattr(alone, name)[0] == getattr(together, name)[row]
        assert (alone.memory_at(2)[:, 0] == together.memory_at(2)[:, row]).all()


@pytest.mark.parametrize(
    ("known", "name", "words"),
    [
        (parking_choice.KNOWN, "parked_outputs", ("none", "part:0", "part:0.4", "all")),
        (census_choice.KNOWN, "gradient_census", ("none", "each", "held")),
    ],
)
def test_values_that_only_add_are_left_out_and_never_better(
    known: KnownTechniques, name: str, words: tuple[str, ...]
) -> None:
    space = with_host(small_space(known, name, words, cluster="1x4xA100-80GB"), 10**10)
    simulator = simulator_of(space)
    searched = SearchSpace(request_of(space), simulator)
    for shape in searched.shapes():
        for layer_class in searched.first_of_class:
            samples = space.workload.global_batch // shape.microbatches
            options = searched.options(layer_class, shape.ranks, samples)
            assert options
            assert all(not strategy.techniques for strategy in options)
    assert searched.describe([*searched.shapes()])[name] == sorted(words)
    drawer, held = Drawer(space, random.Random(0), ALL_KINDS), 0
    for _ in range(60):
        draft = drawer.draft()
        plain = replace(
            draft, strategies=tuple(replace(s, techniques={}) for s in draft.strategies)
        )
        with_values, without = (simulator.run(one.plan(space)) for one in (draft, plain))
        assert with_values is not None
        assert without is not None
        held += draft != plain
        assert without.step_time_s <= with_values.step_time_s * (1 + 1e-12)
        for tier in ("hbm", "host"):
            assert needed_bytes(without, tier) <= needed_bytes(with_values, tier)
    assert held > 10


def test_a_pinned_value_is_kept_though_it_only_adds() -> None:
    space = small_space(parking_choice.KNOWN, "parked_outputs", ("all",))
    searched = SearchSpace(request_of(space), simulator_of(space))
    options = searched.options(searched.layer_classes[1], 2, 2)
    assert options
    assert all(strategy.techniques for strategy in options)
