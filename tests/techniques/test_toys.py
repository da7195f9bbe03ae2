"""Techniques that only tests have plug into every package by the tuples that they bring."""

from __future__ import annotations

from generators.random_spaces import PLENTY_BYTES
from oracles.brute_force import Space
from published.planning import RULE, planned
from toys.census_choice import KNOWN as CENSUS
from toys.rounding_choice import KNOWN as ROUNDING
from toys.technique_spaces import FEW, TWO, small_space, solved
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.spec.workload.workload import DtypeRecord


class TestGradientCensus(TechniqueSuite):
    known = CENSUS
    name = "gradient_census"
    refused = (Refused(word="each", because="overflows", dtype=DtypeRecord(master="bf16")),)

    def spaces(self) -> list[Space]:
        """A census there must be, at once or in place."""
        return [small_space(CENSUS, self.name, ("each", "held"), *FEW, TWO)]

    def test_memory_decides_between_the_modes(self) -> None:
        """A group of its own has buffers, which small gradients are smaller than."""
        (space,) = self.spaces()
        answer = solved(space)
        chosen = []
        for reserved in (PLENTY_BYTES, min(plan.reserved_bytes for plan in answer.plans)):
            found = planned(space.with_memory(int(reserved * RULE.margin) + 1))
            assert found is not None
            best = found.outcomes[0]
            assert found.stopped_by == "proof"
            chosen.append({self.value.text_of(s) for s in best.plan.layer_strategies()})
        assert chosen == [{"none", "each"}, {"none", "held"}]


class TestRoundedInputs(TechniqueSuite):
    known = ROUNDING
    name = "rounded_inputs"
    refused = (Refused(word="bf16", because="already", dtype=DtypeRecord()),)

    def spaces(self) -> list[Space]:
        return [small_space(ROUNDING, self.name, ("none", "bf16"), *FEW)]
