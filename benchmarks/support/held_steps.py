"""Steps of plans over held links, timed in turn.

A rank of ``support.held_links``: ``python -m support.held_steps QUESTION.json ANSWER.json``. Plans
take turns round by round, so that a slow minute of the machine meets all of them alike.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.held_links import answered, held_levels

from shardwright.spec.plan.plan import Plan

if TYPE_CHECKING:
    from shardwright.executor.launch.rank_context import RankContext

JOIN_TIMEOUT_S = 60.0
Times = dict[str, list[float]]
"""Seconds of each step, by plan."""
Traces = dict[str, str]
"""Routing traces, by plan."""


def held_steps(plans: Mapping[str, Plan], rounds: int, steps: int, timeout_s: float) -> Times:
    """Run plans of one cluster on ranks whose links are held to its rates.

    Raises:
        RuntimeError: a rank failed, or all took longer than ``timeout_s``.
    """
    return _asked(plans, rounds, steps, timeout_s, None)[0]


def routed_steps(
    plans: Mapping[str, Plan], exponent: float, rounds: int, steps: int, timeout_s: float
) -> tuple[Times, Traces]:
    """The same with tokens routed by shares that fall as k^-``exponent``, and recorded traces."""
    return _asked(plans, rounds, steps, timeout_s, exponent)


def _asked(
    plans: Mapping[str, Plan], rounds: int, steps: int, timeout_s: float, exponent: float | None
) -> tuple[Times, Traces]:
    asked = {
        "plans": {name: plan.to_document() for name, plan in plans.items()},
        "rounds": rounds,
        "steps": steps,
        "exponent": exponent,
    }
    cluster = next(iter(plans.values())).cluster
    found = answered(held_levels(cluster), "support.held_steps", asked, timeout_s)
    return found["times"], found["traces"]


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
    with _routing(asked["exponent"]):
        traces = {
            name: _trace(context, plan, Path(answer).with_name("trace.csv"))
            for name, plan in asked["plans"].items()
            if asked["exponent"] is not None
        }
        for _ in range(asked["rounds"]):
            for name, plan in asked["plans"].items():
                times[name] += step_seconds(context, {"plan": plan, "steps": asked["steps"]})
    if rank == 0:
        Path(answer).write_text(json.dumps({"times": times, "traces": traces}))
    sys.stdout.flush()
    os._exit(0)  # communication threads may wait for ranks that have ended


def _routing(exponent: float | None) -> AbstractContextManager[None]:
    if exponent is None:
        return nullcontext()
    from ranks.expert_jobs import by_power, routing

    return routing(by_power(exponent))


def _trace(context: RankContext, plan: dict[str, Any], path: Path) -> str:
    """The routing trace of a step, as the run of a plan writes it; rank 0 reads it back."""
    from shardwright.executor.train.job import train

    settings = {"steps": 1, "random_tokens": True, "follow_bytes": False}
    train(context, {"plan": plan, **settings, "routing_trace": str(path)})
    return path.read_text() if context.rank == 0 else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
