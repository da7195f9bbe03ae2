"""The run of activation_swap: what a block saves goes to the host, or is made again.

The forward runs whole. At its end saved tensors, weights and tables aside, are copied to the host:
the block's input, and what core attention saves of its own, whole; of all others the rows of the
first tokens. Before the block's backward they come back, and the block runs once more on the other
tokens, with the stored output in place of core attention, until it has saved as much as before: its
rows complete the tensors. The graph is that of the forward.

Host buffers are used again from step to step. On a CUDA device copies have streams of their own:
down beside the block after, up beside the backward of the block behind. On cores they are in line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ...kernels.attention.rope import cached_tables
from ...kernels.marks import mark
from ...spec.errors import InputError
from ...spec.parallel.sequence_partition import later_tokens
from ...spec.report.trace_marks import technique_mark
from ...spec.schedules.passes import Pass
from ...spec.strategy import LayerStrategy
from ...spec.techniques.activation_swap import NAME, swap_of, swapped_tokens
from ..host.buffers import HostBuffers
from ..host.saved_storages import SavedStorages, SavedView, address, addresses, raw_bytes
from ..models.block import Block
from ..models.layer import LayerModule
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun

if TYPE_CHECKING:
    from ..stage.options import BuildOptions

BUFFERS = 2
"""Blocks whose activations may wait for a copy while another runs."""


class _EnoughError(Exception):
    """The block that runs again has saved all that is missing."""


class Swaps:
    """What swapped blocks of a process share on a device: buffers, streams, who ran last."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.buffers = HostBuffers(device)
        self.last: Frame | None = None
        self._copied: list[torch.cuda.Event] = []
        on_cores = device.type == "cpu"
        self.down, self.up = (
            None if on_cores else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )

    def wait_for_buffer(self) -> None:
        """Let a block begin when the activations of the second before it have been copied."""
        if len(self._copied) >= BUFFERS:
            torch.cuda.current_stream(self.device).wait_event(self._copied.pop(0))

    @contextmanager
    def beside(self, stream: torch.cuda.Stream | None) -> Iterator[None]:
        """Put copies on a stream, after the work that is queued now."""
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(self.device))
        on: AbstractContextManager[object] = (
            nullcontext() if stream is None else torch.cuda.stream(stream)
        )
        with torch.no_grad(), on:
            yield

    def note_copied(self, sources: list[Tensor]) -> None:
        """Keep sources until the copies to the host that were issued are done."""
        if self.down is not None:
            for source in sources:
                source.record_stream(self.down)
            self._copied.append(self.down.record_event())


_SWAPS: dict[torch.device, Swaps] = {}


