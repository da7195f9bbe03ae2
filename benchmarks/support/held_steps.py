"""Steps of plans over held links, timed in turn.

A rank of ``support.held_links``: ``python -m support.held_steps QUESTION.json ANSWER.json``. Plans
take turns round by round, so that a slow minute of the machine meets all of them alike.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.held_links import answered, held_levels

from shardwright.spec.plan.plan import Plan

JOIN_TIMEOUT_S = 60.0
Times = dict[str, list[float]]
"""Seconds of each step, by plan."""


def held_steps(plans: Mapping[str, Plan], rounds: int, steps: int, timeout_s: float) -> Times:
    """Run plans of one cluster on ranks whose links are held to its rates.

    Raises:
        RuntimeError: a rank failed, or all took longer than ``timeout_s``.
    """
    asked = {
        "plans": {name: plan.to_document() for name, plan in plans.items()},
        "rounds": rounds,
        "steps": steps,
    }
    cluster = next(iter(plans.values())).cluster
    found: Times = answered(held_levels(cluster), "support.held_steps", asked, timeout_s)
    return found


def main(question: str, answer: str) -> None:
    """Time every plan, round by round; rank 0 writes the seconds."""
    from shardwright.executor.launch.rank_context import RankContext
    from shardwright.executor.worker import join_ranks
    from shardwright.profiler.timing.step_timing import step_seconds

    asked: dict[str, Any] = json.loads(Path(question).read_text())
    device = join_ranks("cpu", JOIN_TIMEOUT_S)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    context = RankContext(rank, ranks, device, JOIN_TIMEOUT_S, lambda event: None)
    times: Times = {name: [] for name in asked["plans"]}
    for _ in range(asked["rounds"]):
        for name, plan in asked["plans"].items():
            times[name] += step_seconds(context, {"plan": plan, "steps": asked["steps"]})
    if rank == 0:
        Path(answer).write_text(json.dumps(times))
    sys.stdout.flush()
    os._exit(0)  # communication threads may wait for ranks that have ended


if __name__ == "__main__":
    main(*sys.argv[1:])
