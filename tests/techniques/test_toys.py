"""Techniques that only tests have plug into every package by the tuples that they bring."""

from __future__ import annotations

from types import MappingProxyType

from generators.random_spaces import PLENTY_BYTES
from oracles.brute_force import Space
from published.planning import RULE, planned
from toys.census_choice import KNOWN as CENSUS
from toys.parking_choice import KNOWN as PARKING
from toys.rounding_choice import KNOWN as ROUNDING
from toys.technique_spaces import FEW, TWO, small_space, solved, with_host
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.workload import DtypeRecord

OUTPUT_BYTES = 64 * 256 * 4
"""Of a block, for one sample."""


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


class TestParkedOutputs(TechniqueSuite):
    """Lanes both ways, bytes of the host, and a family of one number."""

    known = PARKING
    name = "parked_outputs"
    asked = MappingProxyType({"host_gib": 1})
    refused = (Refused(word="all", because="of a ring", strategy=LayerStrategy(cp=2), ranks=2),)

    def spaces(self) -> list[Space]:
        """With room on the host for the outputs of one block, and of all."""
        rooms = {"all": 2 * OUTPUT_BYTES, "part:0.5": 10**9}
        return [
            with_host(small_space(PARKING, self.name, ("none", word), *FEW, TWO), host_bytes)
            for word, host_bytes in rooms.items()
        ]


class TestRoundedInputs(TechniqueSuite):
    known = ROUNDING
    name = "rounded_inputs"
    refused = (Refused(word="bf16", because="already", dtype=DtypeRecord()),)

    def spaces(self) -> list[Space]:
        return [small_space(ROUNDING, self.name, ("none", "bf16"), *FEW)]
