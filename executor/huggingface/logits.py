"""Logits of a built plan without training, for comparisons."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ...spec.errors import InputError
from ...spec.model.model_spec import HeadLayer
from ...spec.parallel.batch_partition import IndexRange
from ...spec.parallel.rank_groups import tensor_group
from ..engine.engine import Engine
from ..torch_compat import all_gather_single


def local_logits(engine: Engine, tokens: Tensor) -> tuple[IndexRange, Tensor]:
    """Logits of a micro-batch on this rank, with its samples.

    The logits are (samples, seq, vocabulary). Collective over the stage; no state changes.

    Args:
        engine: of a single-stage plan.
        tokens: (samples of a micro-batch over all replicas, seq).

    Raises:
        InputError: a plan of several stages.
    """
    stages = engine.plan.program.stages
    if len(stages) != 1 or len(engine.chunks) != 1:
        raise InputError("plan.stages", len(stages), "one stage: logits are made on all its ranks")
    chunk = engine.chunks[0]
    mine = engine.process_groups.samples(chunk.strategies[min(chunk.strategies)])
    local_tokens = tokens[mine.first : mine.end].t().contiguous().to(engine.options.device)
    with torch.no_grad():
        (local,) = chunk((), {0: local_tokens})
        for unit in [chunk, *chunk.layers.values()]:
            if isinstance(unit, FSDPModule):
                unit.reshard()  # a gathered copy would outlive the next update
        whole = _whole_vocabulary(engine, local)
    return engine.process_groups.samples(chunk.last_strategy), whole.transpose(0, 1).float().cpu()


def _whole_vocabulary(engine: Engine, local: Tensor) -> Tensor:
    """All tensor-parallel ranks' vocabulary parts, side by side."""
    strategy = engine.chunks[0].last_strategy
    if strategy.tp == 1:
        return local
    head = next(x for x in engine.plan.model.layers() if isinstance(x, HeadLayer))
    rows = -(-head.vocab // strategy.tp)
    moved = local.movedim(-1, 0)
    padded = moved.new_zeros((rows, *moved.shape[1:]))
    padded[: moved.shape[0]] = moved
    out = padded.new_empty((rows * strategy.tp, *moved.shape[1:]))
    all_gather_single(out, padded, group=engine.process_groups.group(tensor_group(strategy)))
    return out[: head.vocab].movedim(0, -1)
