"""Loading where every byte is read once, by one rank, digested, and passed on.

ByteCheckpoint (NSDI 2025, section 4.2): ranks that want the same piece leave reading it to one of
them. Here every stored slice has one reader, a rank that wants it where there is one, chosen so
that all read as much; it digests the slice in the same pass and sends each rank its part of it by
an all-to-all of the world, while a thread reads the next slices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .integrity import Damage, header_damages, reading_fault, size_damage
from .manifest import Manifest, StoredSlice
from .slice_file import PIECE_BYTES
from .storage.digests import Digest
from .storage.far_path import READ_BYTES, FarPath
from .storage.paths import CheckpointPath
from .storage.regular_file import NotRegularFileError, open_regular
from .tensor_slices import TensorSlice, dtype_of

ROUND_BYTES = 32 << 20
"""Read by a rank before parts are passed on; more where one slice is larger."""
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""
Wanted = Sequence[tuple[str, TensorSlice]]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A box of a stored slice that a rank wants, as the ``target``-th box of its own."""

    rank: int
    target: int
    box: Box


class SharedReading:
    """One rank's share in loading a checkpoint. Collective.

    Args:
        wanted: slices to fill, by saved name; a name may occur twice.
        device: of the world's collectives.
    """

    def __init__(
        self, folder: CheckpointPath, manifest: Manifest, wanted: Wanted, device: torch.device
    ) -> None:
        self.folder, self.manifest, self.device = folder, manifest, device
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.bytes_read = 0
        self._targets = [(name, box) for name, part in wanted for box in part.contiguous_slices()]
        rows = [[name, [*box.offsets], [*box.tensor.shape]] for name, box in self._targets]
        self._wanted: list[list[tuple[str, Box]]] = [
            [(name, (tuple(offsets), tuple(sizes))) for name, offsets, sizes in held]
            for held in gather_json(rows, device)
        ]
        self._damages: list[Damage] = []
        self._known: dict[tuple[str, tuple[int, ...]], list[Transfer]] = {}

    def load(self) -> list[Damage]:
        """Fill the slices; return what this rank found damaged.

        The slices are of no use if any rank found anything.
        """
        PROGRESS.mark(f"loading {self.folder.name}")
        for name in sorted(self.manifest.files)[self.rank :: self.ranks]:
            self._damages += header_damages(self.folder, self.manifest, name)
        rounds = self._rounds
        with ThreadPoolExecutor(1) as pool:
            coming = [pool.submit(self._read, by_rank[self.rank]) for by_rank in rounds[:1]]
            for number, by_rank in enumerate(rounds):
                held = self._awaited(coming.pop())
                for later in rounds[number + 1 : number + 2]:
                    coming.append(pool.submit(self._read, later[self.rank]))
                self._pass_on(by_rank, held)
        return self._damages

    def _awaited(self, coming: Future[list[Tensor]]) -> list[Tensor]:
        while True:
            try:
                return coming.result(timeout=0.5)
            except TimeoutError:
                if coming.done():
                    raise
                PROGRESS.tick()

    @cached_property
    def _rounds(self) -> list[list[list[tuple[str, StoredSlice]]]]:
        """Slices by round and rank, the same on every rank."""
        rows = [(name, part) for name, t in self.manifest.tensors.items() for part in t.parts]
        wanting: dict[tuple[str, tuple[int, ...]], list[int]] = {
            (name, part.offsets): sorted({t.rank for t in self._transfers(name, part)})
            for name, part in rows
        }
        load, mine = [0] * self.ranks, [list[tuple[str, StoredSlice]]() for _ in range(self.ranks)]
        for name, part in sorted(rows, key=lambda row: (-row[1].bytes, row[0], row[1].offsets)):
            ranks = wanting[name, part.offsets] or range(self.ranks)
            reader = min(ranks, key=lambda rank: (load[rank], rank))
            load[reader] += part.bytes
            mine[reader].append((name, part))
        split = [_rounds_of(parts) for parts in mine]
        count = max(map(len, split), default=0)
        return [
            [rounds[number] if number < len(rounds) else [] for rounds in split]
            for number in range(count)
        ]

    @cached_property
    def _boxes(self) -> Mapping[str, list[tuple[int, int, Box]]]:
        """Wanted boxes by tensor: rank, number among its own, box."""
        found: dict[str, list[tuple[int, int, Box]]] = {}
        for rank, held in enumerate(self._wanted):
            for number, (name, box) in enumerate(held):
                found.setdefault(name, []).append((rank, number, box))
        return found

    def _transfers(self, name: str, part: StoredSlice) -> list[Transfer]:
        key = name, part.offsets
        if key not in self._known:
            stored = part.offsets, part.sizes
            shared = [(r, n, _shared(stored, box)) for r, n, box in self._boxes.get(name, ())]
            self._known[key] = [Transfer(r, n, box) for r, n, box in shared if box is not None]
        return self._known[key]

    def _read(self, parts: list[tuple[str, StoredSlice]]) -> list[Tensor]:
        """Numbers of stored slices; damage is kept, and numbers of no use stand for it."""
        values = []
        for name, part in parts:
            dtype = dtype_of(self.manifest.tensors[name].dtype)
            value = self._own_target(name, part)
            if value is None:
                value = torch.empty(part.sizes, dtype=dtype)
            numbers: Any = value.reshape(-1).view(torch.uint8).numpy()
            fault = self._fill(part, memoryview(numbers))
            if fault is not None:
                self._damages.append(Damage(part.file, name, *fault))
            values.append(value)
        return values

    def _own_target(self, name: str, part: StoredSlice) -> Tensor | None:
        """Memory of this rank that a slice goes to as it is; None if there is none."""
        for transfer in self._transfers(name, part):
            if transfer.rank == self.rank and transfer.box == (part.offsets, part.sizes):
                _, box = self._targets[transfer.target]
                target = box.tensor.detach()[_places(transfer.box, box.offsets)]
                if target.device.type == "cpu" and target.is_contiguous():
                    return target
        return None

    def _fill(self, part: StoredSlice, data: memoryview) -> tuple[str, bool] | None:
        """Read a slice; what is wrong with it, and whether it could be read."""
        stored = self.manifest.files[part.file]
        try:
            with open_regular(self.folder / part.file) as file:
                file.seek(part.first_byte)
                digest, count = Digest(part.digest), 0
                limit = READ_BYTES if isinstance(self.folder, FarPath) else PIECE_BYTES
                while count < len(data):
                    piece = data[count : count + limit]
                    size = file.readinto(piece)  # type: ignore[attr-defined]
                    if not size:
                        return size_damage(file.seek(0, 2), stored), True
                    digest.update(piece[:size])
                    count += size
                    self.bytes_read += size
        except (OSError, NotRegularFileError) as error:
            return reading_fault(error)
        if digest.text() != part.digest:
            return "its bytes are not those that were written", True
        return None

    def _pass_on(self, by_rank: list[list[tuple[str, StoredSlice]]], held: list[Tensor]) -> None:
        """Give every rank its boxes of what was read in a round."""
        outgoing: list[list[Tensor]] = [[] for _ in range(self.ranks)]
        for (name, part), value in zip(by_rank[self.rank], held, strict=True):
            for transfer in self._transfers(name, part):
                piece = value[_places(transfer.box, part.offsets)]
                if transfer.rank == self.rank:
                    self._put(transfer, piece)
                else:
                    outgoing[transfer.rank].append(_bytes_of(piece))
        if not self._any_leaves(by_rank):
            return
        incoming = [
            [
                (self.manifest.tensors[name].dtype, transfer)
                for name, part in parts
                for transfer in self._transfers(name, part)
                if transfer.rank == self.rank != reader
            ]
            for reader, parts in enumerate(by_rank)
        ]
        received = self._exchanged(outgoing, [_total(rows) for rows in incoming])
        for rows, data in zip(incoming, received, strict=True):
            first = 0
            for name, transfer in rows:
                dtype = dtype_of(name)
                size = math.prod(transfer.box[1]) * dtype.itemsize
                self._put(transfer, _numbers(data[first : first + size], dtype, transfer.box[1]))
                first += size

    def _any_leaves(self, by_rank: list[list[tuple[str, StoredSlice]]]) -> bool:
        """True if any rank reads for another in a round."""
        return any(
            transfer.rank != reader
            for reader, parts in enumerate(by_rank)
            for name, part in parts
            for transfer in self._transfers(name, part)
        )

    def _exchanged(self, outgoing: list[list[Tensor]], sizes: list[int]) -> list[Tensor]:
        """Bytes from every rank."""
        pieces = [piece for row in outgoing for piece in row]
        sent = torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8)
        target = torch.empty(sum(sizes), dtype=torch.uint8, device=self.device)
        counts = [sum(piece.numel() for piece in row) for row in outgoing]
        dist.all_to_all_single(target, sent.to(self.device), sizes, counts)
        return list(torch.split(target.cpu(), sizes))

    def _put(self, transfer: Transfer, value: Tensor) -> None:
        _, box = self._targets[transfer.target]
        target = box.tensor.detach()[_places(transfer.box, box.offsets)]
        if target.data_ptr() != value.data_ptr():  # else it was read into its place
            target.copy_(value)


