"""Rules for models, clusters and workloads on their own, before any plan.

A rule yields each :class:`Problem`: readers of a document raise the first as an error,
``Plan.check`` lists them all.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..cluster.cluster_spec import LEVEL_ORDER, ClusterSpec
from ..model.model_spec import MAX_LAYERS, EmbeddingLayer, ModelSpec
from ..model.towers import inserted_tokens
from ..workload.document_lengths import lengths_violation
from ..workload.expert_load import load_violation
from ..workload.workload import Workload
from .model_rules import model_problems
from .problem import Problem

__all__ = [
    "MAX_LAYERS",
    "Problem",
    "base_violation",
    "cluster_problems",
    "cluster_violation",
    "model_problems",
    "model_violation",
    "workload_violation",
]


def model_violation(model: ModelSpec) -> str | None:
    """Reason why the model cannot be planned, or None."""
    problem = next(model_problems(model), None)
    return problem and f"{problem.field} {problem.reason}"


def cluster_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    """Problems of a cluster: its groups, and levels that do not nest."""
    if not cluster.groups:
        yield Problem("groups", "0 device groups", "at least one")
    elif len(cluster.groups) == 1:
        if cluster.groups[0].levels:
            yield Problem("groups.0.levels", "levels", "none: one group has them in levels")
        yield from _group_problems(cluster, "")
    else:
        yield from _multi_group_problems(cluster)


def _multi_group_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    """Problems of a cluster of several groups."""
    names = [group.name for group in cluster.groups]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Problem(f"groups.{number}.name", name, "a name that no other group has")
            return
    for number, name in enumerate(names):
        yield from _group_problems(cluster.alone(name), f"groups.{number}.")
    for number, group in enumerate(cluster.groups):
        if not group.zone and cluster.zones != ("",):
            yield Problem(f"groups.{number}.zone", "none", "a zone, for other groups name one")
            return
    yield from _joining_problems(cluster)


def _joining_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    """Problems of the levels that join groups, and of zones."""
    required, allowed = ["inter_rack"], "one inter_rack level that joins the groups"
    if len(cluster.zones) > 1:
        required = ["inter_rack", "inter_zone"]
        allowed = "inter_rack, which joins the groups of a zone, and inter_zone, which joins zones"
    names = [level.level for level in cluster.levels]
    if names != required:
        yield Problem("levels", ", ".join(names) or "none", allowed)
        return
    counts = zip(cluster.levels, cluster.joined_counts, strict=True)
    for number, (level, devices) in enumerate(counts):
        if level.group_size < devices:
            scope = "all" if number + 1 == len(required) else "a zone's"
            path, size = f"levels.{number}.group_size", str(level.group_size)
            yield Problem(path, size, f"{scope} {devices} devices", devices)
            return


def _group_problems(cluster: ClusterSpec, prefix: str) -> Iterator[Problem]:
    """Problems of the levels of a cluster of one group.

    ``prefix`` is their path.
    """
    for problem in _nesting_problems(cluster):
        yield problem._replace(field=prefix + problem.field)
    devices = cluster.device_count
    joined_devices = cluster.levels[-1].group_size if cluster.levels else 1
    if joined_devices < devices:
        size = f"group_size {joined_devices}" if cluster.levels else "none"
        allowed = f"an outermost level that joins all {devices} devices"
        yield Problem(f"{prefix}levels", size, allowed, devices)
    per_node = cluster.groups[0].devices_per_node
    for number, level in enumerate(cluster.levels):
        if level.level == "intra_node" and level.group_size != per_node:
            path = f"{prefix}levels.{number}.group_size"
            yield Problem(path, level.group_size, f"devices_per_node {per_node}")


def _nesting_problems(cluster: ClusterSpec) -> Iterator[Problem]:
    size, order = 1, -1
    for number, level in enumerate(cluster.levels):
        path, group_size = f"levels.{number}", level.group_size
        if level.level == "inter_zone":
            allowed = "levels inside a device group: " + ", ".join(LEVEL_ORDER[:-1])
            yield Problem(f"{path}.level", level.level, allowed)
        if LEVEL_ORDER.index(level.level) <= order:
            yield Problem(f"{path}.level", level.level, "levels once each, innermost first")
        if group_size % size:
            near = max(1, (group_size + size // 2) // size) * size
            allowed = f"a multiple of the level below, {size}"
            yield Problem(f"{path}.group_size", group_size, allowed, near)
        size, order = group_size, LEVEL_ORDER.index(level.level)


def cluster_violation(cluster: ClusterSpec) -> str | None:
    """Reason why a cluster cannot be priced, or None."""
    problem = next(cluster_problems(cluster), None)
    return problem and f"{problem.field} {problem.reason}"


def base_violation(workload: Workload) -> str | None:
    """Reason why frozen weights cannot have their format, or None."""
    adapters, matmul = workload.adapters, workload.dtype.matmul
    if adapters is None or adapters.quantized_base is None or matmul is None:
        return None
    return f"base_dtype {adapters.base_dtype} beside products in {matmul} is not built; use bf16"


def workload_violation(model: ModelSpec, workload: Workload) -> str | None:
    """Reason why the model cannot be trained so, or at this sequence length, or None."""
    if reason := model_violation(model):
        return reason
    if reason := base_violation(workload):
        return reason
    image_tokens = model.towers[0].seq_len
    if len(model.towers) == 1 and image_tokens is not None and workload.seq_len != image_tokens:
        return f"seq_len {workload.seq_len} is not the {image_tokens} tokens of an image"
    for layer in model.kinds():
        positions = layer.positions if isinstance(layer, EmbeddingLayer) else None
        if positions and workload.seq_len > positions:
            return f"seq_len {workload.seq_len} exceeds the {positions} learned positions"
    inserted = inserted_tokens(model, workload.seq_len)
    if inserted > workload.seq_len:
        return f"seq_len {workload.seq_len} has no room for the {inserted} tokens of an image"
    if workload.lengths is not None and len(model.towers) > 1:
        return "lengths of documents are of one tower's sequences, and the model has several"
    return load_violation(model, workload.expert_load) or lengths_violation(workload.lengths)
