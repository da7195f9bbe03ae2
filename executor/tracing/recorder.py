"""Record of a rank's kernels, collectives and live bytes, by dispatch.

A :class:`Recorder` sees every operation below autograd, except free views, and uses the cost
model's names, so that recorded and lowered steps compare line by line. It also follows storage that
fully_shard frees and refills in place.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ...spec.report.trace_marks import BETWEEN_STAGES
from ...spec.report.work_items import (
    ATTENTIONS,
    FLASH,
    FLASH_BAND,
    FLASH_FULL,
    GROUPED,
    GROUPED_PRODUCT,
    HOST_PREFIX,
    MATMULS,
    TO_DEVICE,
    TO_HOST,
    TOUCHES_ROWS,
    WEIGHT_GRADIENT,
    Collective,
    Kernel,
    kernel_name,
)
from ..host.tier import is_allocating, on_host

AFTER_COLLECTIVE_S = 0.001


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations inside its context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[Kernel] = []
        self.collectives: list[Collective] = []
        self._unfinished: set[tuple[int, int]] = set()
        self._awaited: set[tuple[int, int]] = set()
        self._ring_bytes = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep compiled layers compiled while recording."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and note it."""
        out = func(*args, **(kwargs or {}))
        namespace, _, rest = str(func).partition(".")
        name = rest.split(".")[0]
        if namespace == "c10d":
            self._note_collective(name, args)
        elif namespace == "fsdp":
            self._note_copy(args, kwargs or {}, out)
        elif func.is_view or self._finishes_collective(name, args):
            pass
        elif namespace in ("aten", "prims", "shardwright"):
            self._note_kernel(func, name, args, kwargs or {}, out)
        return out

    def _note_collective(self, name: str, args: Any) -> None:
        collective = collective_of(name, args)
        if collective is not None and collective.kind == "send_recv":
            self._note_ring(name, collective)
        elif collective is not None:
            self.collectives.append(collective)
            if collective.kind == "reduce_scatter":
                places = {_place(t) for t in _tensors(args[0]) if t.device.type == "cpu"}
                if not any(value is False for value in args):  # async: finished when waited for
                    self._awaited |= places
                else:
                    self._unfinished = places

    def _note_ring(self, name: str, item: Collective) -> None:
        if name == "send":
            self._ring_bytes += item.payload_bytes
        elif self._ring_bytes:
            self.collectives.append(item._replace(payload_bytes=self._ring_bytes))
            self._ring_bytes = 0

    def _finishes_collective(self, name: str, args: Any) -> bool:
        outputs, self._unfinished = self._unfinished, set()
        if name != "copy_":
            return False
        place = _place(args[0])
        if place in self._awaited:
            self._awaited.remove(place)
            return True
        return place in outputs

    def _note_copy(self, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        source = _unique(args[0])
        target = _unique(kwargs["out"] if "out" in kwargs else out[0])
        traffic = sum(_bytes(t) for t in [*source, *target])
        dtype = _DTYPE_NAMES.get(target[0].dtype, "other")
        self.kernels.append(Kernel("copy", (_largest([source, target]),), dtype, 0, traffic))

    def _note_kernel(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        read = _unique([args[name in _OVERWRITES :], {**kwargs, "out": None}])
        written = _unique([out, _mutated(func, name, args, kwargs)])
        outs = out if isinstance(out, (list, tuple)) else [out]
        operands = [*args, *kwargs.values(), *outs]
        op = kernel_name(name)
        if op == GROUPED_PRODUCT and all(x.dim() < 3 for x in read):
            op = WEIGHT_GRADIENT  # one operation of the library does both
        if op in ATTENTIONS and _argument(func, "is_causal", args, kwargs) is False:
            op = op.replace(FLASH, FLASH_FULL)
        op = _placed(op, read, written)
        if op in TOUCHES_ROWS:
            read = written = operands = [_touched(op, read, written)]
        traffic = sum(_bytes(t) for t in read) + sum(_bytes(t) for t in written)
        shape, flops = _product_work(op, read) or ((_largest(operands),), 0)
        dtype = _DTYPE_NAMES.get((written or read)[0].dtype, "other") if written or read else ""
        self.kernels.append(Kernel(op, shape, dtype, flops, traffic))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _placed(op: str, read: list[Tensor], written: list[Tensor]) -> str:
    from_host, to_host = any(map(on_host, read)), any(map(on_host, written))
    if op == "copy" and from_host != to_host:
        return TO_HOST if to_host else TO_DEVICE
    return HOST_PREFIX + op if to_host else op


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())


def _unique(value: Any) -> list[Tensor]:
    return list({id(t): t for t in _tensors(value)}.values())


def _touched(op: str, read: list[Tensor], written: list[Tensor]) -> Tensor:
    return read[-1] if op == "scatter_add" else written[0]


def _argument(func: Any, wanted: str, args: Any, kwargs: dict[str, Any]) -> Any:
    for index, argument in enumerate(func._schema.arguments):
        if argument.name == wanted:
            value = args[index] if index < len(args) else kwargs.get(wanted)
            return argument.default_value if value is None else value
    return None


def _mutated(func: Any, name: str, args: Any, kwargs: Any) -> list[Any]:
    values = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if (name, argument.name) in _UNTOUCHED:
            continue
        values.append(args[index] if index < len(args) else kwargs.get(argument.name))
    return values


_OVERWRITES = {"copy_", "_foreach_copy_"}
"""Operations whose first argument is written without being read."""

_UNTOUCHED = {("_fused_adamw_", "grads")}
"""Arguments declared writable that the operation leaves alone (no loss scaling here)."""

_DTYPE_NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "int64",
    torch.bool: "bool",
    torch.int8: "int8",
    torch.uint8: "int8",
}


