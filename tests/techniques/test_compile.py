"""compile is held to what every technique is."""

from __future__ import annotations

from oracle import Restriction, Space
from technique_spaces import small_space
from technique_suite import Refused, TechniqueSuite

from shardwright.planner.techniques import SHIPPED
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload import DtypeRecord


class TestCompile(TechniqueSuite):
    known = SHIPPED
    name = "compile"
    refused = (
        Refused(word="default", because="beside cp", strategy=LayerStrategy(cp=2), ranks=2),
        Refused(word="cuda_graph", because="capture", strategy=LayerStrategy(tp=2), ranks=2),
        Refused(word="cuda_graph", because="gathers them anew", ranks=2),
        Refused(word="cuda_graph", because="copies of fp32 masters", dtype=DtypeRecord()),
        Refused(word="default", because="fp8", dtype=DtypeRecord.from_shorthand("fp8")),
    )

    def spaces(self) -> list[Space]:
        few = (
            Restriction(axis="recompute", allowed=("none",)),
            Restriction(axis="cp", allowed=(1,)),
            Restriction(axis="schedule", allowed=("1f1b",)),
            Restriction(axis="micro_batch", allowed=(1, 2)),
            Restriction(axis="tp", allowed=(1,)),
        )
        return [small_space(SHIPPED, self.name, ("none", "default", "cuda_graph"), *few)]
