"""Where the experts of a rank lie among all of them, against cutting the whole by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from shardwright.executor.checkpoint import tensor_offsets
from shardwright.executor.checkpoint.tensor_slices import plan_saves
from shardwright.spec.model.layer_parameters import ParameterSpec
from shardwright.spec.parallel.rank_groups import (
    expert_group,
    expert_shard_group,
    expert_tensor_group,
)
from shardwright.spec.strategy import LayerStrategy, Sharding

WHOLE = torch.arange(8 * 6 * 12).reshape(8, 6, 12)
"""Eight experts of six rows."""


class Sharded(SimpleNamespace):
    """Stands for a sharded parameter: its shape before it was sharded."""


def cut(whole: Tensor, parts: int, place: int) -> Tensor:
    """One of equal parts of the rows; the last ones may be short, or empty."""
    each = -(-whole.shape[0] // parts)
    return whole[place * each : (place + 1) * each]


def held(strategy: LayerStrategy, split_dim: int, rank: int, ranks: int) -> Any:
    """A rank's part, cut as a run cuts it: experts, then inside them, then rows over shards."""
    part = WHOLE.chunk(strategy.ep, 0)[expert_group(strategy).position(rank)]
    part = part.chunk(strategy.etp, split_dim)[expert_tensor_group(strategy).position(rank)]
    part = part.flatten(0, 1)
    shards = expert_shard_group(strategy, ranks)
    spec = ParameterSpec(
        name="experts_x.weight", shape=tuple(WHOLE.shape), split_dim=split_dim, expert=True
    )
    return SimpleNamespace(
        spec=spec,
        strategy=strategy,
        parameter=Sharded(shape=part.shape),
        data=cut(part, shards.size, shards.position(rank)),
    )


@pytest.mark.parametrize("level", ["zero0", "zero3"])
@pytest.mark.parametrize("split_dim", [1, 2])
@pytest.mark.parametrize(
    ("ep", "etp", "ranks"),
    [(1, 1, 3), (1, 2, 8), (2, 3, 6), (4, 2, 8), (2, 1, 8), (1, 6, 6), (2, 2, 20), (8, 1, 8)],
)
def test_every_rank_knows_where_its_experts_lie(
    monkeypatch: pytest.MonkeyPatch, ep: int, etp: int, ranks: int, split_dim: int, level: str
) -> None:
    """Each number is where it belongs, and what all ranks hold makes up the whole."""
    monkeypatch.setattr(tensor_offsets, "DTensor", Sharded)
    strategy = LayerStrategy(ep=ep, etp=etp, shard=Sharding.from_text(level, ranks))
    flat, rows = WHOLE.flatten(0, 1), []
    for rank in range(ranks):
        local = held(strategy, split_dim, rank, ranks)
        if not local.data.numel():
            continue
        process_groups: Any = SimpleNamespace(local_rank=rank, stage_ranks=ranks)
        part = tensor_offsets.parameter_slice(local, process_groups)
        assert part.full_shape == tuple(flat.shape)
        assert torch.equal(torch.cat([box.tensor for box in part.contiguous_slices()]), local.data)
        for box in part.contiguous_slices():
            (row, column), (height, width) = box.offsets, box.tensor.shape
            assert torch.equal(box.tensor, flat[row : row + height, column : column + width])
            assert part.at(box.offsets).data_ptr() == box.tensor.data_ptr()
        rows.append(part.rows("x"))
    plan_saves(rows)  # raises where parts leave a gap, or overlap
