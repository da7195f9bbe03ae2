"""The rules that models, clusters and workloads obey on their own, before any plan is made.

A rule yields what it finds as :class:`Problem`: callers that hold a document raise the first
as an error, :meth:`Plan.check` lists them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .cluster import LEVEL_ORDER, ClusterSpec
from .dense import block_reason, dense_parts
from .errors import InputError, nearest_divisor
from .model import Attention, BlockLayer, EmbeddingLayer, HeadLayer, Layer, ModelSpec
from .workload import Workload

MAX_LAYERS = 2**16
"""Layers are listed one by one; the largest published models have some hundreds."""


class Problem(NamedTuple):
    """One broken rule: the field, what it holds, what is allowed and the nearest that is."""

    field: str
    given: object
    allowed: str
    nearest: object = None

    @property
    def reason(self) -> str:
        """The problem in words, the field left out."""
        hint = "" if self.nearest is None else f"; nearest: {self.nearest}"
        return f"{self.given}; needs {self.allowed}{hint}"

    def error(self, where: str) -> InputError:
        """The error for a person who gave what ``where`` names."""
        return InputError(f"{where}: {self.field}", self.given, self.allowed, self.nearest)


def model_problems(model: ModelSpec) -> Iterator[Problem]:
    """What keeps a model from being planned: its size, its arrangement, its layers' sizes."""
    count = sum(tower.layer_count for tower in model.towers)
    if count > MAX_LAYERS:
        yield Problem("layers", f"{count} layers", f"at most {MAX_LAYERS}")
    layers = [run.layer for tower in model.towers for run in tower.layers]
    if not _is_decoder(model, layers):
        allowed = "one tower of an embedding, blocks and a head"
        yield Problem("towers", "another arrangement", allowed)
        return
    if len({layer.hidden for layer in layers}) > 1:
        yield Problem("hidden", "several widths", "one width in all layers")
    for layer in dict.fromkeys(layers):
        if isinstance(layer, BlockLayer):
            yield from _attention_problems(layer)
    first, last = (x.vocab for x in layers if isinstance(x, (EmbeddingLayer, HeadLayer)))
    if model.tie_embeddings and first != last:
        yield Problem("head.vocab", last, f"the vocab {first} of the embedding tied to it", first)


def _is_decoder(model: ModelSpec, layers: list[Layer]) -> bool:
    runs = [run for tower in model.towers for run in tower.layers]
    ends = [(run.layer.kind, run.count) for run in (*runs[:1], *runs[-1:])]
    inner = {layer.kind for layer in layers[1:-1]}
    return (
        len(model.towers) == 1
        and not model.edges
        and ends == [("embedding", 1), ("head", 1)]
        and inner == {"block"}
    )


def _attention_problems(layer: BlockLayer) -> Iterator[Problem]:
    if reason := block_reason(layer):
        yield Problem("layers", reason, "dense decoder blocks")
        return
    attention, _ = dense_parts(layer)
    heads, kv_heads, head_dim = attention.heads, attention.kv_heads, attention.head_dim
    if heads % kv_heads:
        near = nearest_divisor(kv_heads, heads)
        yield Problem("kv_heads", kv_heads, f"a divisor of heads {heads}", near)
    if attention.rotary and head_dim % 2:
        yield Problem("head_dim", head_dim, "an even number (rotary positions)", head_dim + 1)


def model_reason(model: ModelSpec) -> str | None:
    """Why the model cannot be planned; None if it can."""
    found = next(model_problems(model), None)
    return found and f"{found.field} {found.reason}"


def cluster_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    """What keeps a cluster from being priced: its groups, and levels that do not nest."""
    if not cluster.groups:
        yield Problem("groups", "0 device groups", "at least one")
    elif len(cluster.groups) == 1:
        if cluster.groups[0].levels:
            yield Problem("groups.0.levels", "levels", "none: one group has them in levels")
        yield from _group_problems(cluster, "")
    else:
        yield from _joint_problems(cluster)


def _joint_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    """What is wrong with a cluster of several groups."""
    names = [group.name for group in cluster.groups]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Problem(f"groups.{number}.name", name, "a name that no other group has")
            return
    for number, name in enumerate(names):
        yield from _group_problems(cluster.alone(name), f"groups.{number}.")
    if [level.level for level in cluster.levels] != ["inter_rack"]:
        given = ", ".join(level.level for level in cluster.levels) or "none"
        yield Problem("levels", given, "one inter_rack level that joins the groups")
    elif cluster.levels[0].group_size < cluster.device_count:
        given, devices = str(cluster.levels[0].group_size), cluster.device_count
        yield Problem("levels.0.group_size", given, f"all {devices} devices", devices)


def _group_problems(cluster: ClusterSpec, prefix: str) -> Iterator[Problem]:
    """What is wrong with the levels of a cluster of one group; ``prefix`` leads to them."""
    for problem in _nesting_problems(cluster):
        yield problem._replace(field=prefix + problem.field)
    devices = cluster.device_count
    joined = cluster.levels[-1].group_size if cluster.levels else 1
    if joined < devices:
        given = f"group_size {joined}" if cluster.levels else "none"
        allowed = f"an outermost level that joins all {devices} devices"
        yield Problem(f"{prefix}levels", given, allowed, devices)
    per_node = cluster.groups[0].devices_per_node
    for number, level in enumerate(cluster.levels):
        if level.level == "intra_node" and level.group_size != per_node:
            path = f"{prefix}levels.{number}.group_size"
            yield Problem(path, level.group_size, f"devices_per_node {per_node}")


def _nesting_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    size, order = 1, -1
    for number, level in enumerate(cluster.levels):
        path, given = f"levels.{number}", level.group_size
        if LEVEL_ORDER.index(level.level) <= order:
            yield Problem(f"{path}.level", level.level, "levels once each, innermost first")
        if given % size:
            near = max(1, (given + size // 2) // size) * size
            allowed = f"a multiple of the level below, {size}"
            yield Problem(f"{path}.group_size", given, allowed, near)
        size, order = given, LEVEL_ORDER.index(level.level)


def cluster_reason(cluster: ClusterSpec) -> str | None:
    """Why a cluster cannot be priced; None if it can."""
    found = next(cluster_problems(cluster), None)
    return found and f"{found.field} {found.reason}"


def workload_reason(model: ModelSpec, workload: Workload) -> str | None:
    """Why the model cannot take this sequence length; None if it can."""
    if reason := model_reason(model):
        return reason
    for layer in model.kinds():
        positions = layer.positions if isinstance(layer, EmbeddingLayer) else None
        if positions and workload.seq_len > positions:
            return f"seq_len {workload.seq_len} exceeds the {positions} learned positions"
        mixer = layer.attention if isinstance(layer, BlockLayer) else None
        window = mixer.window if isinstance(mixer, Attention) else None
        if window is not None and workload.seq_len > window:
            return (
                f"seq_len {workload.seq_len} exceeds the sliding window {window}; "
                "windowed attention is not built yet"
            )
    return None
