"""Names of Megatron-core's tensors (GPTModel): Llama, Qwen, Mixtral, GPT.

``linear_qkv`` interleaves queries, keys and values by group of heads; ``linear_fc1`` has the gate
above the up projection; a norm may be fused into the projection after it (Transformer Engine).
Layers are the first dimension, or each has its name; experts are a dimension too, or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.layers import BlockLayer, Layer
from ....spec.model.mixers import Attention
from .row_map import RowRun, SourcePiece

EMBEDDING = "embedding.word_embeddings.weight"
ENDS = {
    "tokens": "embedding.word_embeddings",
    "positions": "embedding.position_embeddings",
    "norm": "decoder.final_layernorm",
    "projection": "output_layer",
}
PADDED = ("tokens", "projection")
QKV, FC1 = "self_attention.linear_qkv", "mlp.linear_fc1"
PLAIN = {
    "query_norm": "self_attention.q_layernorm",
    "key_norm": "self_attention.k_layernorm",
    "output": "self_attention.linear_proj",
    "down": "mlp.linear_fc2",
    "router": "mlp.router",
}
NORMS = {"attention_norm": ("input_layernorm", QKV), "mlp_norm": ("pre_mlp_layernorm", FC1)}
"""Name of a norm of its own, and the projection that may hold it."""
IGNORED = "_extra_state"
EXPERTS = "mlp.experts.experts"
Shapes = Mapping[str, tuple[int, ...]]


class MegatronNames:
    """Maps of a source's names.

    Args:
        shapes: of the source's tensors, by name without any prefix.
        blocks: layers of the model between embedding and head.
    """

    def __init__(self, shapes: Shapes, blocks: int) -> None:
        self._shapes, self._blocks = shapes, blocks

    def pieces(self, index: int, layer: Layer, spec: ParameterSpec) -> tuple[SourcePiece, ...]:
        """The tensors of a parameter; see :data:`row_map.SourcePieces`."""
        slot, _, kind = spec.name.rpartition(".")
        if not isinstance(layer, BlockLayer):
            name = f"{ENDS[slot]}.{kind}"
            return (SourcePiece(name=name, shape=spec.shape, padded=slot in PADDED),)
        if spec.expert:
            return tuple(self._expert(index, spec, slot, kind, n) for n in range(spec.shape[0]))
        name, rows, runs = self._place(index, layer, spec, slot, kind)
        return (self._at(index, name, (rows, *spec.shape[1:]), runs),)

    def _place(
        self, index: int, layer: BlockLayer, spec: ParameterSpec, slot: str, kind: str
    ) -> tuple[str, int, tuple[RowRun, ...]]:
        """Name within a layer, rows of the tensor, and where ours lie."""
        count = spec.shape[0]
        if slot in NORMS:
            own, holder = NORMS[slot]
            fused = f"{holder}.layer_norm_{kind}"
            return (fused if self._has(index, fused) else f"{own}.{kind}"), count, ()
        if slot in ("query", "key", "value") and isinstance(layer.attention, Attention):
            attention = layer.attention
            rows = attention.query_dim + 2 * attention.kv_dim
            return f"{QKV}.{kind}", rows, tuple(_grouped(attention, slot))
        if slot in ("gate", "up"):
            gated = getattr(layer.mlp, "gated", False)
            runs = (RowRun(0, count, count),) if gated and slot == "up" else ()
            return f"{FC1}.{kind}", count * (2 if gated else 1), runs
        return f"{PLAIN[slot]}.{kind}", count, ()

    def _names(self, index: int, inner: str) -> tuple[str, str]:
        """A tensor's names: with layers as a dimension, and one by one."""
        return f"decoder.layers.{inner}", f"decoder.layers.{index - 1}.{inner}"

    def _has(self, index: int, inner: str) -> bool:
        return any(name in self._shapes for name in self._names(index, inner))

    def _at(
        self, index: int, inner: str, shape: tuple[int, ...], runs: tuple[RowRun, ...]
    ) -> SourcePiece:
        stacked, single = self._names(index, inner)
        if stacked in self._shapes:
            whole = (self._blocks, *shape)
            return SourcePiece(name=stacked, shape=whole, index=(index - 1,), runs=runs)
        return SourcePiece(name=single, shape=shape, runs=runs)

    def _expert(
        self, index: int, spec: ParameterSpec, slot: str, kind: str, number: int
    ) -> SourcePiece:
        experts, rows, *rest = spec.shape
        gated = slot != "experts_down"
        inner = f"{EXPERTS}.linear_fc{1 if gated else 2}.{kind}"
        shape = (2 * rows if gated else rows, *rest)
        runs = (RowRun(0, rows, rows),) if slot == "experts_up" else ()
        stacked, single = self._names(index, inner)
        layers = (self._blocks,) if stacked in self._shapes else ()
        at = (index - 1,) if layers else ()
        return SourcePiece(
            name=stacked if layers else single,
            shape=(*layers, experts, *shape),
            index=(*at, number),
            runs=runs,
            expert=number,
        )


def _grouped(attention: Attention, slot: str) -> Iterator[RowRun]:
    """Rows of queries, keys or values among those of all groups of heads."""
    size, queries = attention.head_dim, attention.heads // attention.kv_heads * attention.head_dim
    group = queries + 2 * size
    count = queries if slot == "query" else size
    offset = {"query": 0, "key": queries, "value": queries + size}[slot]
    for number in range(attention.kv_heads):
        yield RowRun(number * count, number * group + offset, count)
