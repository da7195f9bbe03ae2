"""Techniques of whole programs that only tests have plug into every package."""

from __future__ import annotations

from dataclasses import replace

from generators.plan_cases import Case, Sizes
from oracles.brute_force import Space
from toys.programs.averaging_choice import KNOWN as AVERAGING
from toys.programs.program_suite import SIZES, ProgramSuite, RefusedProgram
from toys.programs.signs_choice import KNOWN as SIGNS
from toys.technique_spaces import FEW, small_space

from shardwright.spec.strategy import LayerStrategy

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
