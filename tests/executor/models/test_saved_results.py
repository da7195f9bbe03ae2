"""A block that keeps named results: the same gradients, and nothing kept runs again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from shardwright.executor.models.block import Block
from shardwright.executor.models.layer import LayerBuild
from shardwright.executor.models.sequence_split import unsplit_sequence
from shardwright.executor.models.tensor_parallel import NO_TENSOR_PARALLEL
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.model.feed_forward import Mlp
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import Attention

SEQ, BATCH, HIDDEN = 8, 2, 32
LAYER = BlockLayer(
    hidden=HIDDEN,
    norm="rmsnorm",
    attention=Attention(heads=4, kv_heads=2, head_dim=8),
    mlp=Mlp(ffn=48, activation="swiglu"),
)


class Counted(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def block(recompute: str) -> Block:
    build = LayerBuild(
        tp=NO_TENSOR_PARALLEL,
        kernels=Dispatcher("portable"),
        recompute=recompute,
        flash=True,
        seq_len=SEQ,
        sequence=unsplit_sequence(SEQ),
    )
    made, source = Block(LAYER, build), torch.Generator().manual_seed(0)
    for spec in layer_parameters(LAYER):
        holder, kind = made.holder(spec.name)
        values = torch.randn(spec.shape, generator=source) / 6
        setattr(holder, kind, nn.Parameter(values))
    return made


def passes(recompute: str) -> tuple[list[Tensor], Counter[str]]:
    """Gradients of two micro-batches in flight together, and operations of their backward."""
    made, source = block(recompute), torch.Generator().manual_seed(1)
    inputs = [torch.randn(SEQ, BATCH, HIDDEN, generator=source) for _ in range(2)]
    losses = [made(x.requires_grad_()).square().sum() for x in inputs]
    counted = Counted()
    with counted:
        for loss in losses:
            loss.backward()
    gradients = [p.grad for p in made.parameters()] + [x.grad for x in inputs]
    assert all(gradient is not None for gradient in gradients)
    return gradients, counted.names  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("recompute", "again", "attention"),
    [
        ("full", 7, 1),
        ("selective-ops", 3, 0),
        ("ops:save=input,attention", 7, 0),
        ("ops:save=input,query,key,value,gate,up", 2, 1),
        ("ops:save=input,attention,down", 6, 0),
    ],
)
def test_only_what_is_not_kept_runs_again(recompute: str, again: int, attention: int) -> None:
    expected, plain = passes("none")
    gradients, counted = passes(recompute)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert counted["mm"] - plain["mm"] == 2 * again
    flash = "_scaled_dot_product_flash_attention_for_cpu"
    assert counted[flash] == 2 * attention
