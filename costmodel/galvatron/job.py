"""Galvatron's problem: a model's layers by type, a batch, and devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...datasets.galvatron.profile import GalvatronProfile
from .rates import Line, Rates, forward_line

MB = 2**20
CONTEXT_MB = 1024.0
RESERVED_SHARE, RESERVED_ABOVE_GB = 0.2, 20
"""Share of a budget withheld for the allocator's cache, and the budget above which it is."""


@dataclass(frozen=True, kw_only=True)
class GalvatronJob:
    """A problem under Galvatron's costs.

    Args:
        profile: Galvatron's measurements.
        layers: number of each type, in the model's order.
        hidden: size by type.
        seq_lens: tokens per sample by type.
        devices: a power of two.
        global_batch: samples per step.
        half: 16-bit computation (mixed precision), else 32-bit.
    """

    profile: GalvatronProfile
    layers: tuple[int, ...]
    hidden: tuple[int, ...]
    seq_lens: tuple[int, ...]
    devices: int
    global_batch: int
    half: bool = True

    @cached_property
    def rates(self) -> Rates:
        """Milliseconds of messages."""
        return Rates(self.profile.machine)

    @cached_property
    def forward(self) -> tuple[Line, ...]:
        """Forward milliseconds over samples, by layer type."""
        return tuple(forward_line(layer.forward_ms) for layer in self.profile.model.layers)

    @cached_property
    def ends_forward(self) -> Line:
        """Forward milliseconds over samples of embedding and head."""
        return forward_line(self.profile.model.embedding_head_forward_ms)

    def samples(self, microbatches: int, dp: int) -> int:
        """Samples of a micro-batch on one replica."""
        return self.global_batch // microbatches // dp

    def message_mb(self, layer_type: int, samples: float) -> float:
        """MB of activations between layers."""
        size = 2 if self.half else 4
        return samples * self.seq_lens[layer_type] * self.hidden[layer_type] * size / 1024 / 1024

    def buffer_mb(self, microbatches: int, stages: int, degree: int) -> int:
        """Gather buffer of tensor-parallel layers of at most ``degree``.

        Galvatron halves it for every number format.
        """
        dp = self.devices // stages // degree
        samples = self.global_batch / microbatches / dp
        gathered_mb = samples * self.hidden[0] * max(self.seq_lens) * 4 / 1024 / 1024
        return int(gathered_mb / 2)


def usable_mb(budget_mb: int) -> int:
    """Usable part of a budget: above 20 GB a fifth is withheld."""
    if budget_mb // 1024 > RESERVED_ABOVE_GB:
        return budget_mb - int(budget_mb * RESERVED_SHARE)
    return budget_mb
