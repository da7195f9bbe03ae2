"""Token mixers as symbolic work: one function a kind, told apart by the spec's type."""

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
from .latent_attention import latent_mixer

LowerMixer = Callable[[OpContext, Any, int, LayerStrategy, SymbolicTensor], SymbolicTensor]
"""What a block adds by mixing its tokens, before the residual.

Takes context, mixer, width of the residual stream, the layer's decisions and the block's input,
normalised where the block says so. It lets go of that input as soon as nothing needs it.
"""


def mixer(spec: Mixer) -> LowerMixer:
    """The function that runs a mixer of this kind.

    It is looked up, not wrapped: a wrapper's frame would hold the input while it runs.
    """
    return MIXERS[type(spec)]


MIXERS: dict[type[Any], LowerMixer] = {
    Attention: attention_mixer,
    DeltaRule: delta_rule,
    LatentAttention: latent_mixer,
    StateSpace: state_space,
}
