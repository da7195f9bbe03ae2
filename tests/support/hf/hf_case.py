"""One part of a small model of the transformers library, and the layer of ours beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.spec.choices import ATTENTIONS, AttentionImpl
from shardwright.spec.huggingface.config import model_from_config
from shardwright.spec.model.layers import Layer

BATCH, SEQ_LEN, VOCAB = 2, 32, 96
ENDS = ("head", "classifier", "projector")
"""Kinds whose cases name a whole model's class as ``part``."""


@dataclass(frozen=True, kw_only=True)
class BlockCase:
    """One layer kind: configuration class and sizes; the model's part; which layer of ours.

    ``inputs`` are what the whole model wants, so that the part is handed what it would be, or
    what its submodule ``tower`` wants, which then runs alone. ``batch`` is its samples.
    ``attentions`` leaves out flash attention where the CPU has no such kernel: scans, scores
    with caps, sinks or a learned bias, windows (it computes every pair), values narrower than
    keys.
    """

    name: str
    config: str
    part: str = "layers.0"
    sizes: Mapping[str, Any]
    kind: str = "block"
    block: int = 0
    seq_len: int = SEQ_LEN
    attentions: tuple[AttentionImpl, ...] = ATTENTIONS
    inputs: tuple[str, ...] = ("input_ids",)
    tower: str = ""
    batch: int = BATCH

    def configuration(self) -> Any:
        """The library's configuration object."""
        import transformers

        return getattr(transformers, self.config)(**self.sizes)

    def our_layer(self) -> Layer:
        """The layer that the configuration describes, read from its document."""
        model, _ = model_from_config(self.configuration().to_dict(), self.name, self.name)
        return [layer for layer in model.layers() if layer.kind == self.kind][self.block]
