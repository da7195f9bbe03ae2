"""The operations of dense decoder layers as symbolic work, forward and backward.

Each function mirrors one function of the executor's models and kernels: the same operations in
the same order, the same tensors kept. Where the stack fuses operations the fused form stands
beside it. Activations are (seq, batch, width).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import NormKind
from ...spec.parallel.rank_groups import RankGroup
from ...spec.workload.training import FULLY_TRAINED, LayerTraining
from ..symbolic.tape import SymbolicTensor, Tape
from .low_precision import Precision

Parameter = SymbolicTensor
SINGLE_RANK = RankGroup(1, 1)


@dataclass(frozen=True, slots=True)
class OpContext:
    """Where operations go and what they depend on: stack, compute type, tensor parallelism.

    ``tp`` are the ranks that split weights. ``shares_weight``: the token table is also the
    head's, whose gradient is there already. ``ring``: the ranks that split each sequence into
    pieces, whose keys and values go round; ``head_exchange``: those that have tokens of their
    own outside attention and heads of their own inside it (Ulysses). ``precision``: the narrow
    format of linear layers' products, if they have one. ``training``: what of the layer is
    trained. ``drops``: dropout follows its softmax and projections, where these have biases.
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
    training: LayerTraining = FULLY_TRAINED
    drops: bool = False

    def unquantised(self) -> OpContext:
        """The same with products in the parameters' format."""
        return self if self.precision is None else replace(self, precision=None)

    @property
    def operand_format(self) -> str | None:
        """What products of linear layers read where that is not ``dtype``."""
        return None if self.precision is None else self.precision.format

    @property
    def tensor_group(self) -> RankGroup:
        """The ranks that split the layer's weights."""
        return RankGroup(self.tp, 1)

    def gather_sequence(self, x: SymbolicTensor) -> SymbolicTensor:
        """All sequence shards joined; ``x`` itself without sequence parallelism."""
        if not self.sequence_parallel:
            return x
        out = self.tape.new((x.shape[0] * self.tp, *x.shape[1:]), x.dtype)
        self.tape.collective("all_gather", self.tensor_group, out)
        return out

    def reduce(self, x: SymbolicTensor) -> SymbolicTensor:
        """Sum over the tensor-parallel ranks, scattered along the sequence where it is split."""
        if self.tp == 1:
            return x
        if not self.sequence_parallel:
            self.tape.collective("all_reduce", self.tensor_group, x)
            return x
        self.tape.collective("reduce_scatter", self.tensor_group, x)
        return self.tape.new((x.shape[0] // self.tp, *x.shape[1:]), x.dtype)


def norm(c: OpContext, x: SymbolicTensor, kind: NormKind) -> SymbolicTensor:
    """Layer norm or RMS norm over the last axis."""
    if kind == "layernorm":
        return _fused_norm(c, x, "layer_norm", parameters=2)
    if c.stack.fusion.norm:
        return _fused_norm(c, x, "rms_norm", parameters=1)
    return _plain_rms_norm(c, x)


def _fused_norm(c: OpContext, x: SymbolicTensor, op: str, parameters: int) -> SymbolicTensor:
    t, width = c.tape, x.shape[-1]
    weight = t.constant((parameters, width), c.dtype)
    gradients = t.constant((parameters, width), c.dtype)
    statistics = t.new((parameters, x.elements // width), "fp32")
    out = t.like(x)
    t.kernel(op, (x, weight, statistics), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_x = t.like(x)
        t.kernel(f"{op}_backward", (grad, x, statistics, weight, gradients), grad_x)
        for _ in range(parameters):
            t.parameter_gradient(t.new((width,), c.dtype))
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def _plain_rms_norm(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    t, width = c.tape, x.shape[-1]
    weight = t.constant((width,), c.dtype)
    inverse_rms = t.new((x.elements // width,), "fp32")
    t.kernel("row_norm", (x,), inverse_rms)
    for op in ("pow", "div", "add", "rsqrt"):
        t.kernel(op, (inverse_rms,), inverse_rms)
    out = t.kernel("mul", (x, inverse_rms), t.like(x, "fp32"))
    t.kernel("mul", (out, weight), out)
    out = cast(t, out, x.dtype)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        normal = t.kernel("mul", (x, inverse_rms), t.like(x, "fp32"))
        product = t.kernel("mul", (grad, normal), t.like(x, "fp32"))
        grad_weight = t.kernel("sum", (product,), t.new((width,), "fp32"))
        t.kernel("mul", (product, weight), product)
        along = t.kernel("mean", (product,), t.new(inverse_rms.shape, "fp32"))
        del product
        if grad.dtype == "fp32":
            grad_x = t.kernel("mul", (grad, weight), t.like(x))
        else:
            grad_x = t.kernel("cast", (grad,), t.like(x, "fp32"))
            t.kernel("mul", (grad_x, weight), grad_x)
        t.kernel("addcmul", (grad_x, normal, along), grad_x)
        t.kernel("mul", (grad_x, inverse_rms), grad_x)
        grad_x = cast(t, grad_x, x.dtype)
        t.parameter_gradient(cast(t, grad_weight, c.dtype))
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def cast(t: Tape, value: SymbolicTensor, dtype: str) -> SymbolicTensor:
    """The value in another format; itself where it is in that one."""
    if value.dtype == dtype:
        return value
    return t.kernel("cast", (value,), t.like(value, dtype))


def split_heads(c: OpContext, x: SymbolicTensor, heads: int, ordered: bool) -> SymbolicTensor:
    """(seq, batch, width) as heads.

    Attention gives its gradients batch-first, the unfused form heads-first too; if there are
    several of them they are copied into order, unless the next operation going backward writes
    them so (``ordered``), or an exchange of heads has them in order already.
    """
    out = x.view(*x.shape[:2], heads, x.shape[-1] // heads)
    if ordered or c.head_exchange.size > 1 or not _out_of_order(c, out):
        return out
    c.tape.record((out,), (x,), lambda grad: (in_order(c, grad),))
    return out


def in_order(c: OpContext, grad: SymbolicTensor) -> SymbolicTensor:
    """Attention's gradient of (seq, batch, heads, width), copied where it is not in that order."""
    if not _out_of_order(c, grad):
        return grad
    copy = c.tape.kernel("copy", (grad,), c.tape.like(grad))
    copy.keeps = grad
    return copy


def _out_of_order(c: OpContext, heads: SymbolicTensor) -> bool:
    outer = heads.shape[1] * (1 if c.stack.attention == "flash" else heads.shape[2])
    return outer > 1 and c.stack.attention_gradient_copies
