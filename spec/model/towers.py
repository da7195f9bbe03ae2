"""Where each layer stands among the towers of a model: its tokens, what comes along to it.

What a layer reads besides the layer before it is the output of another tower: every block with
cross-attention does (T5's decoder), or else the target's first layer, which places those tokens
among its own (images in a text). Such an output travels along with the activations, in their
layout, from the layer that made it to the last one that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .layers import BlockLayer, EmbeddingLayer, HeadLayer, Layer, ProjectorLayer
from .model_spec import ModelSpec, Tower


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerOutput:
    """What layer number ``layer`` makes for another tower: tokens of a sample, their width."""

    layer: int
    tokens: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContext:
    """One layer's place: tokens of a sample, whether it begins a tower, what it meets.

    ``sources`` come along to the layer; ``read`` are those of them that it reads.
    """

    tokens: int
    begins_tower: bool
    sources: tuple[TowerOutput, ...] = ()
    read: tuple[TowerOutput, ...] = ()


@lru_cache(maxsize=256)
def layer_contexts(model: ModelSpec, seq_len: int) -> tuple[LayerContext, ...]:
    """The place of every layer, by its number in a plan.

    Args:
        model: whose layers.
        seq_len: the workload's tokens of a sample.
    """
    layers, outputs, readers = model.layers(), _outputs(model, seq_len), _readers(model)
    last_reader = {name: max(found) for name, found in readers.items() if found}
    places, first = [], 0
    for tower in model.towers:
        tokens = tower.seq_len or seq_len
        for index in range(first, first + tower.layer_count):
            along = [n for n, o in outputs.items() if o.layer < index <= last_reader.get(n, -1)]
            place = LayerContext(
                tokens=tokens,
                begins_tower=index == first,
                sources=tuple(outputs[name] for name in along),
                read=tuple(outputs[name] for name in along if index in readers[name]),
            )
            places.append(place)
        first += tower.layer_count
    if len(places) != len(layers):
        raise RuntimeError("every layer has one place")
    return tuple(places)


def tower_outputs_after(places: tuple[LayerContext, ...], index: int) -> tuple[TowerOutput, ...]:
    """Outputs of other towers that go on from layer ``index`` to the next; empty after the last."""
    return places[index + 1].sources if index + 1 < len(places) else ()


def inserted_tokens(model: ModelSpec, seq_len: int) -> int:
    """The most tokens of other towers that stand among a tower's own; 0 where none do."""
    places = layer_contexts(model, seq_len)
    return max((sum(s.tokens for s in p.read) for p in places if p.begins_tower), default=0)


def _outputs(model: ModelSpec, seq_len: int) -> dict[str, TowerOutput]:
    """What each tower makes, by the tower's name."""
    found, end = {}, 0
    for tower in model.towers:
        end += tower.layer_count
        last, tokens = tower.layers[-1].layer, tower.seq_len or seq_len
        width = last.out if isinstance(last, ProjectorLayer) else last.hidden
        merge = last.merge if isinstance(last, ProjectorLayer) else 1
        found[tower.name] = TowerOutput(layer=end - 1, tokens=tokens // merge, hidden=width)
    return found


def _readers(model: ModelSpec) -> dict[str, set[int]]:
    """The numbers of the layers that read each tower's output."""
    found: dict[str, set[int]] = {tower.name: set() for tower in model.towers}
    first: dict[str, int] = {}
    end = 0
    for tower in model.towers:
        first[tower.name] = end
        end += tower.layer_count
    for edge in model.edges:
        start = first[edge.target]
        found[edge.source] |= {start + i for i in _reading(model.tower(edge.target))}
    return found


def _reading(tower: Tower) -> list[int]:
    """Layers of a tower that read another's output: cross-attention, else the first."""
    crossing = [i for i, layer in enumerate(tower.expand()) if has_cross_attention(layer)]
    return crossing or [0]


def has_cross_attention(layer: Layer) -> bool:
    """Whether a layer reads another tower's output by cross-attention."""
    return isinstance(layer, BlockLayer) and layer.cross_attention is not None


def shared_tables(model: ModelSpec) -> tuple[int, ...]:
    """The numbers of the layers whose vocabulary table is one weight; empty if there are none."""
    if not (model.tie_embeddings or model.shared_embedding):
        return ()
    tables, heads = _numbers_of(model, EmbeddingLayer), _numbers_of(model, HeadLayer)
    if model.shared_embedding:
        return tuple(sorted(tables + (heads if model.tie_embeddings else [])))
    return (*tables[-1:], *heads)


def _numbers_of(model: ModelSpec, kind: type[EmbeddingLayer] | type[HeadLayer]) -> list[int]:
    """The numbers of the layers of a kind, run by run: a model has many layers and few runs."""
    found: list[int] = []
    first = 0
    for run in (run for tower in model.towers for run in tower.layers):
        if isinstance(run.layer, kind):
            found += range(first, first + run.count)
        first += run.count
    return found
