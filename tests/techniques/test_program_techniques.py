"""Techniques of whole programs that only tests have plug into every package."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from generators.plan_cases import Case, Sizes
from oracles.brute_force import Space
from toys.programs.averaging_choice import KNOWN as AVERAGING
from toys.programs.packed_addresses import KNOWN as PACKING
from toys.programs.packed_addresses import TABLE_BYTES
from toys.programs.program_suite import SIZES, ProgramSuite, RefusedProgram
from toys.programs.signs_choice import KNOWN as SIGNS
from toys.technique_spaces import FEW, small_space, with_host

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.pins import resolve_pins
from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InputError
from shardwright.spec.plan.technique_groups import unsupported_plan_technique
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import OFF

FREE_TABLES = Sizes(blocks=2, hidden=256, ffn=512, vocab=512)


class TestAveragedWeights(ProgramSuite):
    """Reductions that leave replicas out, work once in several steps, named states."""

    known = AVERAGING
    name = "averaged_weights"
    ranks = 2
    refused_programs = (
        RefusedProgram(
            word="2",
            because="one average",
            case=Case(name="tied", sizes=replace(SIZES, tied=True), ranks=1),
        ),
        RefusedProgram(
            word="4",
            because="ranks of a ring",
            case=Case(name="ring", sizes=SIZES, ranks=2, strategies=[LayerStrategy(cp=2)] * 5),
        ),
        RefusedProgram(
            word="2",
            because="split backwards",
            case=Case(name="zb", sizes=SIZES, ranks=2, stages=2, kind="zero_bubble"),
        ),
    )

    def plain_spaces(self) -> list[Space]:
        return [small_space(AVERAGING, "recompute", ("none",), *FEW[1:], sizes=FREE_TABLES)]


class TestSignUpdates(ProgramSuite):
    """Updates in place of the optimizer's."""

    known = SIGNS
    name = "sign_updates"
    refused_programs = ()

    def plain_spaces(self) -> list[Space]:
        return [small_space(SIGNS, "recompute", ("none",), *FEW[1:], sizes=FREE_TABLES)]


class TestPackedAddresses(ProgramSuite):
    """Another stack, bytes of two tiers and work beside whole steps; no run."""

    known = PACKING
    name = "packed_addresses"
    asked = MappingProxyType({"host_gib": 1})
    refused_programs = ()

    def plain_spaces(self) -> list[Space]:
        space = small_space(PACKING, "recompute", ("none",), *FEW[1:], sizes=FREE_TABLES)
        return [with_host(space, 2**30)]

    def simulations(self) -> list[Simulation]:
        """Of one plan, without a word and with each."""
        asked, found = self.problem(), []
        for word in (OFF, *self.named):
            flags = UniformStrategy(techniques={self.name: word})
            plan, _ = uniform_plan(asked, flags)
            simulator = Simulator.for_plan(plan, asked.machine, asked.stack, (self.price,))
            simulation = simulator.run(plan)
            assert simulation is not None
            assert simulated_timeline(simulation, simulator).spans
            found.append(simulation)
        return found

    def test_only_reserved_bytes_change(self) -> None:
        off, packed, _ = self.simulations()
        before, (device, host) = off.memory[0], packed.memory
        assert before.by["fragmentation"] > device.by["fragmentation"] == 0
        assert device.by["workspace"] - before.by["workspace"] == TABLE_BYTES
        assert (host.tier, host.reserved_bytes) == ("host", TABLE_BYTES)

    def test_lanes_beside_steps_show_what_outlasts_them(self) -> None:
        off, packed, _ = self.simulations()
        lane_s = packed.stages[0].step_lanes[0].seconds
        factor, step_s = self.problem().stack.overlap_slowdown, off.step_time_s
        assert lane_s < step_s  # the whole copy shares the device with the step
        assert packed.step_time_s == pytest.approx(step_s + (factor - 1) * lane_s, rel=1e-9)
        assert breakdown(packed)[self.name] == pytest.approx(packed.step_time_s - off.step_time_s)
        assert packed.stages[0].step_lanes[0].technique == self.name

    def test_what_is_not_run_is_refused_before_a_search(self) -> None:
        plan = self.plan_with("size")
        reason = unsupported_plan_technique(plan, self.known.values)
        assert reason == "packed_addresses size is not run yet"
        asked = self.problem()
        with pytest.raises(InputError, match="what --execute can run"):
            resolve_pins((f"{self.name}=size",), asked, executable=True)
        solution = solve(asked, SolveOptions(executable=True))
        assert solution.search.space[self.name] == [OFF]
