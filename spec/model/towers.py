"""Context of each layer among the towers of a model.

A layer may read another tower's output: every block with cross-attention does (T5's decoder), or
else the target's first layer, which inserts those tokens among its own (images in a text). Such an
output travels along with the activations, in their layout, to its last reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .layers import BlockLayer, EmbeddingLayer, HeadLayer, Layer, ProjectorLayer
from .model_spec import ModelSpec, Tower


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerOutput:
    """Output of layer ``layer`` for another tower.

    Tokens of a sample and their width.
    """

    layer: int
    tokens: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContext:
    """One layer's context.

    Tokens of a sample, start of a tower, other towers' outputs.

    ``sources`` travel along to the layer; ``read`` are those of them that it reads.
    """

    tokens: int
    begins_tower: bool
    sources: tuple[TowerOutput, ...] = ()
    read: tuple[TowerOutput, ...] = ()


@lru_cache(maxsize=256)
def layer_contexts(model: ModelSpec, seq_len: int) -> tuple[LayerContext, ...]:
    """The context of every layer, by its number in a plan."""
    layers, outputs, readers = model.layers(), _outputs(model, seq_len), _readers(model)
    last_reader = {name: max(numbers) for name, numbers in readers.items() if numbers}
    contexts, first = [], 0
    for tower in model.towers:
        tokens = tower.seq_len or seq_len
        for index in range(first, first + tower.layer_count):
            names = [n for n, o in outputs.items() if o.layer < index <= last_reader.get(n, -1)]
            context = LayerContext(
                tokens=tokens,
                begins_tower=index == first,
                sources=tuple(outputs[name] for name in names),
                read=tuple(outputs[name] for name in names if index in readers[name]),
            )
            contexts.append(context)
        first += tower.layer_count
    if len(contexts) != len(layers):
        raise RuntimeError("every layer has one context")
    return tuple(contexts)


def tower_outputs_after(contexts: tuple[LayerContext, ...], index: int) -> tuple[TowerOutput, ...]:
    """Other towers' outputs that layer ``index`` passes on to the next."""
    return contexts[index + 1].sources if index + 1 < len(contexts) else ()


def inserted_tokens(model: ModelSpec, seq_len: int) -> int:
    """The most tokens of other towers inserted among a tower's own.

    0 if none.
    """
    contexts = layer_contexts(model, seq_len)
    return max((sum(s.tokens for s in c.read) for c in contexts if c.begins_tower), default=0)


def _outputs(model: ModelSpec, seq_len: int) -> dict[str, TowerOutput]:
    outputs, end = {}, 0
    for tower in model.towers:
        end += tower.layer_count
        last, tokens = tower.layers[-1].layer, tower.seq_len or seq_len
        width = last.out if isinstance(last, ProjectorLayer) else last.hidden
        joined = last.tokens_per_output if isinstance(last, ProjectorLayer) else 1
        outputs[tower.name] = TowerOutput(layer=end - 1, tokens=tokens // joined, hidden=width)
    return outputs


def _readers(model: ModelSpec) -> dict[str, set[int]]:
    readers: dict[str, set[int]] = {tower.name: set() for tower in model.towers}
    first_layers: dict[str, int] = {}
    end = 0
    for tower in model.towers:
        first_layers[tower.name] = end
        end += tower.layer_count
    for edge in model.edges:
        start = first_layers[edge.target]
        readers[edge.source] |= {start + i for i in _reading(model.tower(edge.target))}
    return readers


def _reading(tower: Tower) -> list[int]:
    """Layers of a tower that read another's output: cross-attention, else the first."""
    cross_attending = [i for i, layer in enumerate(tower.expand()) if has_cross_attention(layer)]
    return cross_attending or [0]


def has_cross_attention(layer: Layer) -> bool:
    """True if a layer reads another tower's output by cross-attention."""
    return isinstance(layer, BlockLayer) and layer.cross_attention is not None


def shared_tables(model: ModelSpec) -> tuple[int, ...]:
    """Numbers of the layers that share one vocabulary table.

    Empty if none do.
    """
    if not (model.tie_embeddings or model.shared_embedding):
        return ()
    tables, heads = _numbers_of(model, EmbeddingLayer), _numbers_of(model, HeadLayer)
    if model.shared_embedding:
        return tuple(sorted(tables + (heads if model.tie_embeddings else [])))
    return (*tables[-1:], *heads)


def _numbers_of(model: ModelSpec, kind: type[EmbeddingLayer] | type[HeadLayer]) -> list[int]:
    numbers: list[int] = []
    first = 0
    for run in (run for tower in model.towers for run in tower.layers):
        if isinstance(run.layer, kind):
            numbers += range(first, first + run.count)
        first += run.count
    return numbers
