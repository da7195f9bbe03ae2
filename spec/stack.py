"""StackSpec: the training software whose kernels, buffers and overlap a prediction prices.

A stack is data (``datasets/catalogue/stacks.toml``, each figure with its source); the
lowering asks it questions and never branches on its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

AttentionImpl = Literal["flash", "unfused"]
Overlap = Literal["none", "dp", "dp+tp", "all"]
Fraction = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0)]

OVERLAPS: tuple[Overlap, ...] = ("none", "dp", "dp+tp", "all")
ATTENTIONS: tuple[AttentionImpl, ...] = ("flash", "unfused")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFusion:
    """Which neighbouring operations the stack runs as one device kernel."""

    qkv: bool = False
    gate_up: bool = False
    norm: bool = False
    rope: bool = False
    softmax: bool = False
    bias_activation: bool = False
    bias_residual: bool = False
    cross_entropy: bool = False
    weight_gradient_accumulation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorModel:
    """What the memory allocator and the libraries hold beyond live tensors."""

    context_bytes: Bytes = 0
    workspace_bytes: Bytes = 0
    communicator_bytes: Bytes = 0
    fragmentation: Fraction = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """Framework, version and the choices that shape its cost.

    ``state_layout`` fsdp2: parameters are stored sharded and gathered into a compute copy
    from first use to the update (or after each use, zero3). contiguous: whole compute
    parameters and gradient buffers live all the time, and only optimizer states shard.
    ``vocab_multiple``: the vocabulary is padded to a multiple of this times tp.
    ``attention_gradient_copies``: gradients of attention come heads-first and are copied into
    order. ``recompute_stops_early``: recomputation ends once every saved tensor is back.
    ``overlapped_ring``: a ring's next keys and values travel while attention works on those at
    hand. ``launch_s`` is host time a kernel; ``pass_s`` host time a layer pass.
    """

    name: str
    version: str
    attention: AttentionImpl = "flash"
    overlap: Overlap = "dp"
    optimizer: Literal["fused", "foreach"] = "fused"
    compile: bool = False
    state_layout: Literal["fsdp2", "contiguous"] = "fsdp2"
    fusion: KernelFusion = KernelFusion()
    vocab_multiple: Annotated[int, Field(ge=1)] = 1
    recompute_stops_early: bool = True
    attention_gradient_copies: bool = True
    overlapped_p2p: bool = True
    overlapped_ring: bool = True
    overlap_slowdown: Annotated[float, Field(ge=1, le=2)] = 1.0
    launch_s: Seconds = 0.0
    pass_s: Seconds = 0.0
    step_s: Seconds = 0.0
    allocator: AllocatorModel = AllocatorModel()
