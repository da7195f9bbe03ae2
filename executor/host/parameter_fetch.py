"""Shards fetched from the host before each gather, then freed.

fully_shard's CPUOffloadPolicy copies nothing on cores, and takes gradients off the device before
norms and clipping. So shards are fetched here, below its public surface, around the start of a
gather, on the stream that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ...kernels.marks import mark
from ..stage.local_parameters import LocalParameter


def fetch_for_gathers(unit: FSDPModule, parameters: Sequence[LocalParameter], name: str) -> None:
    """Keep a unit's shards on the device only during gathers.

    Until the first gather they stay where they were made.

    Args:
        unit: sharded, its parameters freed after each use.
        parameters: those with tensors on the host.
        name: mark of the copies in a trace.
    """
    state: Any = unit._get_fsdp_state()
    (group,) = state._fsdp_param_groups
    shards = [_FetchedShard(parameter.data, device_copy(parameter)) for parameter in parameters]
    group.unshard = _around(group, group.unshard, shards, name)


def device_copy(parameter: LocalParameter) -> Tensor:
    """The module's tensor of a parameter kept on the host."""
    if parameter.device_tensor is None:
        raise RuntimeError(f"{parameter.name} is not on the host")
    return parameter.device_tensor


class _FetchedShard:
    """A shard's two tensors.

    Args:
        host: the values.
        device: source of the gather, perhaps padded; its storage is empty in between.
    """

    def __init__(self, host: Tensor, device: Tensor) -> None:
        self.host, self.device = host, device
        self._storage = device.untyped_storage()
        self._size_bytes = self._storage.nbytes()

    def fill(self) -> None:
        """Allocate the device storage."""
        if self._storage.nbytes() != self._size_bytes:
            self._storage.resize_(self._size_bytes)

    def free(self) -> None:
        """Free the device storage."""
        self._storage.resize_(0)


def _around(
    group: Any, start: Callable[[bool], None], shards: list[_FetchedShard], name: str
) -> Callable[[bool], None]:
    """The start of a gather, with the copies around it."""
    filled = [shard for shard in shards if shard.host.numel()]

    def unshard(async_op: bool = False) -> None:
        if group._all_gather_result is not None or group.is_unsharded:
            return
        with mark(name), _where_read(group, async_op), torch.no_grad():
            for shard in shards:
                shard.fill()
            targets, sources = [s.device for s in filled], [s.host for s in filled]
            if targets:
                torch._foreach_copy_(targets, sources, non_blocking=True)
        start(async_op)
        with _where_read(group, async_op):
            for shard in shards:
                shard.free()

    return unshard


def _where_read(group: Any, async_op: bool) -> AbstractContextManager[Any]:
    if group.device.type == "cpu":
        return nullcontext()
    reading, _ = group.comm_ctx.get_all_gather_streams(async_op, group._training_state)
    return torch.cuda.stream(reading)


__all__ = ["device_copy", "fetch_for_gathers"]
