"""Embedding and cross-entropy.

Under tensor parallelism embedding rows of other ranks are masked and the results summed; the loss
combines maximum, target logit and sum by two small all-reduces.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.model.model_spec import EmbeddingLayer
from ...spec.report.work_items import loss_chunks
from ..symbolic.tape import SymbolicTensor, Tape, TapeEntry
from .context import OpContext
from .dropout import dropout

PLAIN_COPIES = 3
"""fp32 tensors as large as the logits in the backward of PyTorch's plain cross-entropy."""


def embedding(
    c: OpContext, layer: EmbeddingLayer, rows: int, positions: int, tokens: SymbolicTensor
) -> SymbolicTensor:
    """Token (and position and segment) vectors of (seq, batch) tokens.

    ``rows`` of the table are local. Each rank adds position and segment vectors to its own tokens.
    """
    t = c.tape
    seq, batch = tokens.shape
    local, outside = tokens, None
    if c.tp > 1:
        local, outside = _local_tokens(t, tokens)
    out = t.new((seq, batch, layer.hidden), c.dtype)
    t.kernel("embedding", (out,), out)
    if outside is not None:
        t.kernel("masked_fill", (out, outside), out)
    out = c.reduce(out)
    if positions:
        position_rows = t.constant((out.shape[0], layer.hidden), c.dtype)
        t.kernel("add", (out, position_rows), out)
    if layer.token_types:
        segments = t.kernel("embedding", (), t.like(out))
        t.kernel("add", (out, segments), out)
        del segments
    saved_tokens = tokens.view(out.shape[0], batch)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if positions:
            table = t.kernel("zeros", (), t.new((positions, layer.hidden), c.dtype))
            t.kernel("sum", (grad,), t.constant((grad.shape[0], layer.hidden), c.dtype))
            position_gradient = table
        if layer.token_types:
            segment_gradient = t.new((layer.token_types, layer.hidden), c.dtype)
            t.kernel("embedding_backward", (grad, saved_tokens), segment_gradient)
        grad = c.gather_sequence(grad)
        if outside is not None:
            grad = t.kernel("masked_fill", (grad, outside), t.like(grad))
        weight_gradient = t.new((rows, layer.hidden), c.dtype)
        t.kernel("embedding_backward", (grad, local), weight_gradient)
        t.parameter_gradient(weight_gradient, shared=c.shares_weight)
        if positions:
            t.parameter_gradient(position_gradient)
        if layer.token_types:
            t.parameter_gradient(segment_gradient)
        return ()

    t.record((out,), (), backward)
    return dropout(c, out) if c.drops else out


def insert_tower_tokens(
    c: OpContext, out: SymbolicTensor, source: SymbolicTensor
) -> SymbolicTensor:
    """Replace token vectors by another tower's tokens (images in a text).

    With a split sequence each rank gathers all, not knowing which it needs.
    """
    t = c.tape
    gathered = c.gather_sequence(source)
    joined = t.kernel("masked_scatter", (out, gathered), t.like(out))
    shape = gathered.shape
    del gathered

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_out = t.kernel("masked_fill", (grad,), t.like(grad))
        grad_source = t.new(shape, grad.dtype)
        t.kernel("masked_select", (grad_source,), grad_source)
        return grad_out, c.reduce(grad_source) if c.sequence_parallel else grad_source

    t.record((joined,), (out, source), backward)
    return joined


def _local_tokens(t: Tape, tokens: SymbolicTensor) -> tuple[SymbolicTensor, SymbolicTensor]:
    local = t.kernel("sub", (tokens,), t.like(tokens))
    outside = t.kernel("lt", (local,), t.like(tokens, "bool"))
    beyond = t.kernel("ge", (local,), t.like(tokens, "bool"))
    t.kernel("logical_or", (outside, beyond), outside)
    del beyond
    t.kernel("masked_fill", (local, outside), local)
    return local, outside


