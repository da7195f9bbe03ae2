"""StackSpec: the training framework whose kernels, buffers and overlap are priced.

A stack is data (``datasets/catalogue/stacks.toml``, each figure with its source); the lowering
reads its fields and never branches on its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import Field

from ..choices import (
    RECOMPUTES,
    SEQUENCE_PARALLELS,
    AttentionImpl,
    Overlap,
    Recompute,
    SequenceParallel,
)
from ..schedules.stage_order import ALL_KINDS, ScheduleKind
from .calibration import MEMORY_AS_SHIPPED, MemoryConstants

StateLayout = Literal["fsdp2", "contiguous", "partitioned"]
Reductions = Literal["with_layers", "after_passes"]
ShardKind = Literal["zero0", "zero1", "zero2", "zero3", "hsdp", "hpz", "nested"]
SplitAxis = Literal["pp", "tp", "cp", "ep", "etp"]
LayerCut = Literal["any", "ends", "even"]
SHARD_KINDS: tuple[ShardKind, ...] = get_args(ShardKind)
SPLIT_AXES: tuple[SplitAxis, ...] = get_args(SplitAxis)
Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegativeSeconds = Annotated[float, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapKinds:
    """Communication that the stack overlaps with computation, by its purpose.

    ``dp_gradient``: reductions of gradients, with the backward of the layers before.
    ``dp_parameter``: gathers of parameters, with the layer before (in stacks that gather after the
    update: with the next forward). ``tp``: the collective of a tensor-parallel product, in chunks
    with that product. ``pp``: messages between stages, with the sender's next pass. ``cp``: a
    ring's next keys and values, with attention on the present ones. ``ep``: the all-to-all of
    experts' tokens, with other computation.
    """

    dp_gradient: bool = False
    dp_parameter: bool = False
    tp: bool = False
    pp: bool = False
    cp: bool = False
    ep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFusion:
    """Neighboring operations that the stack fuses into one device kernel.

    ``gated_activation``: a gate's activation and its product. ``in_place``: queries and keys are
    rotated in one kernel, in place, and gradients of gated activations overwrite their inputs.
    ``linear_cross_entropy``: the projection to a vocabulary that is whole on the rank and its loss
    run over chunks of tokens (``kernels.loss_chunks``), which leave their gradients.
    ``router``: scores, choice and weights of experts. ``permute``: the copy of tokens into rows
    sorted by expert, and their weighted sum. ``weighted_activation``: rows are weighted inside the
    experts' activation, so that the experts' output need not be saved. ``across_parts``: a norm is
    fused with the residual sum before it, and in backward with that of the gradients; heads that
    products share are repeated (as a compiler does to a block).
    """

    qkv: bool = False
    gate_up: bool = False
    norm: bool = False
    rope: bool = False
    softmax: bool = False
    bias_activation: bool = False
    gated_activation: bool = False
    in_place: bool = False
    bias_residual: bool = False
    cross_entropy: bool = False
    linear_cross_entropy: bool = False
    weight_gradient_accumulation: bool = False
    router: bool = False
    permute: bool = False
    weighted_activation: bool = False
    across_parts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorModel:
    """Memory that the allocator and libraries hold beyond live tensors.

    ``workspace_bytes`` is the workspace of matrix product libraries on devices before Hopper,
    ``large_workspace_bytes`` on Hopper and Blackwell.
    """

    context_bytes: Bytes = 0
    workspace_bytes: Bytes = 0
    large_workspace_bytes: Bytes = 0
    communicator_bytes: Bytes = 0
    fragmentation: Fraction = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertChunks:
    """Chunks in which a layer's expert rows travel, beside the products of others.

    ``inside``: ranks of a node that exchange rows apart from those between nodes; 1: all at once.
    """

    forward: Annotated[int, Field(ge=1)] = 1
    backward: Annotated[int, Field(ge=1)] = 1
    inside: Annotated[int, Field(ge=1)] = 1


WHOLE_ROWS = ExpertChunks()
ANY_TECHNIQUE = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackLimits:
    """Plans that the stack can run.

    ``one_strategy``: all layers that can take them have one tp, sequence parallelism, cp, ep, etp,
    sharding and recomputation. ``axes``: degrees that may exceed 1. ``sequence_parallel``: values
    beside a tp above 1. ``shard``: sharding levels (hsdp: one degree for all states; nested: any
    others), ``pipeline_shard`` of them with several stages, ``tensor_shard`` with tp,
    ``context_shard`` with cp.
    ``layer_cut``: stages of any layers; of equal blocks but for the first and the last stage
    (ends); or of equal numbers of layers, embedding and head counted (even). ``techniques``: those
    that it has, ``NAME=WORD`` for one value of one, or ``any``.
    """

    one_strategy: bool = False
    axes: tuple[SplitAxis, ...] = SPLIT_AXES
    sequence_parallel: tuple[SequenceParallel, ...] = SEQUENCE_PARALLELS
    shard: tuple[ShardKind, ...] = SHARD_KINDS
    pipeline_shard: tuple[ShardKind, ...] = SHARD_KINDS
    tensor_shard: tuple[ShardKind, ...] = SHARD_KINDS
    context_shard: tuple[ShardKind, ...] = SHARD_KINDS
    layer_cut: LayerCut = "any"
    techniques: tuple[str, ...] = (ANY_TECHNIQUE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """Framework, version and the choices that shape its cost.

    ``name`` is NAME or NAME:setting=value,… with the settings that differ from its own.
    ``flash_generation`` 2: flash attention by FlashAttention-2, written for Ampere; 3: by kernels
    written for the device (FlashAttention-3, cuDNN).
    ``state_layout`` fsdp2: parameters are stored sharded and gathered into a compute copy from
    first
    use to the update (zero3: for each use). contiguous: whole compute parameters and gradient
    buffers live all the time, and only optimizer states shard. partitioned: compute parameters live
    beside a sharded master copy, whole and gathered after the update (zero0 to zero2) or sharded
    too
    and gathered for each use (zero3).
    ``reductions``: those of gradients that no computation hides follow each layer's last backward,
    or all passes of the stage.
    ``recompute``, ``schedules``: the recomputation and pipeline schedules that it has;
    ``recompute_by_operation``: blocks may keep results by name (``selective-ops``, which is
    searched where ``recompute`` has it, and ``ops:save=…``).
    ``narrow_weights``: weights of narrow products are quantized once a step and kept in both
    orientations (cached), or for each use; ``narrow_gather``: parameters are gathered quantized.
    ``expert_dispatch``: rows: each expert's row is sent; tokens: a token is sent once to each rank,
    and over a slower link once to each group of ranks, that holds any of its experts.
    ``vocab_multiple``: the vocabulary is padded to a multiple of this times tp. ``loss_copies``:
    fp32 tensors as large as the logits at the fullest moment of a cross-entropy that is not fused:
    0: it works in place; 3: PyTorch's plain form; more: the module's outputs are kept beside it.
    ``chunks_split_loss``: where tp splits the vocabulary and logits would be many, projection and
    loss run over chunks of tokens (``kernels.loss_chunks``).
    ``attention_gradient_copies``: gradients of attention come heads-first and are copied into
    order. ``packed_attention``: documents that share a sample are one call of attention; else a
    call for each group of like lengths, whose rows are copied there and back.
    ``recompute_stops_early``: recomputation ends once every saved tensor is back. ``dropout``:
    models of the GPT-2 kind, with layer norms and biases, are trained with it.
    ``tp_chunks``: chunks of a product that runs beside its collective (4: the medium-grained
    baseline of Flux, arXiv:2406.06858, and Megatron's userbuffers). ``product_chunks``: chunks in
    which a layer's tensor-parallel products and collectives are issued, ``expert_chunks`` those of
    its expert rows; techniques' to set.
    ``launch_s`` is host time a lowered kernel, the Python around it included; ``pass_s`` host time
    a layer pass. ``limits``: plans that it can run. ``memory`` comes from a calibration, not from
    the catalogue.
    """

    name: str
    version: str
    attention: AttentionImpl = "flash"
    flash_generation: Literal[2, 3] = 3
    overlaps: OverlapKinds = OverlapKinds(dp_gradient=True, dp_parameter=True, pp=True, cp=True)
    optimizer: Literal["fused", "foreach"] = "fused"
    compile: bool = False
    state_layout: StateLayout = "fsdp2"
    reductions: Reductions = "with_layers"
    recompute: tuple[Recompute, ...] = RECOMPUTES
    recompute_by_operation: bool = False
    schedules: tuple[ScheduleKind, ...] = ALL_KINDS
    fusion: KernelFusion = KernelFusion()
    narrow_weights: Literal["cached", "each_use"] = "each_use"
    narrow_gather: bool = False
    expert_dispatch: Literal["rows", "tokens"] = "rows"
    vocab_multiple: Annotated[int, Field(ge=1)] = 1
    loss_copies: Annotated[float, Field(ge=0)] = 0
    chunks_split_loss: bool = False
    recompute_stops_early: bool = True
    attention_gradient_copies: bool = True
    packed_attention: bool = True
    dropout: bool = False
    tp_chunks: Annotated[int, Field(ge=1)] = 4
    product_chunks: Annotated[int, Field(ge=1)] = 1
    expert_chunks: ExpertChunks = WHOLE_ROWS
    overlap_slowdown: Annotated[float, Field(ge=1, le=2)] = 1.0
    launch_s: NonNegativeSeconds = 0.0
    pass_s: NonNegativeSeconds = 0.0
    step_s: NonNegativeSeconds = 0.0
    allocator: AllocatorModel = AllocatorModel()
    limits: StackLimits = StackLimits()
    memory: MemoryConstants = MEMORY_AS_SHIPPED

    @property
    def fixed_orders(self) -> bool:
        """True if the stack runs only the schedules that it lists."""
        return self.schedules != ALL_KINDS

    @property
    def overlap(self) -> Overlap:
        """The widest ``--overlap`` mode all of whose communication the stack overlaps."""
        kinds = self.overlaps
        if not (kinds.dp_gradient and kinds.dp_parameter):
            return "none"
        if not kinds.tp:
            return "dp"
        return "all" if kinds.pp and kinds.cp and kinds.ep else "dp+tp"

    def with_overlap(self, mode: Overlap) -> StackSpec:
        """The stack with the communication that ``--overlap`` names overlapped.

        ======  ========================  =================  ==============
        mode    gradients and parameters  tensor-parallel    pp, cp, ep
        ======  ========================  =================  ==============
        none    serial                    serial             as the stack
        dp      with neighboring layers   serial             as the stack
        dp+tp   with neighboring layers   with its product   as the stack
        all     with neighboring layers   with its product   overlapped
        ======  ========================  =================  ==============
        """
        dp, tp, everything = mode != "none", mode in ("dp+tp", "all"), mode == "all"
        kinds = OverlapKinds(
            dp_gradient=dp,
            dp_parameter=dp,
            tp=tp,
            pp=self.overlaps.pp or everything,
            cp=self.overlaps.cp or everything,
            ep=self.overlaps.ep or everything,
        )
        return replace(self, overlaps=kinds)
