"""Model FLOPs: training FLOPs of a sample, without splits, padding or recomputation.

A trained layer needs three forward passes' worth: the backward multiplies for the gradients of
input and of weight. Frozen weights have no second product: linear layers count twice, core
attention, which has no weights, three times, and adapters three times (4 N instead of 6 N FLOPs per
token for N frozen parameters). A layer before the first trained one only runs forward.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from ...spec.cluster.stack_spec import KernelFusion, StackSpec
from ...spec.model.experts import dropless
from ...spec.model.model_spec import LatentAttention, Layer, ModelSpec
from ...spec.model.towers import LayerContext, layer_contexts
from ...spec.recomputation import block_of
from ...spec.report.report import FLOPS_CONVENTION
from ...spec.report.work_items import FLASH_FORWARDS, GROUPED, computed_fraction
from ...spec.strategy import LayerStrategy
from ...spec.workload.number_formats import rate_name
from ...spec.workload.training import FULLY_TRAINED, LayerTraining
from ...spec.workload.workload import Workload
from ..ops.indexer import selection_flops
from ..symbolic.layer_shape import LayerShape
from ..symbolic.lowered_pass import LoweredPass
from .layer_lowering import lower_layer
from .tower_outputs import tower_input_shapes

TRAINING_FACTOR = 3
"""A training step costs three forward passes: the backward is two."""
LINEAR = GROUPED | {"matmul"}
FLOPS_STACK = StackSpec(name="flops", version="0", fusion=KernelFusion(qkv=True))


@lru_cache(maxsize=64)
def model_flops_per_sample(model: ModelSpec, workload: Workload) -> int:
    """Model FLOPs of training on one sample, unsplit and unpadded.

    Every score of a causal mask counts; of a sliding window or of documents, the visible ones.
    """
    contexts = layer_contexts(model, workload.seq_len)
    trainings = workload.layer_trainings(model)
    kinds = Counter(zip(model.layers(), contexts, trainings, strict=True))
    dtype = workload.dtype.param
    documents = workload.document_tokens
    return sum(count * _layer_flops(*kind, dtype, documents) for kind, count in kinds.items())


@lru_cache(maxsize=64)
def masked_flops_per_sample(model: ModelSpec, workload: Workload) -> int:
    """Part of :func:`model_flops_per_sample` that causal masks hide.

    Half of plain causal attention, less where a window leaves few later keys to hide, none of
    unmasked attention and of cross-attention.
    """
    contexts = layer_contexts(model, workload.seq_len)
    trainings = workload.layer_trainings(model)
    kinds = Counter(zip(model.layers(), contexts, trainings, strict=True))
    dtype = workload.dtype.param
    documents = workload.document_tokens
    return sum(count * _masked_flops(*kind, dtype, documents) for kind, count in kinds.items())


def forward_flops(model: ModelSpec, workload: Workload) -> tuple[int, ...]:
    """Model FLOPs of every layer's forward on one unsplit, unpadded sample."""
    contexts, dtype = layer_contexts(model, workload.seq_len), workload.dtype.param
    kinds = list(zip(model.layers(), contexts, strict=True))
    documents = workload.document_tokens
    flops_by_kind = {
        kind: _forward(*kind, FULLY_TRAINED, dtype, documents).flops
        for kind in dict.fromkeys(kinds)
    }
    return tuple(flops_by_kind[kind] for kind in kinds)


def _layer_flops(
    layer: Layer,
    context: LayerContext,
    training: LayerTraining,
    dtype: str,
    documents: float | None,
) -> int:
    forward = _forward(layer, context, FULLY_TRAINED, dtype, documents)
    if not training.backward:
        return forward.flops
    selection = (TRAINING_FACTOR - 1) * _selection_flops(layer, context.tokens)
    if training.weights:
        return TRAINING_FACTOR * forward.flops - selection
    adapters = 0
    if training.adapters is not None:
        adapted = _forward(layer, context, training, dtype, documents)
        adapters = adapted.flops - forward.flops
    linear = sum(kernel.flops for kernel in forward.kernels() if kernel.op in LINEAR)
    return TRAINING_FACTOR * (forward.flops + adapters) - linear - selection


def _selection_flops(layer: Layer, tokens: int) -> int:
    """FLOPs of choosing the keys that queries attend to, forward only."""
    block = block_of(layer)
    mixer = block.attention if block is not None else None
    if block is None or not isinstance(mixer, LatentAttention):
        return 0
    return selection_flops(mixer, block.hidden, tokens)


def _masked_flops(
    layer: Layer,
    context: LayerContext,
    training: LayerTraining,
    dtype: str,
    documents: float | None,
) -> int:
    kernels = _forward(layer, context, FULLY_TRAINED, dtype, documents).kernels()
    hidden = sum(
        round(kernel.flops * (1 - computed_fraction(kernel.op, kernel.shape)))
        for kernel in kernels
        if kernel.op in FLASH_FORWARDS
    )
    return hidden * (TRAINING_FACTOR if training.backward else 1)


def _forward(
    layer: Layer,
    context: LayerContext,
    training: LayerTraining,
    dtype: str,
    documents: float | None,
) -> LoweredPass:
    shape = LayerShape(
        strategy=LayerStrategy(),
        before=None,
        batch=1,
        seq_len=context.tokens,
        dtype=dtype,
        stack=FLOPS_STACK,
        sources=tower_input_shapes(context, redistributes=False),
        training=training,
        documents=documents,
    )
    return lower_layer(dropless(layer), shape).forward


def flops_convention(workload: Workload) -> str:
    """Describe how FLOPs and the peak for MFU are counted."""
    text = FLOPS_CONVENTION
    if workload.trainable != "full" or workload.frozen:
        text += "; frozen weights have no gradient: their products count twice, not three times"
    if workload.dtype.matmul is not None:
        narrow = rate_name(workload.dtype.matmul)
        text += f"; against the peak of {workload.dtype.param}, though products run in {narrow}"
    return text
