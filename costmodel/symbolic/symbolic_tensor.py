"""Symbolic tensors: shapes and bytes without data, and their origins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...spec.workload.number_formats import tensor_bytes

if TYPE_CHECKING:
    from .tape import Tape

Backward = Callable[..., "tuple[SymbolicTensor | None, ...]"]


class Storage:
    """Bytes that live until the last reference is gone."""

    __slots__ = ("__weakref__", "_tape", "size_bytes")

    def __init__(self, tape: Tape, size_bytes: int) -> None:
        self._tape = tape
        self.size_bytes = size_bytes
        tape.note_bytes(size_bytes)

    def __del__(self) -> None:
        self._tape.note_bytes(-self.size_bytes)


class SymbolicTensor:
    """A symbolic tensor; ``producer``: its node and output number, if any.

    ``size_bytes``: of its elements, not of the storage. ``keeps``: a tensor that it keeps alive.
    """

    __slots__ = ("dtype", "elements", "keeps", "producer", "shape", "size_bytes", "storage")

    def __init__(self, shape: tuple[int, ...], dtype: str, storage: Storage) -> None:
        self.shape = shape
        self.dtype = dtype
        self.elements = math.prod(shape)
        self.size_bytes = tensor_bytes(self.elements, dtype)
        self.storage = storage
        self.producer: tuple[Node, int] | None = None
        self.keeps: SymbolicTensor | None = None

    def view(self, *shape: int) -> SymbolicTensor:
        """The same storage in another shape, on the same gradient path."""
        other = SymbolicTensor(shape, self.dtype, self.storage)
        other.producer = self.producer
        return other


class Node:
    """One differentiable operation: producers of its inputs, and its backward.

    ``gradients`` has a slot for each output; ``backward`` takes them all and returns one gradient
    per input.
    """

    __slots__ = ("backward", "gradients", "inputs")

    def __init__(
        self, inputs: tuple[tuple[Node, int] | None, ...], outputs: int, backward: Backward
    ) -> None:
        self.inputs = inputs
        self.backward: Backward | None = backward
        self.gradients: list[SymbolicTensor | None] = [None] * outputs
