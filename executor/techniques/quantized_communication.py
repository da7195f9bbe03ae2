"""The run of quantized_communication: blocks' gathers and reductions in fewer bits.

fully_shard calls :class:`QuantizedGather` and :class:`QuantizedReduction` in place of its own
collectives, and :class:`SecondCopyGather` around either; where degrees nest, what is sent once a
step is theirs. Ranks add the same differences to equal weights, so they stay equal. What is random
depends on seed, rank, block and how many reductions came before; that count is all that
checkpoints keep. After one is put in place, and in the first step, weights are sent whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin

from ...kernels.dispatch import Dispatcher
from ...kernels.quantization import block_quantize as blocks
from ...kernels.quantization.block_format import BlockFormat
from ...kernels.quantization.wire_format import join, message_bytes, part
from ...kernels.rounding import Philox
from ...spec.parallel.rank_groups import RankGroup, inner_group
from ...spec.strategy import LayerStrategy
from ...spec.techniques.quantized_communication import (
    NAME,
    QuantizedCommunication,
    gathered_ranks,
    hop_groups,
    value_of,
)
from ..stage.hpz import drop_secondary_shards
from ..stage.nested_degrees import StepGather, send_gradients, send_weights
from ..technique import (
    NamedState,
    Placement,
    TechniqueContext,
    TechniqueHooks,
    TechniqueRun,
)
from ..torch_compat import all_gather_single, in_backward, parameter_groups


class QuantizedGather(DefaultAllocMixin, AllGather):
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
        if self._copy is not None:
            return self._copy
        buffer = super().allocate(size, dtype=dtype, device=device)
        if self._differs:
            self._copy = buffer
        return buffer

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Gather; gathers over fewer ranks and packed weights are plain."""
        plain = group.size() != self._ranks or not input_tensor.is_floating_point()
        if plain or (self._differs and self._own is None):
            work: dist.Work | None = all_gather_single(output_tensor, input_tensor, group=group)
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


class SecondCopyGather(StepGather):
    """All-gather that keeps a piece of what a forward gathered, in 8 bits, for the backward.

    ``_plain`` gathers before a forward; without one, as in a first backward, also before that.
    fully_shard sees no second copy: it would keep one in the weights' own format.
    """

    def __init__(
        self,
        value: QuantizedCommunication,
        plain: AllGather,
        unit: FSDPModule,
        ranks: dist.ProcessGroup,
        kernels: Dispatcher,
    ) -> None:
        self._plain = plain
        (self._unit,) = parameter_groups(unit)
        self._ranks = ranks
        self._kernels = kernels
        self._form = BlockFormat(bits=8, block=value.second_block)
        self._message: Tensor | None = None

    def forget(self) -> None:
        """Drop the copy: weights have changed."""
        self._message = None
        if isinstance(self._plain, StepGather):
            self._plain.forget()

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The gather's output."""
        return self._plain.allocate(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Gather before a forward and keep a piece, or gather the pieces before a backward."""
        if self._message is not None and in_backward(self._unit):
            self._gather_pieces(output_tensor, self._message)
            return None
        self._plain(output_tensor, input_tensor, group)
        rows = output_tensor.view(self._ranks.size(), -1)
        own = rows[self._ranks.rank()]
        if not own.is_floating_point():
            self._message = own.clone()
            return None
        self._message = join(blocks.quantize(self._kernels, own[None], self._form))[0]
        return None

    def _gather_pieces(self, whole: Tensor, message: Tensor) -> None:
        ranks = self._ranks.size()
        if not whole.is_floating_point():
            all_gather_single(whole, message, group=self._ranks)
            return
        rows = whole.view(ranks, -1)
        received = message.new_empty(ranks, message.numel())
        all_gather_single(received.view(-1), message, group=self._ranks)
        parts, width = part(received, self._form, rows.shape[-1]), rows.shape[-1]
        rows.copy_(blocks.dequantize(self._kernels, parts, self._form, width, whole.dtype))


class QuantizedReduction(DefaultAllocMixin, ReduceScatter):
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
                ranks = gathered_ranks(strategy).size
                gather = QuantizedGather(value, ranks, context.kernels)
                send_weights(unit, gather)
                self._gathers.append(gather)
            if value.second_copy != "unchanged":
                _keep_second_copy(context, value, unit, strategy)
            if value.gradients != "unchanged":
                hops = hop_groups(strategy, value)
                reduction = QuantizedReduction(value, hops, context, layer)
                send_gradients(unit, reduction)
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


def _keep_second_copy(
    context: TechniqueContext,
    value: QuantizedCommunication,
    unit: FSDPModule,
    strategy: LayerStrategy,
) -> None:
    drop_secondary_shards(unit)
    pieces = inner_group(strategy, strategy.shard.secondary_parameters)
    ranks = context.process_groups.group(pieces)
    (group,) = parameter_groups(unit)
    plain: AllGather = group._all_gather_comm
    unit.set_custom_all_gather(SecondCopyGather(value, plain, unit, ranks, context.kernels))


TECHNIQUE = TechniqueRun(name=NAME, start=QuantizedCommunicationHooks)
