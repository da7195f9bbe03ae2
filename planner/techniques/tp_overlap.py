"""Overlap in chunks: tried wherever a block's collectives are in line with its products.

``fused`` is taken only where it is pinned: what it hides is unmeasured.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...datasets.catalogue.device import CPU
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.techniques.tp_overlap import CHUNKS, FUSED, NAME, TensorParallelOverlap
from ..technique import Place, TechniqueChoice

FUSED_DEVICES = "CUDA devices with torch's symmetric memory: cores have no fused kernels"
ON_CORES = "on cores collectives are priced in line, so that chunks only cost"


def tried(place: Place) -> Iterable[TensorParallelOverlap]:
    """All numbers of chunks, where there are sequence shards to gather."""
    if not place.strategy.megatron_sp or place.simulator.lowering.stack.overlaps.tp:
        return ()
    return (TensorParallelOverlap(chunks=chunks) for chunks in CHUNKS)


def device_reason(value: TensorParallelOverlap, device: str) -> str | None:
    """Devices required by a value, if this is none; else None."""
    return FUSED_DEVICES if value.kernels == FUSED and device == CPU else None


def cluster_violation(cluster: ClusterSpec) -> str | None:
    """Reason to try nothing on a cluster, else None."""
    return ON_CORES if all(group.device == CPU for group in cluster.groups) else None


TECHNIQUE = TechniqueChoice(
    name=NAME, tried=tried, device_reason=device_reason, cluster_violation=cluster_violation
)
