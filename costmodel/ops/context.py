"""Shared operations of decoder layers, and the context they run in.

Each function mirrors the executor's: same operations, order and saved tensors, with fused forms
beside. Activations are (seq, batch, width).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import NormKind
from ...spec.parallel.rank_groups import RankGroup
from ...spec.workload.base_formats import QuantizedBase
from ...spec.workload.expert_load import Fullest
from ...spec.workload.training import FULLY_TRAINED, LayerTraining
from ..symbolic.tape import SymbolicTensor, Tape
from .low_precision import Precision

Parameter = SymbolicTensor
SINGLE_RANK = RankGroup(1, 1)


@dataclass(frozen=True, slots=True)
class OpContext:
    """Settings of a layer's operations: tape, stack, formats, parallel groups.

    Attributes:
        tape: records kernels, collectives and gradients.
        stack: framework profile.
        dtype: compute format.
        tp: ranks that split weights.
        sequence_parallel: True if tensor-parallel ranks also split the sequence between products.
        shares_weight: True if the token table is also the head's, whose gradient exists already.
        ring: ranks that split each sequence and pass keys and values around.
        head_exchange: Ulysses group: own tokens outside attention, own heads inside it.
        precision: low-precision format of linear products, if any.
        base: 4- or 8-bit format of frozen linear layers, if any.
        training: trained parts of the layer.
        drops: True if dropout follows the softmax and the biased projections.
        documents: mean tokens of a token's own document; None: all of its sample.
        load: rows of the fullest part of the experts over the mean, by parts; empty: even.
    """

    tape: Tape
    stack: StackSpec
    dtype: str
    tp: int
    sequence_parallel: bool
    shares_weight: bool = False
    ring: RankGroup = SINGLE_RANK
    head_exchange: RankGroup = SINGLE_RANK
    precision: Precision | None = None
    base: QuantizedBase | None = None
    training: LayerTraining = FULLY_TRAINED
    drops: bool = False
    load: Fullest = ()
    documents: float | None = None

    def unquantized(self) -> OpContext:
        """The same context with weights and products in the parameters' format."""
        if self.precision is None and self.base is None:
            return self
        return replace(self, precision=None, base=None)

    def fullest_rows(self, rows: int, parts: int) -> int:
        """Rows for the fullest of so many equal parts of the experts; ``rows`` on average."""
        return math.ceil(rows * dict(self.load).get(parts, 1.0)) if self.load else rows

    @property
    def operand_format(self) -> str | None:
        """Operand format of linear products if it differs from ``dtype``."""
        return None if self.precision is None else self.precision.format

    @property
    def tensor_group(self) -> RankGroup:
        """The tensor-parallel ranks."""
        return RankGroup(self.tp, 1)

    def gather_sequence(self, x: SymbolicTensor) -> SymbolicTensor:
        """Join all sequence shards; ``x`` itself without sequence parallelism."""
        if not self.sequence_parallel:
            return x
        out = self.tape.new((x.shape[0] * self.tp, *x.shape[1:]), x.dtype)
        self.tape.collective("all_gather", self.tensor_group, out)
        return out

    def reduce(self, x: SymbolicTensor) -> SymbolicTensor:
        """Sum over tensor-parallel ranks, scattered along a split sequence."""
        if self.tp == 1:
            return x
        if not self.sequence_parallel:
            self.tape.collective("all_reduce", self.tensor_group, x)
            return x
        self.tape.collective("reduce_scatter", self.tensor_group, x)
        return self.tape.new((x.shape[0] // self.tp, *x.shape[1:]), x.dtype)


def norm(
    c: OpContext, x: SymbolicTensor, kind: NormKind, *, weighted: bool = True
) -> SymbolicTensor:
    """Layer norm or RMS norm over the last axis; ``weighted`` false: an RMS norm alone."""
    if kind == "layernorm":
        return _fused_norm(c, x, "layer_norm", parameters=2)
    if c.stack.fusion.norm:
        return _fused_norm(c, x, "rms_norm", parameters=int(weighted))
    return _plain_rms_norm(c, x, weighted)


def _fused_norm(c: OpContext, x: SymbolicTensor, op: str, parameters: int) -> SymbolicTensor:
    t, width = c.tape, x.shape[-1]
    has_weights = parameters > 0
    weight = (t.constant((parameters, width), c.dtype),) * has_weights
    gradients = (t.constant((parameters, width), c.dtype),) * has_weights
    statistics = t.new((max(1, parameters), x.elements // width), "fp32")
    out = t.like(x)
    t.kernel(op, (x, *weight, statistics), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_x = t.like(x)
        t.kernel(f"{op}_backward", (grad, x, statistics, *weight, *gradients), grad_x)
        for _ in range(parameters):
            t.parameter_gradient(t.new((width,), c.dtype))
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def _plain_rms_norm(c: OpContext, x: SymbolicTensor, weighted: bool) -> SymbolicTensor:
    t, width = c.tape, x.shape[-1]
    weight = t.constant((width,), c.dtype)
    inverse_rms = t.new((x.elements // width,), "fp32")
    t.kernel("row_norm", (x,), inverse_rms)
    for op in ("pow", "div", "add", "rsqrt"):
        t.kernel(op, (inverse_rms,), inverse_rms)
    out = t.kernel("mul", (x, inverse_rms), t.like(x, "fp32"))
    if weighted:
        t.kernel("mul", (out, weight), out)
    out = cast(t, out, x.dtype)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        normalized = t.kernel("mul", (x, inverse_rms), t.like(x, "fp32"))
        product = t.kernel("mul", (grad, normalized), t.like(x, "fp32"))
        grad_weight = None
        if weighted:
            grad_weight = t.kernel("sum", (product,), t.new((width,), "fp32"))
            t.kernel("mul", (product, weight), product)
        row_mean = t.kernel("mean", (product,), t.new(inverse_rms.shape, "fp32"))
        del product
        if grad.dtype == "fp32":
            grad_x = t.kernel("mul", (grad, weight), t.like(x))
        else:
            grad_x = t.kernel("cast", (grad,), t.like(x, "fp32"))
            if weighted:
                t.kernel("mul", (grad_x, weight), grad_x)
        t.kernel("addcmul", (grad_x, normalized, row_mean), grad_x)
        t.kernel("mul", (grad_x, inverse_rms), grad_x)
        grad_x = cast(t, grad_x, x.dtype)
        if grad_weight is not None:
            t.parameter_gradient(cast(t, grad_weight, c.dtype))
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def cast(t: Tape, value: SymbolicTensor, dtype: str) -> SymbolicTensor:
    """Convert to another format; the tensor itself if it has that format."""
    if value.dtype == dtype:
        return value
    return t.kernel("cast", (value,), t.like(value, dtype))


def split_heads(c: OpContext, x: SymbolicTensor, heads: int, ordered: bool) -> SymbolicTensor:
    """View (seq, batch, width) as heads.

    Attention writes gradients batch-first, the unfused form heads-first too. They are copied to
    sequence order, unless the next backward operation writes them so (``ordered``) or an exchange
    of heads already has.
    """
    out = x.view(*x.shape[:2], heads, x.shape[-1] // heads)
    if ordered or c.head_exchange.size > 1 or not _out_of_order(c, out):
        return out
    c.tape.record((out,), (x,), lambda grad: (in_order(c, grad),))
    return out


def in_order(c: OpContext, grad: SymbolicTensor) -> SymbolicTensor:
    """Copy attention's gradient to (seq, batch, heads, width) order where needed."""
    if not _out_of_order(c, grad):
        return grad
    copy = c.tape.kernel("copy", (grad,), c.tape.like(grad))
    copy.keeps = grad
    return copy


def _out_of_order(c: OpContext, heads: SymbolicTensor) -> bool:
    outer = heads.shape[1] * (1 if c.stack.attention == "flash" else heads.shape[2])
    return outer > 1 and c.stack.attention_gradient_copies
