"""Gated short convolutions (LFM2, arXiv:2511.23404, section 2).

With T tokens and H channels: 2·T·3H·H FLOPs of projections in, 2·T·H·H out, 2·T·H·K of a kernel of
K. Worked number: T = 4096, H = 2048, K = 3: 103 + 34 GFLOP of products, 0.05 of convolution.
"""

from __future__ import annotations

from ....spec.model.mixers import ShortConvolution
from ....spec.strategy import LayerStrategy
from ...symbolic.tape import SymbolicTensor
from ..context import OpContext
from ..eager import copied, mul
from ..linear import column_linear, row_linear
from ..recompute import recomputed
from .convolution import convolution, recorded_convolution


def short_convolution(
    c: OpContext, spec: ShortConvolution, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Projections, gate, convolution, gate and output projection; one product makes all three."""
    width = spec.channels // strategy.tp
    names = ("in_gate", "out_gate", "mixed")
    in_gate, out_gate, x = column_linear(c, x, (width,) * 3, spec.bias, fused=True, names=names)

    def run(*inputs: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        return (_gated_convolution(c, spec, *inputs),)

    if strategy.recompute == "selective" and c.stack.attention != "flash":
        out = recomputed(c, run, None, in_gate, out_gate, x)
    else:
        out = run(in_gate, out_gate, x)[0]
    del in_gate, out_gate, x
    return row_linear(c, out, hidden, spec.bias, name="output")


def _gated_convolution(
    c: OpContext,
    spec: ShortConvolution,
    in_gate: SymbolicTensor,
    out_gate: SymbolicTensor,
    x: SymbolicTensor,
) -> SymbolicTensor:
    x = mul(c.tape, in_gate, x)
    if c.stack.attention == "flash":
        x = recorded_convolution(c, x, spec.conv_kernel, spec.bias)
        return mul(c.tape, out_gate, x)
    x = convolution(c, x, spec.conv_kernel, spec.bias, activated=False)
    return copied(c.tape, mul(c.tape, out_gate, x), x.shape)
