"""Sums of gradients in line, taken in pieces while experts' rows are on their way.

fully_shard hands its reduction to the line instead of a collective, and binds the result, which is
filled later: before anything reads gradients the line is empty. Runs what
``shardwright.costmodel.lowering.waiting_sums`` prices: the same line, cut at the same bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo

from ...kernels.marks import mark
from ..torch_compat import parameter_groups, reduce_scatter_single


@dataclass(slots=True)
class _Sum:
    """One reduction; ``sent`` is None where it is in place. ``taken`` elements of it have gone."""

    result: Tensor
    sent: Tensor | None
    group: dist.ProcessGroup
    ready: torch.cuda.Event | None
    taken: int = 0

    @property
    def column_bytes(self) -> int:
        """Bytes of one element of the result on all ranks."""
        ranks = 1 if self.sent is None else self.group.size()
        return ranks * self.result.element_size()

    @property
    def left(self) -> int:
        """Elements that wait."""
        return self.result.numel() - self.taken

    def run(self, columns: int, run_async: bool) -> tuple[Any, Tensor | None]:
        """Begin to sum the next elements; what is sent lives until then."""
        start, stop = self.taken, self.taken + columns
        self.taken = stop
        part = self.result[start:stop]
        if self.sent is None:
            return dist.all_reduce(part, group=self.group, async_op=run_async), None
        sent = self.sent
        if columns < self.result.numel():
            sent = sent.view(self.group.size(), -1)[:, start:stop].reshape(-1)
        work = reduce_scatter_single(part, sent, group=self.group, async_op=run_async)
        return work, sent


class WaitingSums:
    """The line of a rank's sums in a backward, and those that run.

    Args:
        device: of the gradients.
        name: of the mark around what runs in windows.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self._cuda = device.type != "cpu"
        self._name = name
        self._line: deque[_Sum] = deque()
        self._running: list[tuple[Any, Any]] = []

    def join(
        self, result: Tensor, sent: Tensor | None, group: dist.ProcessGroup, at_once: bool
    ) -> None:
        """Put a sum in line; ``at_once``: and run all that wait, on the current stream."""
        ready = None
        if self._cuda:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
        self._line.append(_Sum(result, sent, group, ready))
        if at_once:
            self.flush()

    def take(self, limit: int) -> None:
        """Begin sums of so many bytes at most, from the head of the line."""
        with mark(self._name):
            self._take(limit, run_async=not self._cuda)

    def flush(self) -> None:
        """Run all sums in line."""
        self._take(None, run_async=False)

    def _take(self, limit: int | None, run_async: bool) -> None:
        while self._line:
            head = self._line[0]
            columns = head.left
            if limit is not None:
                columns = min(columns, limit // head.column_bytes)
                limit -= columns * head.column_bytes
            if columns:
                if head.ready is not None:
                    torch.cuda.current_stream().wait_event(head.ready)
                work, sent = head.run(columns, run_async)
                self._running.append((self._end_of(work), (sent, head.sent)))
            if head.left:
                return
            self._line.popleft()

    def _end_of(self, work: Any) -> Any:
        if not self._cuda:
            return work
        end = torch.cuda.Event()  # type: ignore[no-untyped-call]
        end.record()
        return end

    def settle(self) -> None:
        """Wait for what runs, and free what it sent."""
        for end, _ in self._running:
            if self._cuda:
                torch.cuda.current_stream().wait_event(end)
            elif end is not None:
                end.wait()
        self._running.clear()

    def finish(self) -> None:
        """Run what is left, and wait for all."""
        self.flush()
        self.settle()


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """The window of a layer: at most so many bytes of a line."""

    sums: WaitingSums
    most_bytes: int

    def open(self) -> None:
        """Begin sums of waiting gradients."""
        self.sums.take(self.most_bytes)

    def close(self) -> None:
        """Wait for them."""
        self.sums.settle()


class _JoiningScatter(DefaultAllocMixin, ReduceScatter):
    """A unit's reduce-scatter, put in line."""

    def __init__(self, sums: WaitingSums, at_once: bool) -> None:
        self._sums, self._at_once = sums, at_once

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Leave the result empty until the line has it."""
        self._sums.join(output_tensor, input_tensor, group, self._at_once)
        return None


def put_in_line(unit: FSDPModule, sums: WaitingSums, at_once: bool) -> None:
    """Hand a unit's reductions to a line.

    Args:
        unit: sharded over all of its ranks, or over none; it sums once a step.
        sums: the line.
        at_once: True if no window follows, so that all that wait run then.
    """
    for group in parameter_groups(unit):
        info = group.mesh_info
        if isinstance(info, HSDPMeshInfo):
            replicas = info.mesh.get_group(info.replicate_mesh_dim)
            group.mesh_info = FSDPMeshInfo(info.mesh, shard_mesh_dim=info.shard_mesh_dim)
            group._all_reduce_hook = partial(_join_in_place, sums, replicas, at_once)
        else:
            group._reduce_scatter_comm = _JoiningScatter(sums, at_once)


def _join_in_place(
    sums: WaitingSums, group: dist.ProcessGroup, at_once: bool, gradient: Tensor
) -> None:
    sums.join(gradient, None, group, at_once)


__all__ = ["LayerWindow", "WaitingSums", "put_in_line"]
