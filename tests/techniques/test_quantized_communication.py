"""quantized_communication is held to what every technique is."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from generators.plan_cases import sharded
from oracles.brute_force import Space
from toys.technique_spaces import FEW, small_space
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.planner.techniques import SHIPPED
from shardwright.spec.workload.workload import DtypeRecord

ZERO2 = sharded("zero2", 2)
SECOND_COPY = ("zero++", "hpz8")


class TestQuantizedCommunication(TechniqueSuite):
    known = SHIPPED
    name = "quantized_communication"
    base = ZERO2
    ranks = 2
    refused = (
        Refused(word="int8", because="needs sharded states", ranks=2),
        Refused(word="sdp4bit", because="stay whole", strategy=sharded("zero3", 2), ranks=2),
        Refused(word="zero++", because="second copy", strategy=sharded("zero3", 2), ranks=2),
        Refused(word="hpz8", because="needs one", strategy=sharded("zero3", 2), ranks=2),
        Refused(word="sdp4bit", because="stay whole", strategy=sharded("2/4/4", 4), ranks=4),
        Refused(
            word="int8",
            because="fp8",
            strategy=ZERO2,
            ranks=2,
            dtype=DtypeRecord.from_shorthand("fp8"),
        ),
    )

    @cached_property
    def named(self) -> dict[str, Any]:
        """Every word but those for which a layer must have a second copy of its parameters."""
        return {w: self.value.from_word(w) for w in self.value.words if w not in SECOND_COPY}

    @property
    def adds_work(self) -> bool:
        """Its kernels stand with the traffic that they shorten."""
        return False

    def spaces(self) -> list[Space]:
        return [small_space(SHIPPED, self.name, ("none", "int8", "sdp4bit"), *FEW)]
