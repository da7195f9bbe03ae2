"""Blocks of the transformers library beside the layers that are lowered for them.

A case names a configuration class, its sizes and a part of the model it makes. The model runs
once to see what it hands to that part; then the part runs alone, is traced, and is held against
the lowering of the layer that the same configuration describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from hf_trace import Trace, trace

from shardwright.costmodel.lower import LayerShape, LoweredLayer, lower_layer
from shardwright.spec.feed_forward import Mlp
from shardwright.spec.huggingface import model_from_config
from shardwright.spec.layers import BlockLayer, Layer
from shardwright.spec.mixers import DeltaRule, StateSpace
from shardwright.spec.stack import ATTENTIONS, AttentionImpl, StackSpec
from shardwright.spec.strategy import LayerStrategy

BATCH, SEQ_LEN, VOCAB = 2, 32, 96
IMPLEMENTATIONS: dict[AttentionImpl, str] = {"unfused": "eager", "flash": "sdpa"}
TORCH_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ROTARY = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 160,
    "head_dim": 16,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


@dataclass(frozen=True, kw_only=True)
class BlockCase:
    """One layer kind: configuration class and sizes; the model's part; which block of ours.

    ``layer`` is for families whose configurations are not read yet. Fused kernels
    of scans are no part of the library: their blocks have the plain form only.
    """

    name: str
    config: str
    part: str = "layers.0"
    sizes: Mapping[str, Any] = field(default_factory=lambda: ROTARY)
    block: int = 0
    layer: Layer | None = None
    seq_len: int = SEQ_LEN
    attentions: tuple[AttentionImpl, ...] = ATTENTIONS

    def configuration(self) -> Any:
        """The library's configuration object."""
        import transformers

        return getattr(transformers, self.config)(**self.sizes)

    def our_layer(self) -> Layer:
        """The layer that the configuration describes, read from its document."""
        if self.layer is not None:
            return self.layer
        model, _ = model_from_config(self.configuration().to_dict(), self.name, self.name)
        return [layer for layer in model.layers() if isinstance(layer, BlockLayer)][self.block]


GPT2_SIZES = {
    "vocab_size": VOCAB,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 1,
    "n_positions": 64,
    "attn_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
STATE_SPACE = StateSpace(heads=8, head_dim=16, state_dim=24, groups=2, chunk=12)
STATE_SPACE_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "layers_block_type": ["mamba"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 24,
    "n_groups": 2,
    "chunk_size": 12,
    "pad_token_id": None,
}
DELTA_RULE = DeltaRule(key_heads=2, value_heads=4, key_dim=24, value_dim=16)
DELTA_RULE_SIZES = ROTARY | {
    "layer_types": ["linear_attention"],
    "mlp_only_layers": [0],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 16,
}
CASES = [
    BlockCase(name="gpt2", config="GPT2Config", part="h.0", sizes=GPT2_SIZES),
    BlockCase(name="llama", config="LlamaConfig"),
    BlockCase(name="mistral", config="MistralConfig", sizes=ROTARY | {"sliding_window": None}),
    BlockCase(name="qwen2", config="Qwen2Config"),
    BlockCase(name="qwen3", config="Qwen3Config"),
    BlockCase(
        name="mamba2",
        config="NemotronHConfig",
        sizes=STATE_SPACE_SIZES,
        layer=BlockLayer(hidden=64, attention=STATE_SPACE, mlp=None),
        attentions=("unfused",),
    ),
    BlockCase(
        name="gated_delta_net",
        config="Qwen3NextConfig",
        sizes=DELTA_RULE_SIZES,
        layer=BlockLayer(hidden=64, attention=DELTA_RULE, mlp=Mlp(ffn=160)),
        seq_len=160,
        attentions=("unfused",),
    ),
]


def eager_stack(attention: AttentionImpl) -> StackSpec:
    """Plain eager torch as the library runs it: nothing fused but, where asked, attention."""
    return StackSpec(name="transformers", version="5.23.0", attention=attention)


@cache
def block_trace(name: str, attention: AttentionImpl, dtype: str) -> Trace:
    """Trace the library's block of a case."""
    from transformers import AutoModel

    case = next(case for case in CASES if case.name == name)
    torch.manual_seed(0)
    model = AutoModel.from_config(
        case.configuration(), attn_implementation=IMPLEMENTATIONS[attention]
    )
    model = model.to(TORCH_TYPES[dtype]).train()
    part = model.get_submodule(case.part)
    args, kwargs = _inputs_of(model, part, case.seq_len)
    return trace(part, lambda: _first(part(*args, **kwargs)))


def _inputs_of(
    model: Any, part: Any, seq_len: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model hands to its part; activations as leaves that ask for gradients."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    handle = part.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True
    )
    tokens = torch.randint(0, VOCAB, (BATCH, seq_len))
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
    handle.remove()
    args, kwargs = seen[0]
    return tuple(map(_leaf, args)), {name: _leaf(value) for name, value in kwargs.items()}


def _leaf(value: Any) -> Any:
    """Activations, (batch, tokens, width), become leaves; masks and tables stay."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim == 3:
        return value.detach().clone().requires_grad_()
    return value


def _first(value: Any) -> torch.Tensor:
    return value[0] if isinstance(value, tuple) else value


def lowered_block(case: BlockCase, attention: AttentionImpl, dtype: str) -> LoweredLayer:
    """The case's layer on one rank under :func:`eager_stack`."""
    shape = LayerShape(
        strategy=LayerStrategy(),
        before=None,
        batch=BATCH,
        seq_len=case.seq_len,
        dtype=dtype,
        stack=eager_stack(attention),
    )
    return lower_layer(case.our_layer(), shape)


def kept_bytes(lowered: LoweredLayer) -> int:
    """What is kept from the forward pass for the backward pass, its input where it is saved."""
    return lowered.forward.change_bytes - lowered.output_bytes + lowered.input_bytes