def _rounds_of(parts: list[tuple[str, StoredSlice]]) -> list[list[tuple[str, StoredSlice]]]:
    """Slices in the order of their files, cut into rounds."""
    rounds: list[list[tuple[str, StoredSlice]]] = []
    size = ROUND_BYTES
    for name, part in sorted(parts, key=lambda row: (row[1].file, row[1].first_byte)):
        if size + part.bytes > ROUND_BYTES:
            rounds.append([])
            size = 0
        rounds[-1].append((name, part))
        size += part.bytes
    return rounds


def _shared(one: Box, other: Box) -> Box | None:
    rows = zip(*one, *other, strict=True)
    pairs = [(max(a, b), min(a + n, b + m)) for a, n, b, m in rows]
    if any(first >= last for first, last in pairs):
        return None
    return tuple(first for first, _ in pairs), tuple(last - first for first, last in pairs)


def _places(box: Box, offsets: Sequence[int]) -> tuple[slice, ...]:
    """A box's places in a tensor that begins at ``offsets``."""
    rows = zip(*box, offsets, strict=True)
    return tuple(slice(first - begin, first - begin + size) for first, size, begin in rows)


def _bytes_of(value: Tensor) -> Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def _numbers(data: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> Tensor:
    return data.clone().view(dtype).view(tuple(sizes))


def _total(rows: list[tuple[str, Transfer]]) -> int:
    return sum(math.prod(t.box[1]) * dtype_of(name).itemsize for name, t in rows)