def cross_entropy(c: OpContext, logits: SymbolicTensor, targets: SymbolicTensor) -> SymbolicTensor:
    """Summed loss of (tokens, local vocabulary) logits, whose buffer becomes the gradient.

    Fused, one kernel makes it from the kept logits; PyTorch's plain form makes an fp32 tensor at
    every step.
    """
    if c.stack.fusion.cross_entropy:
        return _fused_cross_entropy(c, logits, targets)
    if c.stack.loss_copies:
        return _plain_cross_entropy(c, logits)
    t = c.tape
    tokens = logits.elements // logits.shape[-1]
    work = logits.view(*logits.shape)
    if logits.dtype != "fp32":
        work = t.kernel("cast", (logits,), t.like(logits, "fp32"))
    logits_dtype = logits.dtype
    _highest, target_logit, total, local, outside = _split_softmax(c, work, targets)
    column = (tokens, 1)
    logarithm = t.kernel("log", (total,), t.new(column, "fp32"))
    difference = t.kernel("sub", (logarithm, target_logit), t.new(column, "fp32"))
    loss = t.kernel("sum", (difference,), t.new((1,), "fp32"))
    work = SymbolicTensor(work.shape, work.dtype, work.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        t.kernel("div", (work, total), work)
        hit = t.kernel("where", (outside,), t.new(local.shape, "fp32"))
        t.kernel("scatter_add", (hit,), hit)
        t.kernel("mul", (work, grad), work)
        if work.dtype == logits_dtype:
            return (work,)
        return (t.kernel("cast", (work,), t.like(work, logits_dtype)),)

    t.record((loss,), (logits,), backward)
    return loss


class _SplitSoftmax(NamedTuple):
    """Maxima, target logits and sums of exponentials, (rows, 1) each; targets held here."""

    highest: SymbolicTensor
    target_logit: SymbolicTensor
    total: SymbolicTensor
    local: SymbolicTensor
    outside: SymbolicTensor


def _split_softmax(c: OpContext, work: SymbolicTensor, targets: SymbolicTensor) -> _SplitSoftmax:
    """fp32 logits become their exponentials; ranks that split the vocabulary join their parts."""
    t, column = c.tape, (work.elements // work.shape[-1], 1)
    highest = t.kernel("amax", (work,), t.new(column, "fp32"))
    if c.tp > 1:
        t.collective("all_reduce", c.tensor_group, highest)
    t.kernel("sub", (work, highest), work)
    local, outside = _local_tokens(t, targets)
    target_logit = t.new(column, "fp32")
    t.kernel("gather", (target_logit,), target_logit)
    t.kernel("masked_fill", (target_logit, outside), target_logit)
    t.kernel("exp", (work,), work)
    total = t.kernel("sum", (work,), t.new(column, "fp32"))
    if c.tp > 1:
        target_and_total = t.kernel("copy", (target_logit, total), t.new((column[0], 2), "fp32"))
        t.collective("all_reduce", c.tensor_group, target_and_total)
        target_logit, total = target_and_total.view(*column), target_and_total.view(*column)
    return _SplitSoftmax(highest, target_logit, total, local, outside)


def _fused_cross_entropy(
    c: OpContext, logits: SymbolicTensor, targets: SymbolicTensor
) -> SymbolicTensor:
    """One kernel each way; vocabulary-parallel ranks combine maximum, then sums."""
    t = c.tape
    rows = logits.elements // logits.shape[-1]
    statistics = t.kernel("cross_entropy", (logits, targets), t.new((rows, 2), "fp32"))
    if c.tp > 1:
        t.collective("all_reduce", c.tensor_group, t.new((rows, 1), "fp32"))
        t.collective("all_reduce", c.tensor_group, statistics)
    loss = t.kernel("sum", (statistics,), t.new((1,), "fp32"))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("cross_entropy_backward", (logits, statistics), t.like(logits)),)

    t.record((loss,), (logits,), backward)
    return loss


def linear_cross_entropy(c: OpContext, x: SymbolicTensor, vocab: int) -> SymbolicTensor:
    """Projection to ``vocab`` local rows and loss by chunks, with immediate gradients.

    Mirrors ``kernels/dense/linear_cross_entropy.py``: the backward has nothing left to do.
    """
    t, width = c.tape, x.shape[-1]
    whole = c.gather_sequence(x) if c.tp > 1 else x
    tokens = whole.elements // width
    chunks = loss_chunks(tokens, vocab)
    grad_x, losses = t.like(whole), t.new((tokens,), "fp32")
    grad_weight = t.new((vocab, width), c.dtype)
    buffer = t.new((chunks[0], vocab), c.dtype)
    chunk: list[TapeEntry] = []
    for number, rows in enumerate(chunks):
        if number > 1 and rows == chunks[number - 1]:  # the work of the last one, which added too
            t.entries.extend(chunk)
            continue
        begun = len(t.entries)
        logits = SymbolicTensor((rows, vocab), c.dtype, buffer.storage)
        t.product(rows, width, vocab, c.dtype)
        if c.tp > 1:
            _split_chunk_loss(c, logits)
        else:
            targets, row_values = t.constant((rows,), "int64"), t.constant((rows,), "fp32")
            t.kernel("cross_entropy", (logits, targets, row_values, row_values), logits)
        t.product(rows, vocab, width, c.dtype)
        t.product(vocab, rows, width, c.dtype, accumulate=number > 0)
        chunk = t.entries[begun:]
    del buffer, logits, whole
    if c.tp > 1:
        grad_x = c.reduce(grad_x)
    loss = t.kernel("sum", (losses,), t.new((1,), "fp32"))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        t.parameter_gradient(grad_weight)
        return (grad_x,)

    t.record((loss,), (x,), backward)
    return loss


def _split_chunk_loss(c: OpContext, logits: SymbolicTensor) -> None:
    """A chunk's logits of a part of the vocabulary become their gradient."""
    t, rows = c.tape, logits.shape[0]
    work = logits if logits.dtype == "fp32" else t.kernel("cast", (logits,), t.like(logits, "fp32"))
    statistics = _split_softmax(c, work, t.constant((rows, 1), "int64"))
    logarithm = t.kernel("log", (statistics.total,), t.new((rows, 1), "fp32"))
    difference = t.kernel("sub", (logarithm, statistics.target_logit), t.like(logarithm))
    t.kernel("mul", (difference,), difference)
    t.kernel("copy", (difference,), t.constant((rows,), "fp32"))
    del logarithm, difference
    t.kernel("div", (work, statistics.total), work)
    hit = t.kernel("where", (statistics.outside,), t.like(statistics.local, "fp32"))
    t.kernel("scatter_add", (hit,), hit)
    t.kernel("mul", (work,), work)
    if work is not logits:
        t.kernel("copy", (work,), logits)


def _plain_cross_entropy(c: OpContext, logits: SymbolicTensor) -> SymbolicTensor:
    """``cross_entropy(logits.float(), targets)``: keeps the log-probabilities.

    The backward adds their gradient and the logits', all in fp32: ``PLAIN_COPIES``. What the stack
    holds beyond that is outputs that it keeps until then. Vocabulary-parallel ranks (torchtitan's
    loss parallel) combine maximum, sum and target.
    """
    t = c.tape
    kept = _kept_outputs(c, logits)
    column = (logits.elements // logits.shape[-1], 1)
    work, logits_dtype = logits, logits.dtype
    if logits.dtype != "fp32":
        work = t.kernel("cast", (logits,), t.like(logits, "fp32"))
    if c.tp > 1:
        for _ in range(3):
            t.collective("all_reduce", c.tensor_group, t.new(column, "fp32"))
    log_probabilities = t.kernel("softmax", (work,), t.like(work))
    del work
    picked = t.kernel("gather", (), t.new(column, "fp32"))
    loss = t.kernel("sum", (picked,), t.new((1,), "fp32"))

    def backward(
        grad: SymbolicTensor, kept: SymbolicTensor | None = kept
    ) -> tuple[SymbolicTensor | None, ...]:
        grad_log_probabilities = t.kernel("zeros", (), t.like(log_probabilities))
        out = t.kernel(
            "softmax_backward",
            (grad_log_probabilities, log_probabilities),
            t.like(log_probabilities),
        )
        del grad_log_probabilities
        if out.dtype == logits_dtype:
            return (out,)
        return (t.kernel("cast", (out,), t.like(out, logits_dtype)),)

    t.record((loss,), (logits,), backward)
    return loss


def _kept_outputs(c: OpContext, logits: SymbolicTensor) -> SymbolicTensor | None:
    """Logits among a module's outputs that live until the loss's backward."""
    beyond = c.stack.loss_copies - PLAIN_COPIES
    if beyond <= 0:
        return None
    rows = logits.elements // logits.shape[-1]
    kept = c.tape.new((rows, round(beyond * logits.shape[-1])), "fp32")
    return c.tape.kernel("cast", (logits,), kept)
