"""Rules for a model on its own.

Arrangement of towers, sizes that go together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..model.layers import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
    PatchLayer,
    ProjectorLayer,
)
from ..model.model_spec import MAX_LAYERS, ModelSpec, Tower
from .block_rules import block_problems
from .problem import Problem

FIRST_KINDS = ("embedding", "patches")
LAST_TOWER = (
    "an embedding, blocks and a head (multi-token layers before it), or patches, blocks and a "
    "classifier"
)
INNER_TOWER = "an embedding or patches, blocks, then a norm or a projector or neither"


def model_problems(model: ModelSpec) -> Iterator[Problem]:
    """Problems of a model: its size, its arrangement, its layers' sizes."""
    count = sum(tower.layer_count for tower in model.towers)
    if count > MAX_LAYERS:
        yield Problem("layers", f"{count} layers", f"at most {MAX_LAYERS}")
    arrangement = list(_arrangement_problems(model))
    yield from arrangement
    if arrangement:
        return
    for tower in model.towers:
        yield from _width_problems(model, tower)
        yield from _length_problems(tower)
    for layer in model.kinds():
        yield from _layer_problems(layer)
    yield from _shared_table_problems(model)


def _arrangement_problems(model: ModelSpec) -> Iterator[Problem]:
    names = [tower.name for tower in model.towers]
    if not names:
        yield Problem("towers", "none", f"a tower: {LAST_TOWER}")
        return
    for name, number in Counter(names).items():
        if number > 1:
            yield Problem("towers", f"{number} towers called {name}", "one name a tower")
            return
    for tower in model.towers:
        last = tower is model.towers[-1]
        if not _is_arranged(tower, last=last):
            arrangement = "another arrangement" + ("" if last else f" in {tower.name}")
            yield Problem("towers", arrangement, LAST_TOWER if last else INNER_TOWER)
            return
    yield from _edge_problems(model, names)


def _is_arranged(tower: Tower, *, last: bool) -> bool:
    """True if a tower's layers are in a legal order."""
    runs: list[tuple[str, int]] = [(run.layer.kind, run.count) for run in tower.layers]
    kinds = [kind for kind, _ in runs]
    if (
        len(runs) < 2
        or runs[0][0] not in FIRST_KINDS
        or any(n > 1 for k, n in runs if k in FIRST_KINDS)
    ):
        return False
    inner = kinds[1:]
    while inner and inner[0] == "block":
        inner.pop(0)
    if len(inner) == len(kinds) - 1:
        return False
    if not last:
        return _once(runs, inner) and inner in ([], ["norm"], ["projector"], ["norm", "projector"])
    while kinds[0] == "embedding" and inner and inner[0] == "multi_token":
        inner.pop(0)
    end = "head" if kinds[0] == "embedding" else "classifier"
    return inner == [end] and runs[-1][1] == 1


def _once(runs: list[tuple[str, int]], kinds: list[str]) -> bool:
    return all(count == 1 for kind, count in runs if kind in kinds)


def _edge_problems(model: ModelSpec, names: list[str]) -> Iterator[Problem]:
    """Edges name towers and go forward.

    Each tower but the last feeds another.
    """
    for number, edge in enumerate(model.edges):
        path = f"edges.{number}"
        for end in ("source", "target"):
            if getattr(edge, end) not in names:
                yield Problem(f"{path}.{end}", getattr(edge, end), "one of " + ", ".join(names))
                return
        if names.index(edge.source) >= names.index(edge.target):
            ends = f"{edge.source} to {edge.target}"
            yield Problem(path, ends, "towers in topological order: an edge goes to a later one")
            return
    pairs = [(edge.source, edge.target) for edge in model.edges]
    if len(set(pairs)) < len(pairs):
        yield Problem("edges", "an edge twice", "each edge once")
    for name in names[:-1]:
        if not any(source == name for source, _ in pairs):
            yield Problem("edges", f"none from {name}", "an edge from every tower but the last")
    for tower in model.towers:
        reads = any(isinstance(x, BlockLayer) and x.cross_attention for x in _kinds(tower))
        if reads and not any(target == tower.name for _, target in pairs):
            yield Problem("edges", f"none to {tower.name}", "one, for its cross-attention to read")
        if reads and sum(target == tower.name for _, target in pairs) > 1:
            yield Problem("edges", f"several to {tower.name}", "one: its cross-attention reads one")


