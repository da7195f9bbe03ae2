"""What must hold of a changed plan: refused in one line, or legal and simulated."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import Any, Literal

from generators.samples import sample
from runner.mutants import mutant

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import load_plan

Verdict = Literal["refused", "simulated", "too large to simulate"]


def verdict(text: str, stack: StackSpec) -> Verdict:
    """What becomes of a plan document; any other exception is a fault."""
    try:
        plan = load_plan(text, "mutant")
    except InputError as error:
        _one_line(error)
        return "refused"
    assert plan.check() == []
    again = load_plan(canonical_json(plan.to_document()), "again")
    assert again == plan
    try:
        simulation = Simulator.for_plan(plan, Machine(plan.cluster), stack).run(plan)
    except InputError as error:
        _one_line(error)
        return "too large to simulate"
    assert simulation is not None
    assert 0 < simulation.step_time_s < math.inf
    return "simulated"


def _one_line(error: InputError) -> None:
    message = str(error)
    assert message
    assert message.isprintable(), message
    assert len(message) < 1000, len(message)


def run_mutants(count: int, first_seed: int = 0) -> Counter[str]:
    """Verdicts of so many mutants of random plans; raises at the first fault, naming it."""
    found: Counter[str] = Counter()
    for number in range(first_seed, first_seed + count):
        source = random.Random(f"mutant {number}")
        base = sample(source.randrange(200))
        document: dict[str, Any] = json.loads(canonical_json(base.plan.to_document()))
        changed, what = mutant(document, source)
        try:
            found[verdict(json.dumps(changed), base.space.stack)] += 1
        except Exception as error:
            fault = f"{type(error).__name__} {error}"
            raise AssertionError(f"mutant {number} ({what}): {fault}") from error
    return found
