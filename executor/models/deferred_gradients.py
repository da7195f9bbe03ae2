"""Weight gradients deferred to a pass of their own.

A split backward makes input gradients first, for which the previous stage waits, and weight
gradients later (Qi et al., "Zero bubble pipeline parallelism", 2024, section 2). Until then
closures hold only each linear layer's input and output gradient, as the cost model counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

DeferredProducts = deque[Callable[[], None]]
"""Deferred products of one micro-batch, in the order of its backward."""


class DeferredGradients:
    """Deferred weight gradients of one layer, by micro-batch.

    A layer's backward passes are serial, so it needs no lock.
    """

    def __init__(self) -> None:
        self._open: DeferredProducts | None = None
        self._waiting: dict[int, DeferredProducts] = {}

    @property
    def is_deferring(self) -> bool:
        """True during a backward of input gradients alone."""
        return self._open is not None

    @contextmanager
    def defer(self, micro_batch: int) -> Iterator[None]:
        """Defer weight gradients during a micro-batch's input gradient."""
        self._open = self._waiting[micro_batch] = deque()
        try:
            yield
        finally:
            self._open = None

    def add(self, product: Callable[[], None]) -> None:
        """Defer a product; only where :attr:`is_deferring`."""
        if self._open is None:
            raise RuntimeError("weight gradients wait only for a backward that is split")
        self._open.append(product)

    def run(self, micro_batch: int) -> None:
        """Run a micro-batch's deferred products in order, freeing each."""
        products = self._waiting.pop(micro_batch)
        with torch.no_grad():
            while products:
                products.popleft()()


def add_gradients(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Accumulate gradients as autograd does: the first without a copy."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.add_(gradient)


__all__ = ["DeferredGradients", "DeferredProducts", "add_gradients"]
