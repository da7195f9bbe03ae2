"""Galvatron's measurements of a model and a machine: times, memory, bandwidths.

Units are those of its files, in which its rules round: milliseconds, MB of 2^20 bytes, and
bandwidths of which the inverse is read as milliseconds per MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """One kind of layer.

    ``forward_ms`` holds (samples, milliseconds a sample) of the forward on one device.
    ``activation_mb`` is saved per sample by tensor-parallel degree; ``recomputed_mb`` if the
    layer is recomputed.
    """

    parameter_mb: float
    activation_mb: Mapping[int, float]
    recomputed_mb: float
    forward_ms: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingHeadProfile:
    """Embedding and head on one stage.

    Model states, and activations per sample, by degree.
    """

    states_mb: Mapping[int, float]
    activation_mb: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model's layers by type, and its embedding and head."""

    layers: tuple[LayerProfile, ...]
    embedding_head_forward_ms: tuple[tuple[int, float], ...]
    together: EmbeddingHeadProfile
    first: EmbeddingHeadProfile
    last: EmbeddingHeadProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProfile:
    """Links of a cluster.

    ``allreduce`` is the bandwidth by (ranks, 1 for consecutive ranks or 0); ``p2p`` that between
    stages by their number; ``allreduce_ms`` and ``all2all_ms`` are by ranks, then (MB, ms).
    ``slowdown`` is that of overlapped computation and communication.
    """

    allreduce: Mapping[tuple[int, int], float]
    p2p: Mapping[int, float]
    allreduce_ms: Mapping[int, tuple[tuple[int, float], ...]]
    all2all_ms: Mapping[int, tuple[tuple[int, float], ...]]
    slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronProfile:
    """A profile folder, as far as one question needs it."""

    model: ModelProfile
    machine: LinkProfile
    files: tuple[str, ...]
