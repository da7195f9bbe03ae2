"""Patch embedding of images, and the classifier of an image's first token.

Runs what ``shardwright.costmodel.layers.vision`` and ``costmodel.layers.heads.classifier`` price.
Where the sequence is split each rank has its own tokens, the first rank the class token. Tokens are
numbered with the class token, patches without it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...kernels.dense.cross_entropy import cross_entropy
from ...spec.model.layers import EMBEDDING_NORM_EPS, ClassifierLayer, PatchLayer
from ...spec.parallel.batch_partition import IndexRange
from ...spec.parallel.sequence_partition import IndexRanges, drop_leading, positions_of
from .layer import LayerBuild, LayerModule
from .positions import position_rows


class _AddPositions(Function):
    """Class token, where held, before the patches; plus positions."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        class_token: Tensor | None,
        positions: Tensor | None,
        spans: IndexRanges,
    ) -> Tensor:
        ctx.has_class, ctx.held = class_token is not None, spans
        ctx.leads = ctx.has_class and spans[0].first == 0
        ctx.table = None if positions is None else positions.shape
        joined = x
        if ctx.leads and class_token is not None:
            joined = torch.cat((class_token.expand(1, *x.shape[1:]), x))
        if positions is not None:
            rows = position_rows(positions, spans)
            parts = joined.view(*rows.shape[:2], *joined.shape[1:])
            joined = (parts + rows.unsqueeze(2)).flatten(0, 1)
        return joined

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, table, of_class = grads[0], None, None
        if ctx.table is not None:
            table = torch.zeros(ctx.table, dtype=grad.dtype, device=grad.device)
            rows = position_rows(table, ctx.held)
            torch.sum(grad.view(*rows.shape[:2], *grad.shape[1:]), dim=2, out=rows)
        if ctx.has_class:
            of_class = grad[: int(ctx.leads)].sum((0, 1))
        return grad[int(ctx.leads) :], of_class, table, None


class _FirstToken(Function):
    """The first ``count`` tokens; the others' gradient is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.shape, ctx.count = x.shape, count
        return x[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_x = torch.zeros(ctx.shape, dtype=grads[0].dtype, device=grads[0].device)
        grad_x[: ctx.count].copy_(grads[0])
        return grad_x, None


class Patches(LayerModule):
    """Patches (patches of an image, batch, patch values) to activations."""

    class_token: Tensor

    def __init__(self, layer: PatchLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer
        tokens, leading = build.sequence.tokens, int(layer.class_token)
        self.held = tokens.held
        read_patches, local_patches = (
            drop_leading(tokens.read, leading),
            drop_leading(tokens.held, leading),
        )
        self.rows = next(iter(positions_of(read_patches, local_patches)), IndexRange(0, 0))
        """This rank's patches among those that it reads: contiguous, as its tokens are."""

    def forward(self, pixels: Tensor) -> Tensor:
        """This rank's tokens: projected patches, class token, positions."""
        layer, pixels = self.layer, pixels[self.rows.first : self.rows.end]
        x = self.replicated(pixels.to(self.slot("patches").weight.dtype), "patches")
        positions = self.slot("positions").weight if layer.positions else None
        token = self.class_token if layer.class_token else None
        if token is not None or positions is not None:
            x = _AddPositions.apply(x, token, positions, self.held)  # type: ignore[no-untyped-call]
        if layer.norm is None:
            return x
        return self.apply_norm("norm", layer.norm, EMBEDDING_NORM_EPS, x)


class Classifier(LayerModule):
    """Norm of all tokens, projection of the first one to classes, loss."""

    def __init__(self, layer: ClassifierLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer

    @property
    def loss_replicas(self) -> int:
        """Tensor-parallel ranks with the same loss: one where tokens are split."""
        return 1 if self.tp.sequence_parallel else self.tp.size

    def forward(self, x: Tensor, targets: Tensor, scale: float) -> Tensor:
        """``scale`` times the sum of the losses of ``targets``, (1, batch)."""
        if self.layer.norm is not None:
            x = self.apply_norm("norm", self.layer.norm, self.layer.norm_eps, x)
        count = 0 if self.tp.sequence_parallel and self.tp.rank else 1
        first = _FirstToken.apply(x, count)  # type: ignore[no-untyped-call]
        logits = self.replicated(first, "projection")
        return cross_entropy(logits.flatten(0, 1), targets[:count], scale)


__all__ = ["Classifier", "Patches"]
