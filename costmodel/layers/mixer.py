"""Token mixers: one function per mixer kind, by the spec's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...spec.model.mixers import Attention, DeltaRule, LatentAttention, Mixer, StateSpace
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext
from ..ops.recurrent.delta_rule import delta_rule
from ..ops.recurrent.state_space import state_space
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


MIXERS: dict[type[Any], LowerMixer] = {
    Attention: attention_mixer,
    DeltaRule: delta_rule,
    LatentAttention: latent_attention,
    StateSpace: state_space,
}
