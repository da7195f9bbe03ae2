"""Token mixers: one function per mixer kind, by the spec's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...spec.model.block_parameters import STATE_PREFIX
from ...spec.model.mixers import (
    Attention,
    DeltaRule,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
)
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext
from ..ops.eager import add
from ..ops.recurrent.delta_rule import delta_rule
from ..ops.recurrent.kimi_delta import kimi_delta
from ..ops.recurrent.lightning import lightning_attention
from ..ops.recurrent.short_convolution import short_convolution
from ..ops.recurrent.state_space import state_space
from ..ops.residual import unfused_residual
from ..symbolic.tape import SymbolicTensor
from .attention import attention_mixer
from .latent_attention import latent_attention

LowerMixer = Callable[[OpContext, Any, int, LayerStrategy, SymbolicTensor], SymbolicTensor]
"""A block's token mixing, before the residual sum.

Takes context, mixer, width of the residual stream, the layer's decisions and the block's input,
normalized where the block says so. It releases that input as soon as nothing needs it.
"""


def mixer(spec: Mixer) -> LowerMixer:
    """The function of this kind of mixer.

    Looked up, not wrapped: a wrapper's frame would keep the input alive while it runs.
    """
    return MIXERS[type(spec)]


def parallel_mixers(
    c: OpContext, spec: ParallelMixers, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Attention and a state space of one input, each with its own output projection, added."""
    c = unfused_residual(c)
    states = state_space(c, spec.state_space, hidden, strategy, x, STATE_PREFIX)
    mixed = attention_mixer(c, spec.attention, hidden, strategy, x)
    return add(c.tape, states, mixed)


MIXERS: dict[type[Any], LowerMixer] = {
    Attention: attention_mixer,
    DeltaRule: delta_rule,
    KimiDeltaAttention: kimi_delta,
    LatentAttention: latent_attention,
    LightningAttention: lightning_attention,
    ParallelMixers: parallel_mixers,
    ShortConvolution: short_convolution,
    StateSpace: state_space,
}
