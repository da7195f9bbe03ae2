"""Names of torchtitan's tensors: Llama, Qwen3, and experts of both.

Llama's rotary position turns neighboring channels (2i, 2i + 1) of a head (arXiv:2104.09864), ours
channel i with i + head_dim / 2: rows of its queries and keys lie in another order. Qwen3's lie as
ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.layers import BlockLayer, Layer
from ....spec.model.mixers import Attention
from .row_map import RowRun, SourcePiece

EMBEDDING = "tok_embeddings.weight"
ATTENTION: Mapping[str, tuple[str, ...]] = {
    "attention_norm": ("attention_norm",),
    "query": ("attention.qkv_linear.wq", "attention.wq"),
    "key": ("attention.qkv_linear.wk", "attention.wk"),
    "value": ("attention.qkv_linear.wv", "attention.wv"),
    "query_norm": ("attention.q_norm",),
    "key_norm": ("attention.k_norm",),
    "output": ("attention.wo",),
    "mlp_norm": ("ffn_norm",),
    "gate": ("feed_forward.w1",),
    "up": ("feed_forward.w3",),
    "down": ("feed_forward.w2",),
    "router": ("moe.router.gate",),
}
"""Names in a layer, of this version and of earlier ones."""
EXPERTS: Mapping[str, tuple[str, ...]] = {
    "experts_gate": ("moe.routed_experts.inner_experts.w1_EFD", "moe.experts.w1"),
    "experts_up": ("moe.routed_experts.inner_experts.w3_EFD", "moe.experts.w3"),
    "experts_down": ("moe.routed_experts.inner_experts.w2_EDF", "moe.experts.w2"),
}
ENDS: Mapping[str, tuple[str, ...]] = {
    "tokens": ("tok_embeddings",),
    "norm": ("norm",),
    "projection": ("lm_head", "output"),
}


class TorchtitanNames:
    """Maps of a source's names.

    Args:
        names: of the source's tensors, without any prefix.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def pieces(self, index: int, layer: Layer, spec: ParameterSpec) -> tuple[SourcePiece, ...]:
        """The tensors of a parameter; see :data:`row_map.SourcePieces`."""
        slot, _, kind = spec.name.rpartition(".")
        if not isinstance(layer, BlockLayer):
            name = self._known(f"{{}}.{kind}", ENDS[slot])
            return (SourcePiece(name=name, shape=spec.shape),)
        start = f"layers.{index - 1}."
        if spec.expert:
            name = self._known(f"{start}{{}}", EXPERTS[slot])
            experts = range(spec.shape[0])
            return tuple(
                SourcePiece(name=name, shape=spec.shape, index=(n,), expert=n) for n in experts
            )
        runs: tuple[RowRun, ...] = ()
        attention = layer.attention
        turned = slot in ("query", "key") and isinstance(attention, Attention)
        if turned and isinstance(attention, Attention) and not attention.qk_norm:
            runs = neighbors(attention.head_dim, spec.shape[0])
        name = self._known(f"{start}{{}}.{kind}", ATTENTION[slot])
        return (SourcePiece(name=name, shape=spec.shape, runs=runs),)

    def _known(self, template: str, words: tuple[str, ...]) -> str:
        names = [template.format(word) for word in words]
        return next((name for name in names if name in self._names), names[0])


def neighbors(head_dim: int, rows: int) -> tuple[RowRun, ...]:
    """Halves of each head, of which theirs has the channels side by side."""
    half = head_dim // 2
    return tuple(
        RowRun(first + part * half, first + part, half, 2)
        for first in range(0, rows, head_dim)
        for part in range(2)
    )
