"""Backward passes of a chunk: whole ones, and ones in two parts.

The first part goes back through the layers and makes the gradient of the chunk's input; recomputed
layers run again in it, and its collectives are all there are. The second makes the weight
gradients that :class:`deferred_gradients.WeightWork` kept, last layer first, and what sharding
does with complete gradients follows each layer.
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
    """Runs the backward passes of one chunk around autograd's own part.

    Args:
        chunk: the chunk.
        splits: whether any of its backward passes comes in two parts.
        dtype: number formats of the workload.
    """

    def __init__(self, chunk: Chunk, splits: bool, dtype: DtypeRecord) -> None:
        self.chunk = chunk
        self._units = _split_units(chunk, dtype) if splits else {}

    @contextmanager
    def around(self, item: Pass, reduces: bool) -> Iterator[None]:
        """Around autograd's backward of a pass: all of it, or the gradient of the input.

        Args:
            item: the pass.
            reduces: whether it completes the chunk's gradients.
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
        """The second part of a backward.

        Args:
            micro_batch: its number.
            reduces: whether it completes the chunk's gradients.
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
    """The sharded units by the first of their layers, where their backward ends."""
    first: dict[int, int] = {}
    for index in sorted(chunk.strategies, reverse=True):
        module = chunk.layers[str(index)]
        if isinstance(module, FSDPModule):
            first[id(torch_compat.parameter_groups(module)[0])] = index
    found = {}
    for index in first.values():
        shard, module = chunk.strategies[index].shard, chunk.layers[str(index)]
        if isinstance(module, FSDPModule):
            anew = shard.reduces_each_micro_batch or dtype.param != dtype.communication
            found[index] = SplitBackwardUnit(module, shard.gathers_each_use, anew)
    return found


__all__ = ["ChunkBackward"]