def _bytes(tensor: Tensor) -> int:
    if not tensor.numel():
        return 0
    sizes = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.element_size()


def _largest(operands: list[Any]) -> int:
    return max((sum(t.numel() for t in _tensors(x)) for x in operands), default=0)


def _product_work(op: str, inputs: list[Tensor]) -> tuple[tuple[int, ...], int] | None:
    if op in GROUPED:
        return _grouped_work(op, inputs)
    if op in MATMULS:
        left, right = [t for t in inputs if t.dim() == inputs[-1].dim()][-2:]
        shape = (*left.shape, right.shape[-1])
        return shape, 2 * math.prod(shape)
    return _flash_work(op, inputs) if op in ATTENTIONS else None


def _grouped_work(op: str, inputs: list[Tensor]) -> tuple[tuple[int, ...], int]:
    """Sizes and FLOPs of a grouped product, by its last operand's offsets.

    Rows (rows, k) times weights (groups, k, n), or for a weight gradient (n, rows) times (rows, k).
    """
    left, right, offsets = inputs[-3:]
    rows = right.shape[0] if op == WEIGHT_GRADIENT else left.shape[0]
    sides = (*left.shape, right.shape[-1])
    return (min(offsets.shape[0], rows), *sides), 2 * math.prod(sides)


def _flash_work(op: str, inputs: list[Tensor]) -> tuple[tuple[int, ...], int]:
    backward = op.endswith("backward")
    query, key = inputs[1:3] if backward else inputs[:2]
    batch, heads, seq, dim = query.shape
    keys, width = key.shape[2], inputs[2 + backward].shape[-1]
    widths = 3 * dim + 2 * width if backward else dim + width
    shape: tuple[int, ...] = (batch, heads, key.shape[1], seq, dim)
    if op.startswith(FLASH_BAND):
        shape = (batch, heads, key.shape[1], seq, keys, dim, width, keys)
    elif op.startswith(FLASH_FULL):
        shape = (batch, heads, key.shape[1], seq, keys, dim, dim)
    return shape, 2 * batch * heads * seq * keys * widths


_KINDS: dict[str, Any] = {
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "all_gather_single_": "all_gather",
    "reduce_scatter_single_": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "all_to_all_single_": "all_to_all",
    "send": "send",
    "recv_": "recv",
    "ring": "send_recv",
}


