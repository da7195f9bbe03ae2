"""Tasks: each model type's sample record, and each layer's part of it.

A record is one row of integers, the same under any plan.

- Decoder: ``seq + 1`` tokens; each predicts the next.
- Token encoder (BERT): ``seq`` tokens, some masked, then the ``seq`` originals; every position
  counts in the loss.
- Image encoder (ViT): the class, then the pixels as bytes, channel by channel.
- Encoder-decoder (T5): the encoder's tokens, then the decoder's continuation and one more (prefix
  language modeling, Raffel et al., 2020, section 3.2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ...spec.model.layers import BlockLayer, ClassifierLayer, PatchLayer
from ...spec.model.mixers import Attention
from ...spec.model.model_spec import ModelSpec
from ...spec.model.towers import layer_contexts
from ...spec.parallel.sequence_partition import IndexRanges, count
from ...spec.plan.plan import Plan

Batch = Callable[[int, int], Tensor]
"""``batch(step, sample) -> (numbers of a record,)`` int64 of one sample of the global batch."""
TaskKind = Literal["next token", "hidden tokens", "classes", "continuation"]
BYTE_MIDDLE = 127.5
"""Pixels of 0 to 255 are read as -1 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Layout of a model's records.

    ``firsts``: index and tokens of each tower's first layer. ``patches``: the image layer.
    """

    kind: TaskKind
    firsts: tuple[tuple[int, int], ...]
    patches: PatchLayer | None = None

    @property
    def leading(self) -> int:
        """Tokens before the data in the first layer: a class token."""
        return int(self.patches is not None and self.patches.class_token)

    @property
    def tokens(self) -> int:
        """Tokens of a sample over all towers."""
        return sum(tokens for _, tokens in self.firsts)

    @property
    def record(self) -> int:
        """Integers per record."""
        if self.patches is not None:
            return 1 + self.patches.channels * self.patches.image**2
        return 2 * self.tokens if self.kind == "hidden tokens" else self.tokens + 1

    @property
    def losses(self) -> int:
        """Losses per sample; the loss is their mean over the global batch."""
        return 1 if self.kind == "classes" else self.firsts[-1][1]

    def feed(self, layer: int, records: Tensor) -> Tensor:
        """Input of a tower's first layer.

        ``records`` are (record, batch) on the host.

        Returns:
            Tokens (seq, batch), or float32 patches (patches, batch, values of a patch).
        """
        if self.patches is not None:
            return _patches(self.patches, records)
        start = 0
        for first, tokens in self.firsts:
            if first == layer:
                return records[start : start + tokens]
            start += tokens
        raise ValueError(f"layer {layer} begins no tower")

    def targets(self, records: Tensor) -> Tensor:
        """Targets of the last layer: tokens (seq, batch), or classes (1, batch)."""
        return records[:1] if self.patches is not None else records[-self.losses :]


def task_of(model: ModelSpec, seq_len: int) -> Task:
    """Task of a model that the executor runs."""
    contexts, layers = layer_contexts(model, seq_len), model.layers()
    firsts = tuple(
        (n, context.tokens) for n, context in enumerate(contexts) if context.begins_tower
    )
    first = layers[0]
    if isinstance(first, PatchLayer):
        return Task(kind="classes", firsts=firsts, patches=first)
    if len(firsts) > 1:
        return Task(kind="continuation", firsts=firsts)
    sees_all = any(_sees_all(layer) for layer in model.kinds())
    return Task(kind="hidden tokens" if sees_all else "next token", firsts=firsts)


def _sees_all(layer: object) -> bool:
    mixer = layer.attention if isinstance(layer, BlockLayer) else None
    return isinstance(mixer, Attention) and mixer.mask == "full"


def plan_task(plan: Plan) -> Task:
    """Task of a plan's model."""
    return task_of(plan.model, plan.workload.seq_len)


def class_count(model: ModelSpec) -> int:
    """Classes of an image model; 0 for others."""
    return next((x.classes for x in model.kinds() if isinstance(x, ClassifierLayer)), 0)


def _patches(layer: PatchLayer, records: Tensor) -> Tensor:
    side, patch, batch = layer.image // layer.patch, layer.patch, records.shape[1]
    if isinstance(records, FakeTensor):  # a dry run, of shapes alone
        values = layer.channels * patch * patch
        return records.new_empty((side * side, batch, values), dtype=torch.float32)
    pixels = records[1:].numpy().reshape(layer.channels, side, patch, side, patch, batch)
    rows = pixels.transpose(1, 3, 5, 0, 2, 4).reshape(side * side, batch, -1)
    return torch.from_numpy(rows.astype(np.float32) / np.float32(BYTE_MIDDLE) - np.float32(1))


def select_tokens(data: Tensor, spans: IndexRanges) -> Tensor:
    """Copy of some tokens of a layer's data.

    Args:
        data: (tokens, samples) or (tokens, samples, width).
        spans: the tokens.
    """
    out = data.new_empty(count(spans), *data.shape[1:])
    first = 0
    for span in spans:
        parts = data[span.first : span.end].unbind(1)
        torch.stack(parts, dim=1, out=out[first : first + span.size])
        first += span.size
    return out


__all__ = ["Batch", "Task", "class_count", "plan_task", "select_tokens", "task_of"]
