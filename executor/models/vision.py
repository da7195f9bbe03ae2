"""Patches of images to activations, and the first token of each image to a loss.

Runs what :mod:`shardwright.costmodel.vision` and :func:`shardwright.costmodel.heads.classifier`
price. Where the sequence is split each rank has its own tokens, the first rank the class token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...kernels.cross_entropy import cross_entropy
from ...spec.layers import EMBEDDING_NORM_EPS, ClassifierLayer, PatchLayer
from .layer import LayerBuild, LayerModule


class _Placed(Function):
    """A class token before the patches, then each token's own vector added."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, class_token: Tensor | None, positions: Tensor | None, first: int
    ) -> Tensor:
        ctx.has_class, ctx.leads, ctx.first = class_token is not None, False, first
        ctx.table = None if positions is None else positions.shape
        joined = x
        if class_token is not None and first == 0:
            ctx.leads = True
            joined = torch.cat((class_token.expand(1, *x.shape[1:]), x))
        if positions is not None:
            joined = joined + positions[first : first + joined.shape[0]].unsqueeze(1)
        return joined

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, table, of_class = grads[0], None, None
        if ctx.table is not None:
            table = torch.zeros(ctx.table, dtype=grad.dtype, device=grad.device)
            torch.sum(grad, dim=1, out=table[ctx.first : ctx.first + grad.shape[0]])
        if ctx.has_class:
            of_class = grad[: int(ctx.leads)].sum((0, 1))
        return grad[int(ctx.leads) :], of_class, table, None


class _First(Function):
    """The first ``count`` tokens; the others' gradient is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.shape, ctx.count = x.shape, count
        return x[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        whole = torch.zeros(ctx.shape, dtype=grads[0].dtype, device=grads[0].device)
        whole[: ctx.count].copy_(grads[0])
        return whole, None


class Patches(LayerModule):
    """Patches (patches of an image, batch, values of a patch) to activations."""

    class_token: Tensor

    def __init__(self, layer: PatchLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer

    def forward(self, pixels: Tensor) -> Tensor:
        """This rank's tokens: projected patches, class token, positions."""
        layer, first, pixels = self.layer, *self._own(pixels)
        x = self.whole(pixels.to(self.slot("patches").weight.dtype), "patches")
        positions = self.slot("positions").weight if layer.positions else None
        token = self.class_token if layer.class_token else None
        if token is not None or positions is not None:
            x = _Placed.apply(x, token, positions, first)  # type: ignore[no-untyped-call]
        if layer.norm is None:
            return x
        return self.normed("norm", layer.norm, EMBEDDING_NORM_EPS, x)

    def _own(self, pixels: Tensor) -> tuple[int, Tensor]:
        """The first of this rank's tokens, and the patches among them."""
        if not self.tp.sequence_parallel:
            return 0, pixels
        leading = int(self.layer.class_token)
        each = (pixels.shape[0] + leading) // self.tp.size
        first = self.tp.rank * each
        return first, pixels[max(0, first - leading) : first + each - leading]


class Classifier(LayerModule):
    """Norm of all tokens, projection of the first one to classes, loss."""

    def __init__(self, layer: ClassifierLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer

    @property
    def loss_replicas(self) -> int:
        """Tensor-parallel ranks that find one loss: the first alone where tokens are split."""
        return 1 if self.tp.sequence_parallel else self.tp.size

    def forward(self, x: Tensor, targets: Tensor, scale: float) -> Tensor:
        """``scale`` times the sum of the losses of ``targets``, (1, batch)."""
        if self.layer.norm is not None:
            x = self.normed("norm", self.layer.norm, self.layer.norm_eps, x)
        mine = 0 if self.tp.sequence_parallel and self.tp.rank else 1
        first = _First.apply(x, mine)  # type: ignore[no-untyped-call]
        logits = self.whole(first, "projection")
        return cross_entropy(logits.flatten(0, 1), targets[:mine], scale)


__all__ = ["Classifier", "Patches"]
