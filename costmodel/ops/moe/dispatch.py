"""Exchange of rows between the ranks that hold experts, there and back.

Priced is the fullest rank: it receives, and sends back, more rows than it has of its own where the
load is uneven, and every other rank waits for it.
"""

from __future__ import annotations

from ....spec.parallel.rank_groups import RankGroup
from ...symbolic.tape import SymbolicTensor
from ..context import OpContext


def exchange(
    c: OpContext,
    rows: SymbolicTensor,
    group: RankGroup,
    topk: int,
    name: str = "",
    received: int | None = None,
) -> SymbolicTensor:
    """Send rows to their experts' ranks, or back: an all-to-all.

    ``group``: ranks that hold experts; ``topk``: rows per token; ``name``: of the result;
    ``received``: rows that come, as many as are sent if None. The larger number takes the time.
    """
    if group.size == 1:
        return rows
    t, sent = c.tape, rows.shape[0]
    copies = topk if c.stack.expert_dispatch == "tokens" else 1
    arriving = sent if received is None else received

    def send(value: SymbolicTensor, count: int) -> SymbolicTensor:
        width = value.shape[1:]
        fuller = t.constant((max(sent, arriving), *width), value.dtype)
        t.collective("all_to_all", group, fuller, term="exposed_ep", copies=copies, over=c.load)
        return t.new((count, *width), value.dtype)

    kept = t.kept_result((name,)) if name else None
    out = send(rows, arriving) if kept is None else kept[0]
    if name:
        t.keep_result((name,), out)
    del kept
    t.record((out,), (rows,), lambda grad: (send(grad, sent),))
    return out


def join_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """Gather the rows of all ranks of the same experts."""
    if group.size == 1:
        return rows
    out = gather_rows(c, rows, group)
    c.tape.record((out,), (rows,), lambda grad: (scatter_rows(c, grad, group),))
    return out


def sum_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """Sum rows over the ranks of their experts; each keeps its own."""
    if group.size == 1:
        return rows
    out = scatter_rows(c, rows, group)
    c.tape.record((out,), (rows,), lambda grad: (gather_rows(c, grad, group),))
    return out


def gather_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """Rows of all ranks of a group."""
    out = c.tape.new((rows.shape[0] * group.size, *rows.shape[1:]), rows.dtype)
    c.tape.collective("all_gather", group, out)
    return out


def scatter_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """This rank's part of rows, summed over a group."""
    c.tape.collective("reduce_scatter", group, rows)
    return c.tape.new((rows.shape[0] // group.size, *rows.shape[1:]), rows.dtype)


def sort_by_expert(
    c: OpContext, rows: SymbolicTensor, experts: int, sources: int
) -> SymbolicTensor:
    """Reorder rows from rank-major to expert-major, or back: a copy."""
    if experts == 1 or sources == 1:
        return rows
    t = c.tape

    def reorder(value: SymbolicTensor) -> SymbolicTensor:
        return t.kernel("copy", (value,), t.like(value))

    out = reorder(rows)
    t.record((out,), (rows,), lambda grad: (reorder(grad),))
    return out


def copy_to_tensor_parallel(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """Enter tensor-parallel work: gradients are summed over the ranks."""
    if c.tp == 1:
        return x
    out = x.view(*x.shape)
    c.tape.record((out,), (x,), lambda grad: (c.reduce(grad),))
    return out


def reduce_from_tensor_parallel(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """Sum the partial results of the tensor-parallel ranks."""
    if c.tp == 1:
        return x
    out = c.reduce(x)
    c.tape.record((out,), (x,), lambda grad: (grad,))
    return out
