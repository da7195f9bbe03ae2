"""Job: seconds of whole steps of small plans, for the host overheads."""

from __future__ import annotations

import gc
import math
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ...executor.data.records import random_batches
from ...executor.engine.engine import Engine
from ...executor.host.transfers import finish, release
from ...executor.stage.options import BuildOptions
from ...executor.techniques import SHIPPED
from ...spec.plan.plan import plan_of

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

WARM_UP = 2


def step_seconds(context: RankContext, payload: dict[str, Any]) -> list[float]:
    """Seconds of each step after warm-up, the slowest rank's.

    Once the budget is spent, one step warms up and one is timed.

    Args:
        context: the rank.
        payload: ``plan`` (a document), ``steps``, and ``budget_s`` if there is one.
    """
    end_s = time.perf_counter() + payload.get("budget_s", math.inf)
    plan = plan_of(payload["plan"], "plan")
    batches = random_batches(plan, seed=0)
    options = BuildOptions(
        seed=0, device=context.device, flash=True, prefetch=False, techniques=SHIPPED
    )
    release(context.device)  # an earlier probe's engine refers to itself
    engine = Engine(plan, context.rank, options, batches)
    times: list[float] = []
    is_over = False
    gc.collect()
    gc.disable()
    try:
        for step in range(WARM_UP + payload["steps"]):
            dist.barrier()
            finish(context.device)
            start_s = time.perf_counter()
            engine.step()
            finish(context.device)
            now_s = time.perf_counter()
            values = [now_s - start_s, float(now_s > end_s)]
            largest = torch.tensor(values, dtype=torch.float64, device=context.device)
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            if step >= WARM_UP or is_over:
                times.append(float(largest[0]))
            is_over = bool(largest[1])
            if is_over and times:
                break
    finally:
        gc.enable()
    return times
