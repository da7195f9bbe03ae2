"""The multi-layer perceptron."""

from __future__ import annotations

from ...spec.model.feed_forward import Mlp
from ...spec.strategy import LayerStrategy
from ..ops.activation import activation
from ..ops.context import OpContext
from ..ops.linear import column_projections, row_linear
from ..ops.projections import Projections
from ..symbolic.tape import SymbolicTensor


def mlp(
    c: OpContext,
    spec: Mlp,
    hidden: int,
    strategy: LayerStrategy,
    x: SymbolicTensor,
    prefix: str = "",
) -> SymbolicTensor:
    """Apply an MLP to each token; its weights' names begin with ``prefix``."""
    projected = column_projections(c, x, (mlp_projections(c, spec, strategy, prefix),))
    del x
    inner = activation(c, projected, spec.activation, spec.bias)
    del projected
    return row_linear(c, inner, hidden, spec.bias, name=f"{prefix}down")


def mlp_projections(
    c: OpContext, spec: Mlp, strategy: LayerStrategy, prefix: str = ""
) -> Projections:
    """Projections of an MLP's input."""
    local = spec.ffn // strategy.tp
    widths = (local, local) if spec.gated else (local,)
    names = tuple(f"{prefix}{name}" for name in (("gate", "up") if spec.gated else ("up",)))
    return Projections(widths, spec.bias, c.stack.fusion.gate_up, names)