def collective_of(name: str, args: Any) -> Collective | None:
    """Collective of a c10d operation; None for bookkeeping such as barriers."""
    kind = _KINDS.get(name)
    if kind is None:
        return None
    largest = max(_tensors(args), key=lambda t: t.numel() * t.element_size())
    if kind == "all_to_all":
        largest = args[1]  # what is sent, however much comes
    payload = largest.numel() * largest.element_size()
    box = next(a for a in args if isinstance(a, torch.ScriptObject))
    group = torch.distributed.ProcessGroup.unbox(box)
    ranks = torch.distributed.get_process_group_ranks(group)
    if kind in ("send", "recv") and group.group_desc == BETWEEN_STAGES:
        peer = next(a for a in args if isinstance(a, int))
        distance = abs(ranks[peer] - torch.distributed.get_rank())
        return Collective(kind, 2, distance, payload, _DTYPE_NAMES[largest.dtype])
    if kind in ("send", "recv"):
        kind = _KINDS["ring"]
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return Collective(kind, len(ranks), stride, payload, _DTYPE_NAMES.get(largest.dtype, "fp64"))


class MemoryChange(NamedTuple):
    """A storage's allocation, growth or release, its cause, and live bytes.

    ``storage`` identifies it among live ones; ``time_ns`` is since 1970.
    """

    change_bytes: int
    cause: str
    live_bytes: int
    storage: int
    time_ns: int


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows bytes of every storage made or grown while active.

    ``resident`` storages (parameters, optimizer state) count from the start. A communication
    library's buffers do not: gloo's reduce-scatter works on a copy of its input, visible only
    through views. Its threads release buffers late, so each collective is followed by a pause,
    which makes peaks independent of scheduling; ``pauses`` is false without such threads. Host
    memory beside a device counts in ``host_bytes``.
    """

    def __init__(self, resident: list[Tensor], pauses: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pauses = pauses
        self.live_bytes = 0
        self.peak_bytes = 0
        self.host_bytes = 0
        self.host_peak_bytes = 0
        self.history: list[MemoryChange] = []
        self._sizes: dict[int, int] = {}
        self._hosted: dict[int, int] = {}
        self._collective_before = False
        for tensor in resident:
            self._follow(tensor, "resident")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and follow its storages."""
        if self._collective_before and self._pauses:
            time.sleep(AFTER_COLLECTIVE_S)
        self._collective_before = str(func).startswith("c10d.")
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            for tensor in _tensors(out):
                self._follow(tensor, str(func))
        return out

    def _follow(self, tensor: Tensor, cause: str) -> None:
        if is_allocating() or on_host(tensor):
            self._follow_host(tensor.untyped_storage())
        elif tensor.device.type != "meta":
            self._follow_storage(tensor.untyped_storage(), cause)

    def _follow_host(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._hosted:
            self._hosted[key] = storage.nbytes()
            self.host_bytes += storage.nbytes()
            self.host_peak_bytes = max(self.host_peak_bytes, self.host_bytes)
            weakref.finalize(storage, self._forget_host, key)

    def _forget_host(self, key: int) -> None:
        self.host_bytes -= self._hosted.pop(key)

    def _follow_storage(self, storage: torch.UntypedStorage, cause: str) -> None:
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = 0
        self._resize(key, storage.nbytes(), cause)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._resize(key, 0, "free")
        del self._sizes[key]

    def _resize(self, key: int, size_bytes: int, cause: str) -> None:
        change = size_bytes - self._sizes[key]
        self._sizes[key] = size_bytes
        self.live_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if change:
            self.history.append(MemoryChange(change, cause, self.live_bytes, key, time.time_ns()))

    @contextmanager
    def following_resizes(self) -> Iterator[None]:
        """Also follow storages freed and refilled in place."""
        original = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = original(storage, size)
            if storage._cdata in self._sizes:
                self._resize(storage._cdata, storage.nbytes(), "resize")
            else:  # also one whose tensors have no contents, which says that it is on "meta"
                self._follow_storage(storage, "resize")
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]
