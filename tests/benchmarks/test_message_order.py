"""Plans over held links, in two orders of messages."""

from __future__ import annotations

from items.executor import message_order
from support import late_messages

from shardwright.executor.engine import engine
from shardwright.executor.stage.chunk_backward import ChunkBackward


def test_engines_send_late_only_inside() -> None:
    with late_messages.message_order("late"):
        assert engine.ChunkBackward is not ChunkBackward
    assert engine.ChunkBackward is ChunkBackward
    with late_messages.message_order("early"):
        assert engine.ChunkBackward is ChunkBackward


def test_every_case_fits_its_nodes_and_is_mostly_reductions() -> None:
    for case in message_order.CASES:
        plan = message_order.held_plan(case)
        assert plan.cluster.levels[-1].bandwidth_bytes_per_s == message_order.BYTES_PER_S
        assert [stage.device_count for stage in plan.program.stages] == [2, 2]
        _, share = message_order._predicted(plan, None)
        assert share > message_order.LEAST_SHARE
