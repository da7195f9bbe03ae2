"""The multi-layer perceptron of a block; ``shardwright.costmodel.layers.mlp`` prices it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ...kernels.dense import activation
from ...spec.model.feed_forward import Mlp

if TYPE_CHECKING:
    from .block import Block


def mlp(block: Block, spec: Mlp, x: Tensor, prefix: str = "") -> Tensor:
    """MLP of each token; its weights' names begin with ``prefix``."""
    names = [f"{prefix}{name}" for name in projections(spec)]
    return block.row(activated(block, spec, block.column(x, *names)), f"{prefix}down")


def projections(spec: Mlp) -> tuple[str, ...]:
    """Names of the projections of its input."""
    return ("gate", "up") if spec.gated else ("up",)


def activated(block: Block, spec: Mlp, projected: tuple[Tensor, ...]) -> Tensor:
    """Inner activations from the projections of :func:`projections`."""
    if spec.gated:
        gated = activation.swiglu if spec.activation == "swiglu" else activation.geglu
        return gated(block.kernels, *projected)
    if spec.activation == "relu":
        return activation.relu(projected[0])
    return activation.gelu(projected[0], tanh=spec.activation == "gelu_tanh")


__all__ = ["activated", "mlp", "projections"]
