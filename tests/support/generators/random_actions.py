"""Orders of passes that somebody might write: any that some step could come to."""

from __future__ import annotations

import random
from dataclasses import replace

from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.action_text import format_actions
from shardwright.spec.schedules.stage_order import Pass, chunk_position


class _Stage:
    """How far a stage has come with each chunk."""

    def __init__(self, chunks: int) -> None:
        self.passes: list[Pass] = []
        self.forwards, self.inputs, self.weights = ([0] * chunks for _ in range(3))


def random_order(plan: Plan, seed: int) -> Plan:
    """The plan with an order in which every stage did whatever it could, by chance.

    Messages between two stages may come in another order than they are taken, where there are
    several chunks: such a plan is not legal.
    """
    source, program = random.Random(seed), plan.program
    kind, count = program.schedule.kind, program.schedule.microbatches
    stages, chunks = len(program.stages), program.chunks_per_stage
    last = stages * chunks - 1
    held = [_Stage(chunks) for _ in range(stages)]
    made: set[tuple[bool, int, int]] = set()
    splits, eager = source.random(), source.random()
    while any(min(stage.weights) < count for stage in held):
        number = source.randrange(stages)
        stage, chunk = held[number], source.randrange(chunks)
        position = chunk_position(kind, number, chunk, stages)
        if source.random() < eager and stage.weights[chunk] < stage.inputs[chunk]:
            stage.passes.append(Pass(False, chunk, stage.weights[chunk], "weight"))
            stage.weights[chunk] += 1
            continue
        forward = source.random() < 0.5
        done = stage.forwards if forward else stage.inputs
        batch = done[chunk]
        before = position - 1 if forward else position + 1
        ready = not 0 <= before <= last or (forward, before, batch) in made
        if batch == count or not ready or (not forward and batch >= stage.forwards[chunk]):
            continue
        whole = forward or (source.random() > splits and stage.weights[chunk] == batch)
        stage.passes.append(Pass(forward, chunk, batch, "whole" if whole else "input"))
        done[chunk] += 1
        if whole and not forward:
            stage.weights[chunk] += 1
        made.add((forward, position, batch))
    schedule = replace(program.schedule, actions=tuple(format_actions(s.passes) for s in held))
    return replace(plan, programs=(replace(program, schedule=schedule),))
