"""The run of quantized_communication: blocks' gathers and reductions in fewer bits.

fully_shard calls :class:`QuantizedGather` and :class:`QuantizedReduction` in place of its own
collectives. Ranks add the same differences to equal weights, so they stay equal. What is random
depends on seed, rank, block and how many reductions came before; that count is all that
checkpoints keep. After one is put in place, and in the first step, weights are sent whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from ...kernels.dispatch import Dispatcher
from ...kernels.quantization import block_quantize as blocks
from ...kernels.quantization.block_format import BlockFormat
from ...kernels.quantization.wire_format import join, message_bytes, part
from ...kernels.rounding import Philox
from ...spec.parallel.rank_groups import RankGroup
from ...spec.techniques.quantized_communication import (
    NAME,
    QuantizedCommunication,
    hop_groups,
    value_of,
)
from ..technique import (
    NamedState,
    Placement,
    TechniqueContext,
    TechniqueHooks,
    TechniqueRun,
)
from ..torch_compat import all_gather_single


class QuantizedGather(AllGather):
    """All-gather of a block's weights in 8 bits, or of 4-bit differences.

    Differences are to a copy of all weights, which gathers fill in place of a buffer of their own;
    ``_own`` is this rank's part of it, which fully_shard overwrites with updated weights.
    """

    def __init__(self, value: QuantizedCommunication, ranks: int, kernels: Dispatcher) -> None:
        self._ranks = ranks
        self._kernels = kernels
        self._differs = value.weights == "diff4"
        self._form = BlockFormat(bits=value.weight_bits, block=value.weight_block)
        self._copy: Tensor | None = None
        self._own: Tensor | None = None

    def send_whole(self) -> None:
        """Send weights whole next time: the copy is out of date."""
        self._own = None

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The gather's output: the copy, where differences are added to one."""
        if not self._differs:
            return torch.empty(*size, dtype=dtype, device=device)
        if self._copy is None:
            self._copy = torch.empty(*size, dtype=dtype, device=device)
        return self._copy

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Gather; a second copy's gathers, over fewer ranks, and packed weights are plain."""
        plain = group.size() != self._ranks or not input_tensor.is_floating_point()
        if plain or (self._differs and self._own is None):
            work: dist.Work | None = all_gather_single(
                output_tensor, input_tensor, group=group
            )
            if self._differs:
                self._own = input_tensor.clone()
            return work
        if self._own is None:
            self._gather(output_tensor, input_tensor, group)
            return None
        difference = torch.sub(input_tensor.float(), self._own)
        input_tensor.copy_(self._own)
        self._gather(output_tensor, difference, group)
        self._own.copy_(input_tensor)
        return None

    def _gather(self, whole: Tensor, sent: Tensor, group: dist.ProcessGroup) -> None:
        width = sent.numel()
        message = join(blocks.quantize(self._kernels, sent[None], self._form))[0]
        received = message.new_empty(self._ranks, message_bytes(self._form, width))
        all_gather_single(received.view(-1), message, group=group)
        parts, rows = part(received, self._form, width), whole.view(self._ranks, width)
        if self._differs:
            blocks.dequantize_add_(self._kernels, rows, parts, self._form)
        else:
            rows.copy_(blocks.dequantize(self._kernels, parts, self._form, width, whole.dtype))


class QuantizedReduction(ReduceScatter):
    """Reduce-scatter of a block's gradients in two hops: inside nodes, then between them.

    Shard j · L + l belongs to rank l of node j. The first hop sends, to each rank of the node, the
    shards of the ranks that have its place in theirs; the second, to each node, its sum.
    """

    def __init__(
        self,
        value: QuantizedCommunication,
        hops: tuple[RankGroup, RankGroup],
        context: TechniqueContext,
        layer: int,
    ) -> None:
        self._hops = hops
        self._kernels = context.kernels
        self._context = context
        forms = (
            (value.inner_bits, value.inner_block),
            (value.outer_bits, value.outer_block),
        )
        self._forms = [
            BlockFormat(bits=bits, block=block, hadamard=value.hadamard) for bits, block in forms
        ]
        rank = context.process_groups.rank
        self._seeds = [_stream(f"{context.seed}/{rank}/{layer}/{hop}") for hop in range(len(hops))]
        self.reductions = 0

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """A buffer."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Sum each rank's shard of all ranks' gradients."""
        inner, outer = (hop.size for hop in self._hops)
        gradients, shard = input_tensor, output_tensor.numel()
        if inner > 1:
            if outer > 1:
                ordered = gradients.view(outer, inner, shard).transpose(0, 1)
                gradients = ordered.reshape(inner, outer * shard)
            dtype = output_tensor.dtype if outer == 1 else torch.float32
            gradients = self._hop(0, gradients.view(inner, -1), group, dtype)
        if outer > 1:
            gradients = self._hop(1, gradients.view(outer, -1), group, output_tensor.dtype)
        output_tensor.copy_(gradients)
        self.reductions += 1
        return None

    def _hop(
        self, number: int, rows: Tensor, group: dist.ProcessGroup, dtype: torch.dtype
    ) -> Tensor:
        """The sum of the rows that peers have for this rank."""
        form, hop, width = self._forms[number], self._hops[number], rows.shape[-1]
        if hop.size < group.size():
            group = self._context.group(hop)
        first = self.reductions * form.counters(rows)
        sent = join(blocks.quantize(self._kernels, rows, form, Philox(self._seeds[number], first)))
        received = torch.empty_like(sent)
        dist.all_to_all_single(received.view(-1), sent.view(-1), group=group)
        return blocks.dequantize_sum(self._kernels, part(received, form, width), form, width, dtype)


def _stream(place: str) -> int:
    """A random stream of its own for a place."""
    digest = hashlib.sha256(f"{NAME}/{place}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class QuantizedCommunicationHooks(TechniqueHooks):
    """Collectives of this rank's blocks, and how many reductions each has done."""

    def __init__(self, context: TechniqueContext) -> None:
        self._gathers: list[QuantizedGather] = []
        self._reductions: dict[int, tuple[QuantizedReduction, Tensor]] = {}
        for layer, unit in context.units.items():
            strategy = context.strategies[layer]
            value = value_of(strategy)
            if value is None:
                continue
            if value.weights != "unchanged":
                gather = QuantizedGather(value, strategy.shard.optimizer, context.kernels)
                unit.set_custom_all_gather(gather)
                self._gathers.append(gather)
            if value.gradients != "unchanged":
                hops = hop_groups(strategy, value)
                reduction = QuantizedReduction(value, hops, context, layer)
                unit.set_custom_reduce_scatter(reduction)
                self._reductions[layer] = reduction, torch.zeros(1, dtype=torch.int64)

    def relocated_changed(self) -> None:
        """Weights came from elsewhere, and counts from a checkpoint."""
        for gather in self._gathers:
            gather.send_whole()
        for reduction, count in self._reductions.values():
            reduction.reductions = int(count)

    def end_step(self) -> None:
        """Note how many reductions there were."""
        for reduction, count in self._reductions.values():
            count.fill_(reduction.reductions)

    def state(self) -> dict[str, NamedState]:
        """Reductions of each block so far, the same on all ranks of its stage."""
        same = Placement(kind="replicated")
        return {
            f"{layer}.reductions": NamedState(tensor=count, placement=same)
            for layer, (_, count) in self._reductions.items()
        }


TECHNIQUE = TechniqueRun(name=NAME, start=QuantizedCommunicationHooks)
