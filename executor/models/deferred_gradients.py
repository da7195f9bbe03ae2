"""Weight gradients that a schedule leaves for a pass of their own.

A split backward makes the gradient of a layer's input first, for which the stage before waits, and
those of its weights later (Qi et al., "Zero bubble pipeline parallelism", 2024, section 2). The
products of weight gradients then wait as closures, which hold the input and the output gradient
of each linear layer and nothing else: what the cost model counts between the two passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

DeferredProducts = deque[Callable[[], None]]
"""What waits of one micro-batch, in the order in which the backward came to it."""


class DeferredGradients:
    """What one layer of a rank leaves for later, micro-batch by micro-batch.

    A layer's backward passes run one after the other, so the layer needs no lock.
    """

    def __init__(self) -> None:
        self._open: DeferredProducts | None = None
        self._waiting: dict[int, DeferredProducts] = {}

    @property
    def is_deferring(self) -> bool:
        """Whether the backward under way makes input gradients alone."""
        return self._open is not None

    @contextmanager
    def defer(self, micro_batch: int) -> Iterator[None]:
        """Around a micro-batch's input gradient: weight gradients wait."""
        self._open = self._waiting[micro_batch] = deque()
        try:
            yield
        finally:
            self._open = None

    def add(self, product: Callable[[], None]) -> None:
        """Leave a product for later; only where :attr:`is_deferring`."""
        if self._open is None:
            raise RuntimeError("weight gradients wait only for a backward that is split")
        self._open.append(product)

    def run(self, micro_batch: int) -> None:
        """Do what waits of a micro-batch, in order, each letting go of what it held."""
        products = self._waiting.pop(micro_batch)
        with torch.no_grad():
            while products:
                products.popleft()()


def add_gradients(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Add to the gradients of parameters, as autograd does: the first one stays as it is."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.add_(gradient)


__all__ = ["DeferredGradients", "DeferredProducts", "add_gradients"]
