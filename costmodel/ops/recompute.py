"""Recomputation: part of a layer keeps its inputs and runs again backward."""

from __future__ import annotations

from collections.abc import Callable

from ..symbolic.saved_results import SavedResults
from ..symbolic.symbolic_tensor import Node, SymbolicTensor
from .context import OpContext

Epilogue = Callable[..., SymbolicTensor]


def recomputed(
    c: OpContext,
    function: Callable[..., tuple[SymbolicTensor, ...]],
    finish: Epilogue | None,
    *inputs: SymbolicTensor,
    save: frozenset[str] = frozenset(),
) -> SymbolicTensor:
    """Run ``finish(*function(*inputs))`` keeping only the inputs; repeat it backward.

    Results named in ``save`` are kept too, and not computed again.

    ``finish`` saves nothing and passes its gradient to each input; a stack that stops early does
    not repeat it. None: ``function`` has one result, returned as it is.
    """
    t = c.tape
    kept = SavedResults(save)
    with t.not_recording(), t.saving_results(kept):
        results = function(*inputs)
        out = finish(*results) if finish is not None else results[0]
        del results

    producers_before = [value.producer for value in inputs]

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        entries = [Node((producer,), 1, _pass_on) for producer in producers_before]
        start = t.node_count
        with t.recomputing(), t.restoring_results(kept):
            results = function(*(_leaf(x, e) for x, e in zip(inputs, entries, strict=True)))
            if finish is not None and not c.stack.recompute_stops_early:
                finish(*results)
        producers = [value.producer for value in results]
        del results
        nodes = t.take_nodes(start)
        for producer in producers:
            if producer is not None:
                t.add_gradient(producer, grad)
        t.run_next([*entries, *nodes])
        return tuple(None for _ in inputs)

    t.record((out,), inputs, backward)
    return out


def _leaf(value: SymbolicTensor, entry: Node) -> SymbolicTensor:
    leaf = SymbolicTensor(value.shape, value.dtype, value.storage)
    leaf.producer = (entry, 0)
    return leaf


def _pass_on(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
    return (grad,)
