"""Faulty planners that the checks of the planner must catch."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from generators.random_plans import Draft, Drawer
from generators.random_spaces import random_cap, random_space
from generators.samples import random_problem
from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work
from oracles.bound_checks import ROUNDING, check_bounds
from oracles.brute_force import Answer, Pipeline, Space, simulator_of, solve
from published.planning import RULE, compare, parts_of
from support.mutant_planners import MUTANTS, Mutant

from shardwright.spec.model.model_spec import BlockLayer, LayerRun

SPACES = 150
MOST_PLANS = 1500
BOUND_PROBLEMS = 100
BOUND_PLANS = 25
DRAWN = 16
"""Faults of the short form."""
SOUND_SPACES, SOUND_PROBLEMS = 40, 30
"""Checks of the planner as it is in the short form; `oracle` and `bounds` do more."""
BLOCKS = 14


@dataclass(frozen=True)
class Question:
    """A solved space at one memory capacity."""

    seed: int
    space: Space
    answer: Answer
    capacity_bytes: int


@cache
def question(seed: int) -> Question:
    """The space ``seed``, solved by brute force once."""
    space = random_space(seed, MOST_PLANS)
    answer = solve(space, check_every=1000)
    return Question(seed, space, answer, random_cap(random.Random(f"cap {seed}"), answer, RULE))


def even_problem(seed: int) -> Space:
    """A problem of evenly split layers and nearly free links.

    There schedules are as good as they can be, and bounds that ask too much of them show.
    """
    base = random_problem(seed, most_devices=4)
    runs: list[LayerRun] = []
    for part in base.model.towers[0].layers:
        if isinstance(part.layer, BlockLayer):
            runs += [LayerRun(layer=part.layer, count=BLOCKS)] * (len(runs) == 1)
        else:
            runs.append(LayerRun(layer=replace(part.layer, vocab=64)))
    tower = replace(base.model.towers[0], layers=tuple(runs))
    levels = tuple(
        replace(level, bandwidth_bytes_per_s=1e14, latency_s=1e-9) for level in base.cluster.levels
    )
    return replace(
        base,
        model=replace(base.model, towers=(tower,)),
        cluster=replace(base.cluster, levels=levels),
        profile=None,
    )


def run(work: Work) -> Evidence:
    """Put each fault into the planner and run the checks."""
    mutants = {m.name: m for m in work.sample(MUTANTS, DRAWN, 3)}
    spaces, problems = work.sized(SPACES, 6), work.sized(BOUND_PROBLEMS, 4)
    sound_spaces = work.sized(SOUND_SPACES, 6, SPACES)
    sound_problems = work.sized(SOUND_PROBLEMS, 4, BOUND_PROBLEMS)
    (sound,) = work.pieces(["none"], lambda _: _judge(None, sound_spaces, sound_problems))
    pieces = work.pieces(list(mutants), lambda name: _judge(mutants[name], spaces, problems))
    verdicts = dict(zip(mutants, pieces, strict=True))
    caught = [name for name, verdict in verdicts.items() if verdict["by"]]
    alive = [name for name in verdicts if name not in caught]
    by_oracle = sum(verdicts[name]["by"] == "oracle" for name in caught)
    return Evidence(
        rows=[
            judged(
                "the planner as it is",
                sound["what"]
                or f"nothing found in {sound_spaces} spaces and {sound_problems} problems",
                "nothing found",
                not sound["by"],
            ),
            judged(
                "wrong planners caught",
                f"{len(caught)} of {len(verdicts)}"
                + (f"; not caught: {', '.join(alive)}" if alive else ""),
                f"all {len(verdicts)}",
                not alive,
                caught=len(caught),
                mutants=len(verdicts),
            ),
            reported(
                "caught by",
                f"the oracle {by_oracle}, the bound checks {len(caught) - by_oracle}",
                oracle=by_oracle,
                bounds=len(caught) - by_oracle,
            ),
        ],
        tables=[
            Table(
                title="Each fault, and what caught it",
                columns=("fault", "caught by", "after", "as"),
                rows=[
                    (mutants[name].what, v["by"] or "nothing", v["after"], v["what"][:140])
                    for name, v in verdicts.items()
                ],
            )
        ],
    )


def _judge(mutant: Mutant | None, spaces: int, problems: int) -> dict[str, str]:
    """The first check that catches the fault, and its message."""
    for seed in range(spaces):
        problem = question(seed)  # solved before anything is broken
        with _broken(mutant):
            fault = _said(partial(_compared, problem))
        if fault:
            return {"by": "oracle", "after": f"{seed + 1} spaces", "what": fault}
    for seed in range(problems):
        with _broken(mutant):
            fault = _said(partial(_bounds, seed))
        if fault:
            return {"by": "bounds", "after": f"{seed + 1} problems", "what": fault}
    return {"by": "", "after": "", "what": ""}


def _compared(problem: Question) -> list[str]:
    return compare(problem.seed, problem.space, problem.answer, problem.capacity_bytes).faults


def _bounds(seed: int) -> list[str]:
    faults = check_bounds(random_problem(seed), BOUND_PLANS, seed).faults
    return [*faults, *_even_faults(seed)][:1]


def _even_faults(seed: int) -> list[str]:
    """Shape bounds above an even plan, without a memory limit."""
    space = even_problem(seed)
    bounds, simulator = parts_of(space).bounds, simulator_of(space)
    drawer, faults = Drawer(space, random.Random(seed)), []
    for shape in bounds.tables.space.shapes():
        layers = len(space.model.layers())
        if layers % shape.positions or shape.ranks > 1:
            continue
        pipeline = Pipeline(
            stages=shape.stages,
            width=shape.ranks,
            kind=shape.kind,
            chunks=shape.chunks,
            microbatches=shape.microbatches,
        )
        strategies = tuple(options[0] for options in drawer.choices(pipeline))
        boundaries = tuple(range(0, layers + 1, layers // shape.positions))
        draft = Draft(pipeline=pipeline, boundaries=boundaries, strategies=strategies)
        simulation = simulator.run(draft.plan(space))
        if simulation is None:
            raise RuntimeError("a simulation without a limit ends")
        ratio = bounds.exact_s(shape) / simulation.step_time_s
        if ratio > 1 + ROUNDING:
            faults.append(f"shape {ratio:.6f} of {shape}")
    return faults


def _said(check: Callable[[], list[str]]) -> str:
    try:
        return "; ".join(check())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@contextmanager
def _broken(mutant: Mutant | None) -> Iterator[None]:
    if mutant is None:
        yield
        return
    plain: Any = mutant.holder.__dict__[mutant.attribute]
    setattr(mutant.holder, mutant.attribute, mutant.make(plain))
    try:
        yield
    finally:
        setattr(mutant.holder, mutant.attribute, plain)


ITEM = Item(
    name="planner_mutants",
    shows="The checks of the planner notice when something in it is wrong.",
    target="each of 16 wrong planners is caught, the right one is not.",
    full_target="every wrong planner is caught, the right one is not.",
    run=run,
    reads=(*PLANNING, "benchmarks/support/mutant_planners.py",
    "tests/support/oracles/brute_force.py",
           "tests/support/generators/random_spaces.py", "tests/support/generators/random_plans.py",
           "tests/support/published/planning.py", "tests/support/generators/samples.py",
           "tests/support/oracles/bound_checks.py"),
)  # fmt: skip
