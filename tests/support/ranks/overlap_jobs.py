"""Jobs of ranks whose fused products are torch's definitions of them."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.techniques import tp_overlap
from shardwright.executor.torch_compat import fused_product_definitions
from shardwright.executor.train.job import train


def train_by_definitions(context: RankContext, payload: dict[str, Any]) -> Any:
    """Training as on devices with symmetric memory, over this pool's backend."""
    with (
        patch.object(tp_overlap, "fused_products", fused_product_definitions),
        patch.object(tp_overlap, "symmetric_memory_lack", lambda device: None),
        patch.object(tp_overlap, "open_symmetric_memory", lambda group: None),
    ):
        return train(context, payload)