def swap_layer(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    """Swap a layer's activations if its strategy says so.

    Raises:
        InputError: a layer without a block, or attention in several operations.
    """
    swap = swap_of(strategy)
    if swap is None:
        return
    if not isinstance(module, Block):
        raise InputError(NAME, type(module).__name__, "blocks only", "none")
    if not options.flash:
        raise InputError(NAME, "unfused attention", "flash attention", "none")
    swaps = _SWAPS.setdefault(options.device, Swaps(options.device))
    module.body = SwappedBlock(partial(swapped_tokens, swap), swaps)


class SwappedBlock:
    """A block's forward whose saved tensors leave the device.

    Args:
        swapped_of: tokens whose activations are copied, of so many on the rank.
        swaps: shared with other blocks.
    """

    def __init__(self, swapped_of: Callable[[int], int], swaps: Swaps) -> None:
        self._swapped_of, self._swaps = swapped_of, swaps

    def __call__(self, block: Block, x: Tensor) -> Tensor:
        """Run one block on activations (seq, batch, hidden)."""
        if not torch.is_grad_enabled():
            out: Tensor = block._run(x)
            return out
        self._swaps.wait_for_buffer()
        frame = Frame(block, self._swaps, x, self._swapped_of(x.shape[0]))
        with saved_tensors_hooks(frame.pack, unpacked), frame.core_replaced(frame.run_core):
            out = block._run(x)
        with mark(technique_mark(NAME)):
            frame.leave()
        return out


Handle = Tensor | tuple["Frame", SavedView]


def unpacked(handle: Handle) -> Tensor:
    """The tensor that was saved."""
    if isinstance(handle, Tensor):
        return handle
    frame, view = handle
    frame.come_back()
    return frame.saved.read(view)


class Frame:
    """What a block saves in a micro-batch, on its way to the host and back.

    Args:
        block: it.
        swaps: shared with other blocks.
        x: the block's input.
        swapped: first tokens of the rank whose activations are copied.
    """

    def __init__(self, block: Block, swaps: Swaps, x: Tensor, swapped: int) -> None:
        self._block, self._swaps = block, swaps
        self._swapped, self._tokens = swapped, x.shape[0]
        self.saved = SavedStorages()
        self._weights = addresses(block.parameters())
        self._core = block.core
        self._in_core = False
        self._core_inputs: tuple[int, ...] = ()
        self._order: list[int] = []
        self._input = self.saved.add(x)
        self._attended: SavedView | None = None
        self._whole = {self._input.number}
        self._needs_gradient = x.requires_grad
        self._host: Tensor | None = None
        self._arrived: torch.cuda.Event | None = None
        self._is_issued = self._is_back = False
        self._before, swaps.last = swaps.last, self

    def pack(self, tensor: Tensor) -> Handle:
        """Note a tensor that the forward saves."""
        if _stays(tensor, self._weights):
            return tensor
        view = self.saved.add(tensor)
        if not self._in_core:
            self._order.append(view.number)
        elif view.number not in self._core_inputs:
            self._whole.add(view.number)
        return self, view

    @contextmanager
    def core_replaced(self, core: Callable[..., Tensor]) -> Iterator[None]:
        """Give the block another core attention inside."""
        self._block.core = core
        try:
            yield
        finally:
            self._block.core = self._core

    def run_core(self, *given: Any, **named: Any) -> Tensor:
        """Core attention, known by what it saves beside its inputs."""
        views = [self.saved.add(tensor) for tensor in _heads(given)]
        self._core_inputs = tuple(view.number for view in views)
        self._in_core = True
        attended = self._core(*given, **named)
        self._in_core = False
        for view in views:  # they are noted, not read
            self.saved.unread(view)
        self._attended = self.saved.add(attended)
        self._whole.add(self._attended.number)
        return attended

    def leave(self) -> None:
        """Copy to the host what goes, and let go of all."""
        sources = [
            part
            for number, storage in enumerate(self.saved.storages)
            if storage.data is not None and (part := self._part(number, storage.data)).numel()
        ]
        with self._swaps.beside(self._swaps.down):
            self._host = self._swaps.buffers.take(sum(source.numel() for source in sources))
            torch._foreach_copy_(_places(self._host, sources), sources, non_blocking=True)
        self._swaps.note_copied(sources)
        self.saved.let_go()

    def _part(self, number: int, data: Tensor, later: bool = False) -> Tensor:
        """Rows of a storage that are copied, or the ``later`` ones, which are made again."""
        if number in self._whole or self._swapped == self._tokens:
            return data[:0] if later else data
        storage = self.saved.storages[number]
        parts = 1 if storage.is_flat else max(1, storage.rows // self._tokens)
        rows = data.view(parts, self._tokens, -1)
        return rows[:, self._swapped :] if later else rows[:, : self._swapped]

    def issue(self) -> None:
        """Begin the copies back to the device."""
        if self._is_issued or self._host is None:
            return
        self._is_issued = True
        again = self._swapped == 0
        with self._swaps.beside(self._swaps.up):
            targets = []
            for number, storage in enumerate(self.saved.storages):
                if not storage.views or (again and number not in self._whole):
                    continue
                data = torch.empty(storage.size_bytes, dtype=torch.int8, device=self._swaps.device)
                storage.data = data
                targets.append(self._part(number, data))
            sources = _places(self._host, targets)
            torch._foreach_copy_(targets, sources, non_blocking=True)
        if self._swaps.up is not None:
            self._arrived = self._swaps.up.record_event()
        self._swaps.buffers.give_back(self._host, self._arrived)
        self._host = None

    def come_back(self) -> None:
        """Have everything that was saved on the device again."""
        if self._is_back:
            return
        self._is_back = True
        with mark(technique_mark(NAME)):
            self.issue()
            if self._arrived is not None:
                stream = torch.cuda.current_stream(self._swaps.device)
                stream.wait_event(self._arrived)
                for storage in self.saved.storages:
                    if storage.data is not None:
                        storage.data.record_stream(stream)
            if self._swapped < self._tokens:
                self._make_again()
            self._let_go_of_ends()
            before, self._before = self._before, None
            if before is not None and self._swaps.up is not None:
                before.issue()

    def _let_go_of_ends(self) -> None:
        for view in (self._input, self._attended):
            if view is not None:
                self.saved.read(view)

    def _make_again(self) -> None:
        """Run the block on the tokens that were not copied, and take what it saves."""
        x = self._later(self._input).requires_grad_(self._needs_gradient)
        order, made = iter(self._order), list[tuple[Tensor, Tensor]]()
        left, weights = len(self._order), addresses(self._block.parameters())

        def take(tensor: Tensor) -> Tensor | None:
            nonlocal left
            if _stays(tensor, weights):
                return tensor
            self._fill(next(order), tensor, made)
            left -= 1
            if not left:
                raise _EnoughError
            return None

        def stored_core(*given: Any, **named: Any) -> Tensor:
            for number, tensor in zip(self._core_inputs, _heads(given), strict=True):
                self._fill(number, tensor, made)
            if self._attended is None:
                raise RuntimeError("a block without core attention")
            return self._later(self._attended).requires_grad_()

        block, sequence = self._block, self._block.sequence
        parts = block.tp.size if block.tp.sequence_parallel else 1
        read = later_tokens(sequence.tokens.read, parts, self._swapped)
        block.sequence = replace(sequence, tokens=replace(sequence.tokens, read=read))
        try:
            with (
                torch.enable_grad(),
                saved_tensors_hooks(take, _unread),
                self.core_replaced(stored_core),
            ):
                block._run(x)
        except _EnoughError:
            pass
        finally:
            block.sequence = sequence
        if made:
            targets, sources = zip(*made, strict=True)
            torch._foreach_copy_(list(targets), list(sources))

    def _later(self, view: SavedView) -> Tensor:
        """The rows of a tensor that are made again, of each sequence shard."""
        data = self.saved.storages[view.number].data
        if data is None:
            raise RuntimeError("the block's ends are not on the device")
        tensor = view.of(data)
        shards = tensor.view(-1, self._tokens, *tensor.shape[1:])
        return shards[:, self._swapped :].flatten(0, 1).detach()

    def _fill(self, number: int, tensor: Tensor, made: list[tuple[Tensor, Tensor]]) -> None:
        if number in self._whole:
            return
        storage = self.saved.storages[number]
        if storage.data is None:
            if self._swapped == 0 and storage.views:
                storage.data = raw_bytes(tensor)
            return
        if self._swapped == 0:
            return
        target = self._part(number, storage.data, later=True)
        if not any(target.data_ptr() == place.data_ptr() for place, _ in made):
            made.append((target, raw_bytes(tensor).view(target.shape)))


def _stays(tensor: Tensor, weights: frozenset[int]) -> bool:
    """True if a saved tensor is empty, a weight, or a table."""
    place = address(tensor)
    return not tensor.numel() or place in weights or place in addresses(cached_tables())


def _heads(given: tuple[Any, ...]) -> list[Tensor]:
    return [value for value in given if isinstance(value, Tensor)]


def _unread(packed: object) -> Tensor:
    raise RuntimeError("a block that ran again has no backward")


def _places(host: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """Pieces of a host buffer, in the shapes of parts."""
    pieces = host.split([part.numel() for part in parts])  # type: ignore[no-untyped-call]
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


class ActivationSwapHooks(TechniqueHooks):
    """Tells passes apart, whose blocks follow each other."""

    def __init__(self, context: TechniqueContext) -> None:
        self._swaps = _SWAPS.get(context.device)

    def begin_pass(self, item: Pass) -> None:
        """No block of this pass has run yet."""
        if self._swaps is not None and item.forward:
            self._swaps.last = None

    def close(self) -> None:
        """Free the host's buffers."""
        _SWAPS.clear()


TECHNIQUE = TechniqueRun(name=NAME, prepare=swap_layer, start=ActivationSwapHooks)