def _kinds(tower: Tower) -> list[Layer]:
    return [run.layer for run in tower.layers]


def output_width(tower: Tower) -> int:
    """Width of a tower's output."""
    last = tower.layers[-1].layer
    return last.out if isinstance(last, ProjectorLayer) else last.hidden


def _width_problems(model: ModelSpec, tower: Tower) -> Iterator[Problem]:
    widths = {layer.hidden for layer in _kinds(tower)}
    widths |= {x.block.hidden for x in _kinds(tower) if isinstance(x, MultiTokenLayer)}
    if len(widths) > 1:
        allowed = "one width in all layers" + (" of a tower" if len(model.towers) > 1 else "")
        yield Problem("hidden", "several widths", allowed)
        return
    for edge in model.edges:
        if edge.source == tower.name:
            width, target_width = (
                output_width(tower),
                model.tower(edge.target).layers[0].layer.hidden,
            )
            if width != target_width:
                allowed = f"the width {target_width} of {edge.target}"
                yield Problem(
                    f"towers.{tower.name}", f"output of width {width}", allowed, target_width
                )


def _layer_problems(layer: Layer) -> Iterator[Problem]:
    if isinstance(layer, BlockLayer):
        yield from block_problems(layer)
    if isinstance(layer, MultiTokenLayer):
        yield from block_problems(layer.block)
        if layer.block.cross_attention is not None:
            yield Problem("multi_token.block", "cross-attention", "self-attention alone")
    if isinstance(layer, PatchLayer) and layer.image % layer.patch:
        yield Problem("patch", layer.patch, f"a divisor of the image {layer.image}")
    if isinstance(layer, ProjectorLayer) and layer.further and layer.norm is None:
        yield Problem("further", layer.further, "0 without a norm", 0)


def _length_problems(tower: Tower) -> Iterator[Problem]:
    first = tower.layers[0].layer
    last, tokens = tower.layers[-1].layer, tower.seq_len
    if isinstance(last, ProjectorLayer) and tokens and tokens % last.tokens_per_output:
        allowed = f"a multiple of the {last.tokens_per_output} that the projector makes one"
        yield Problem(f"towers.{tower.name}.seq_len", tokens, allowed)
    if isinstance(first, PatchLayer) and tower.seq_len != first.tokens:
        allowed = f"the {first.tokens} tokens of an image"
        yield Problem(f"towers.{tower.name}.seq_len", tower.seq_len, allowed, first.tokens)


def _shared_table_problems(model: ModelSpec) -> Iterator[Problem]:
    """Shared tables have one shape."""
    tables = [x for x in model.kinds() if isinstance(x, EmbeddingLayer)]
    if model.shared_embedding and len({(x.vocab, x.hidden) for x in tables}) != 1:
        yield Problem("shared_embedding", "tables of several shapes", "embeddings of one shape")
    layers = _kinds(model.towers[-1])
    first, last = layers[0], layers[-1]
    if not isinstance(first, EmbeddingLayer) or not isinstance(last, HeadLayer):
        if model.tie_embeddings:
            yield Problem("tie_embeddings", "true", "false: there is no embedding and head to tie")
        return
    if model.tie_embeddings and first.vocab != last.vocab:
        allowed = f"the vocab {first.vocab} of the embedding tied to it"
        yield Problem("head.vocab", last.vocab, allowed, first.vocab)
    for layer in layers:
        if isinstance(layer, MultiTokenLayer) and layer.vocab != last.vocab:
            allowed = f"the vocab {last.vocab} of the head that it shares"
            yield Problem("multi_token.vocab", layer.vocab, allowed, last.vocab)
