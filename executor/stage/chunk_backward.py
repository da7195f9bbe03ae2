"""Backward passes of a chunk, whole or in two parts.

The first part makes the gradient of the chunk's input; it includes recomputation and all
collectives. The second makes the weight gradients deferred in ``DeferredGradients``, last layer
first, each layer followed by sharding of its complete gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch.distributed.fsdp import FSDPModule

from ...spec.schedules.stage_order import Pass
from ...spec.workload.workload import DtypeRecord
from .. import torch_compat
from .chunk import Chunk
from .split_backward_units import SplitBackwardUnit


class ChunkBackward:
    """Backward passes of one chunk around autograd's own part.

    Args:
        splits: True if any backward pass comes in two parts.
    """

    def __init__(self, chunk: Chunk, splits: bool, dtype: DtypeRecord) -> None:
        self.chunk = chunk
        self._units = _split_units(chunk, dtype) if splits else {}

    @contextmanager
    def around(self, item: Pass, reduces: bool) -> Iterator[None]:
        """Context of a pass's backward in autograd, whole or input gradient.

        ``reduces``: it completes the chunk's gradients.
        """
        chunk = self.chunk
        if item.part == "input":
            with self._deferring(item.micro_batch):
                yield
        else:
            chunk.set_last_micro_batch(reduces)
            yield
        chunk.after_backward(reads=True, last=reduces)

    @contextmanager
    def _deferring(self, micro_batch: int) -> Iterator[None]:
        with ExitStack() as stack:
            for work in self.chunk.deferred_gradients.values():
                stack.enter_context(work.defer(micro_batch))
            for unit in self._units.values():
                unit.begin(micro_batch)
                stack.callback(unit.end_input_gradient)
            yield

    def weights(self, micro_batch: int, reduces: bool) -> None:
        """Run the second part of a backward.

        ``reduces``: it completes the chunk's gradients.
        """
        chunk = self.chunk
        chunk.set_last_micro_batch(reduces)
        for index in sorted(chunk.strategies, reverse=True):
            chunk.deferred_gradients[index].run(micro_batch)
            if index in self._units:
                self._units[index].finish(micro_batch)
        if isinstance(chunk, FSDPModule):
            torch_compat.end_backward(chunk)
        if reduces:
            chunk.after_backward(reads=False, last=True)


def _split_units(chunk: Chunk, dtype: DtypeRecord) -> dict[int, SplitBackwardUnit]:
    """Sharded units by their first layer, where their backward ends."""
    first: dict[int, int] = {}
    for index in sorted(chunk.strategies, reverse=True):
        module = chunk.layers[str(index)]
        if isinstance(module, FSDPModule):
            first[id(torch_compat.parameter_groups(module)[0])] = index
    units = {}
    for index in first.values():
        shard, module = chunk.strategies[index].shard, chunk.layers[str(index)]
        if isinstance(module, FSDPModule):
            resets_gradients = shard.reduces_each_micro_batch or dtype.param != dtype.communication
            units[index] = SplitBackwardUnit(module, shard.gathers_each_use, resets_gradients)
    return units


__all__ = ["ChunkBackward"]
