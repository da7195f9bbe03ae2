"""Searches of stacks that run one strategy, against every plan of theirs, simulated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from generators.random_spaces import random_space
from oracles.brute_force import Space
from oracles.stack_spaces import check_best_plans

from shardwright.datasets.catalogue.stack import stacks

LIMITED = ("megatron", "torchtitan", "deepspeed", "accelerate")


def limited_space(name: str, seed: int) -> Space:
    space = random_space(seed)
    spec = replace(stacks()[name], attention=space.stack.attention)
    return replace(space, stack=spec, restrictions=())


@pytest.mark.parametrize("name", LIMITED)
def test_the_best_plan_of_a_stack_is_found_and_proven(name: str) -> None:
    space = limited_space(name, random.Random(name).randrange(10**6))
    check_best_plans(space)
