"""address_plan is held to what every technique of a program is."""

from __future__ import annotations

from generators.plan_cases import Case, Sizes
from oracles.brute_force import Space
from toys.programs.program_suite import ProgramSuite
from toys.technique_spaces import FEW, small_space

from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.techniques.address_plan import ARENA_SLACK
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.technique import OFF

SIZES = Sizes(blocks=2, hidden=256, ffn=512, vocab=512)


class TestAddressPlan(ProgramSuite):
    known = SHIPPED
    name = "address_plan"
    refused_programs = ()

    def plain_spaces(self) -> list[Space]:
        return [small_space(SHIPPED, "recompute", ("none",), *FEW[1:], sizes=SIZES)]

    def simulated(self, word: str) -> Simulation:
        asked = self.problem()
        plan = self.with_word(Case(name=word, sizes=SIZES, ranks=1).plan(), word)
        simulator = Simulator.for_plan(plan, asked.machine, asked.stack, (self.price,))
        simulation = simulator.run(plan)
        assert simulation is not None
        return simulation

    def test_only_gaps_between_tensors_change(self) -> None:
        off, planned = (self.simulated(word) for word in (OFF, "mip"))
        before, after = off.memory[0], planned.memory[0]
        assert after.allocated_bytes == before.allocated_bytes
        assert after.by["fragmentation"] == int(ARENA_SLACK * after.allocated_bytes)
        assert before.by["fragmentation"] > after.by["fragmentation"]
        assert planned.step_time_s == off.step_time_s
