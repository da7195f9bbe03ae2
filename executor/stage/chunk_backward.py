"""Backward passes of a chunk, whole or in two parts.

The first part makes the gradient of the chunk's input; it includes recomputation and all
collectives. The second makes the weight gradients deferred in ``DeferredGradients``, last layer
first, each layer followed by sharding of its complete gradients.

fully_shard reduces a unit before autograd goes on to what came before it, and waits for all
reductions before autograd returns. Where the chunk's input has a gradient to send, both are put off
for the first unit, the last to reduce: the message leaves when the layers' own work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

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
        sends: True if the gradient of the chunk's input goes to another chunk.
    """

    def __init__(self, chunk: Chunk, splits: bool, sends: bool, dtype: DtypeRecord) -> None:
        self.chunk = chunk
        self._units = _split_units(chunk, dtype) if splits else {}
        self._puts_off = False
        self._sharded = chunk if sends and isinstance(chunk, FSDPModule) else None
        first = chunk.layers[str(min(chunk.strategies))]
        if self._sharded is not None and isinstance(first, FSDPModule):
            for group in torch_compat.parameter_groups(first):
                group.post_backward = partial(self._end_first_unit, group.post_backward)

    @contextmanager
    def around(self, item: Pass, reduces: bool) -> Iterator[None]:
        """Context of a pass's backward in autograd, whole or input gradient.

        ``reduces``: it completes the chunk's gradients.
        """
        if item.part == "input":
            with self._deferring(item.micro_batch):
                yield
            return
        self.chunk.set_last_micro_batch(reduces)
        if self._sharded is not None:
            torch_compat.put_off_end_of_backward(self._sharded)
        self._puts_off = True
        try:
            yield
        finally:
            self._puts_off = False

    def end(self, item: Pass, reduces: bool) -> None:
        """Reduce what the pass's message did not wait for, and wait for all reductions.

        ``reduces``: it completes the chunk's gradients.
        """
        if item.part == "whole" and self._sharded is not None:
            torch_compat.end_backward(self._sharded)
        self.chunk.after_backward(reads=True, last=reduces)

    def _end_first_unit(self, end_unit: Callable[..., None], *arguments: Any) -> None:
        """Called by fully_shard after the unit's backward, and again at the end of all."""
        if not self._puts_off:
            end_unit(*arguments)

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
