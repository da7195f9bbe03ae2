"""Steps with messages before or after the reductions of their pass, timed in turn.

A rank of ``support.held_links``: ``python -m support.late_messages QUESTION.json ANSWER.json``. The
late order is what fully_shard does by itself; no setting of the product leads to it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Order = Literal["early", "late"]
ORDERS: tuple[Order, ...] = ("early", "late")
TIMEOUT_S = 60.0


@contextmanager
def message_order(order: Order) -> Iterator[None]:
    """Inside, engines send a gradient before or after its pass's reductions."""
    from shardwright.executor.engine import engine
    from shardwright.executor.stage.chunk_backward import ChunkBackward

    def late(chunk: Any, splits: bool, sends: bool, dtype: Any) -> ChunkBackward:
        return ChunkBackward(chunk, splits, False, dtype)

    engine.ChunkBackward = late if order == "late" else ChunkBackward  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        engine.ChunkBackward = ChunkBackward  # type: ignore[misc]


def main(question: str, answer: str) -> None:
    """Time every plan in both orders, round by round; rank 0 writes the seconds."""
    from shardwright.executor.launch.rank_context import RankContext
    from shardwright.executor.worker import join_ranks
    from shardwright.profiler.timing.step_timing import step_seconds

    asked = json.loads(Path(question).read_text())
    device = join_ranks("cpu", TIMEOUT_S)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    context = RankContext(rank, ranks, device, TIMEOUT_S, lambda event: None)
    times: dict[str, dict[str, list[float]]] = {
        name: {order: [] for order in ORDERS} for name in asked["plans"]
    }
    for _ in range(asked["rounds"]):
        for name, plan in asked["plans"].items():
            for order in ORDERS:
                with message_order(order):
                    payload = {"plan": plan, "steps": asked["steps"]}
                    times[name][order] += step_seconds(context, payload)
    if rank == 0:
        Path(answer).write_text(json.dumps(times))
    sys.stdout.flush()
    os._exit(0)  # communication threads may wait for ranks that have ended


if __name__ == "__main__":
    main(*sys.argv[1:])
