"""Techniques of a layer's passes, of its states, and of both: what is lowered and priced once."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType

from generators.plan_cases import Sizes
from oracles.brute_force import Space, simulator_of
from toys.levers import KNOWN, PACKED, PARKED, SHELVED, VALUES
from toys.technique_spaces import small_space, with_host

from shardwright.costmodel.lowering.layer_parts import LayerWorkCache
from shardwright.planner.tables.layer_costs import LayerCosts
from shardwright.planner.tables.option_table import OptionTables
from shardwright.spec.strategy import LayerStrategy

WORDS = ("none", "q1", "q4")


def lever_space(*words: tuple[str, tuple[str, ...]], blocks: int = 2) -> Space:
    """A small space with words of some levers."""
    (name, first), *_ = words
    space = small_space(KNOWN, name, first, sizes=Sizes(blocks=blocks, hidden=64, ffn=128))
    return with_host(space, 10**10)


def every_combination() -> tuple[LayerStrategy, ...]:
    """One split with no, one or all quarters of each lever."""
    choices = [(None, *(v.from_word(w) for w in WORDS[1:])) for v in VALUES]
    return tuple(
        LayerStrategy(
            techniques={v.name: one for v, one in zip(VALUES, values, strict=True) if one}
        )
        for values in product(*choices)
    )


def test_splits_and_units_are_lowered_once_for_what_touches_them() -> None:
    simulator = simulator_of(lever_space((PARKED, WORDS)))
    lowering = simulator.lowering
    strategies = every_combination()
    assert len(strategies) == len(WORDS) ** 3
    layers = {id(lowering.layer(1, s, None, 1, 1)) for s in strategies}
    units = {id(lowering.unit((1,), s, 1)) for s in strategies}
    assert len(layers) == len(units) == len(WORDS) ** 2
    by_names = {v.name: v.from_word("q4") for v in VALUES}
    plain = LayerStrategy()
    shelved, parked = (LayerStrategy(techniques={n: by_names[n]}) for n in (SHELVED, PARKED))
    assert lowering.layer(1, shelved, None, 1, 1) is lowering.layer(1, plain, None, 1, 1)
    assert lowering.unit((1,), parked, 1) is lowering.unit((1,), plain, 1)
    packed = LayerStrategy(techniques=MappingProxyType({PACKED: by_names[PACKED]}))
    assert lowering.layer(1, packed, None, 1, 1) is not lowering.layer(1, plain, None, 1, 1)


def test_a_table_of_combinations_is_one_of_each_alone() -> None:
    simulator = simulator_of(lever_space((PARKED, WORDS)))
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
