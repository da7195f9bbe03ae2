"""Values of a pickle, read as a list of operations: nothing is imported or called.

A pickle is a program for a small machine (PEP 3154; Python's ``pickletools``). This one has only
the operations that build plain values, and gives names back as names from a closed list.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_CHECKPOINT = "torch.distributed.checkpoint"
DTYPES = (
    *(f"float{bits}" for bits in (16, 32, 64)),
    *(f"int{bits}" for bits in (8, 16, 32, 64)),
    *("bfloat16", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"),
)
STORAGES = {
    "torch.FloatStorage": "float32",
    "torch.DoubleStorage": "float64",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
"""Types of the numbers in torch's storages, by name."""
SIZE, LAYOUT, PATH = "torch.Size", "torch.serialization._get_layout", "pathlib.PosixPath"
REBUILD = "torch._utils._rebuild_tensor_v2"
ORDERED, NAMESPACE = "collections.OrderedDict", "argparse.Namespace"
BYTES = "io.BytesIO"
RECORDS = (
    *(
        f"{_CHECKPOINT}.metadata.{name}"
        for name in (
            *("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties"),
            *("ChunkStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
        )
    ),
    f"{_CHECKPOINT}.filesystem._StorageInfo",
    *(
        f"{_CHECKPOINT}.planner.{name}"
        for name in ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData")
    ),
)
NAMES = frozenset(
    {SIZE, LAYOUT, PATH, REBUILD, ORDERED, NAMESPACE, BYTES, *RECORDS, *STORAGES}
    | {f"torch.{name}" for name in DTYPES}
)
"""All that a checkpoint may name."""
MAX_DIGITS_BYTES = 16


class PickleError(ValueError):
    """A pickle that is torn, or asks for more than values."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name of the closed list."""

    text: str


@dataclass(eq=False, slots=True)
class Record:
    """An object that a pickle describes: its class, arguments and state, nothing called."""

    name: str
    args: tuple[Any, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)


class TornPickleError(PickleError):
    """Bytes that end early, or are no pickle at all."""


@dataclass(frozen=True, slots=True)
class Persistent:
    """A reference to a storage beside the pickle."""

    value: Any


PROTOCOL = b"\x80"
"""First byte of every pickle since protocol 2."""
_MARK = object()


class _Machine:
    """Stack and memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def to_mark(self) -> list[Any]:
        """Values above the last mark, which goes with them."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise PickleError("it has no mark")

    def take(self, count: int) -> tuple[Any, ...]:
        """The last values, popped."""
        values = self.stack[len(self.stack) - count :]
        if len(values) < count or any(value is _MARK for value in values):
            raise PickleError("its stack is empty")
        del self.stack[len(self.stack) - count :]
        return tuple(values)

    def name(self, module: object, attribute: object) -> None:
        """Push a name of the list."""
        text = f"{module}.{attribute}"
        if text not in NAMES:
            raise PickleError(f"it names {text[:80]}, which no checkpoint needs")
        self.stack.append(Name(text))

    def reduce(self, args: object, called: object) -> None:
        """Push what a call would give, where it is a plain value, or a record of it."""
        if not isinstance(called, Name) or not isinstance(args, tuple):
            raise PickleError("it calls what is no name")
        if called.text == SIZE:
            self.stack.append(integers(args[0] if args else ()))
        elif called.text in (ORDERED, NAMESPACE) and not args:
            self.stack.append({} if called.text == ORDERED else Record(called.text))
        else:
            self.stack.append(Record(called.text, args))

    def build(self) -> None:
        """Give the record on top its state."""
        target, state = self.take(2)
        if isinstance(state, tuple) and len(state) == 2 and state[0] is None:
            state = state[1]
        if not isinstance(target, Record) or not isinstance(state, dict):
            if isinstance(target, Record) and isinstance(state, tuple):
                target.args = (*target.args, *state)
                self.stack.append(target)
                return
            raise PickleError("it sets the state of what is no record")
        target.state.update(state)
        self.stack.append(target)

    def set_items(self, pairs: list[Any]) -> None:
        """Put pairs into the dictionary on top."""
        target = self.top()
        if not isinstance(target, dict) or len(pairs) % 2:
            raise PickleError("it sets items of what is no dictionary")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not _is_key(key):
                raise PickleError(f"it has a key of type {type(key).__name__}")
            target[key] = value

    def append(self, values: list[Any]) -> None:
        """Append to the list on top."""
        target = self.top()
        if not isinstance(target, list):
            raise PickleError("it appends to what is no list")
        target.extend(values)

    def top(self) -> Any:
        """The last value."""
        return self.stack[self.keep(1)]

    def keep(self, count: int) -> int:
        """Index of the last value, of at least ``count``."""
        if len(self.stack) < count:
            raise PickleError("its stack is empty")
        return len(self.stack) - 1

    def recall(self, key: int) -> None:
        """Push a value of the memo."""
        if key not in self.memo:
            raise PickleError(f"it recalls value {key}, which it did not keep")
        self.stack.append(self.memo[key])


def integers(value: object) -> tuple[int, ...]:
    """A tuple of whole numbers.

    Raises:
        PickleError: anything else.
    """
    if not isinstance(value, (tuple, list)) or not all(type(item) is int for item in value):
        raise PickleError("a shape is no list of whole numbers")
    return tuple(value)


def _is_key(key: object) -> bool:
    if isinstance(key, tuple):
        return all(isinstance(item, (str, int)) for item in key)
    return isinstance(key, (str, int, float, Record, Name)) or key is None


def _dotted(machine: _Machine, argument: str) -> None:
    machine.name(*argument.split(" ", 1))


def _small_long(machine: _Machine, value: int) -> None:
    if value.bit_length() > 8 * MAX_DIGITS_BYTES:
        raise PickleError("it has a number of many digits")
    machine.stack.append(value)


_PUSHES = (
    *("BININT", "BININT1", "BININT2", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE"),
    *("BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
)
_OPERATIONS: Mapping[str, Callable[[_Machine, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, _: None),
    **dict.fromkeys(_PUSHES, lambda machine, value: machine.stack.append(value)),
    "LONG1": _small_long,
    "LONG4": _small_long,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.to_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.stack.append(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.stack.append(machine.take(3)),
    "MEMOIZE": lambda machine, _: machine.memo.__setitem__(len(machine.memo), machine.top()),
    "BINPUT": lambda machine, key: machine.memo.__setitem__(key, machine.top()),
    "LONG_BINPUT": lambda machine, key: machine.memo.__setitem__(key, machine.top()),
    "BINGET": lambda machine, key: machine.recall(key),
    "LONG_BINGET": lambda machine, key: machine.recall(key),
    "GLOBAL": _dotted,
    "STACK_GLOBAL": lambda machine, _: machine.name(*machine.take(2)),
    "NEWOBJ": lambda machine, _: machine.reduce(*reversed(machine.take(2))),
    "REDUCE": lambda machine, _: machine.reduce(*reversed(machine.take(2))),
    "BUILD": lambda machine, _: machine.build(),
    "SETITEM": lambda machine, _: machine.set_items([*machine.take(2)]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.to_mark()),
    "APPEND": lambda machine, _: machine.append([*machine.take(1)]),
    "APPENDS": lambda machine, _: machine.append(machine.to_mark()),
    "BINPERSID": lambda machine, _: machine.stack.append(Persistent(machine.take(1)[0])),
}


def pickle_values(data: bytes) -> Any:
    """The value of a pickle.

    Raises:
        TornPickleError: it ends early, or is no pickle.
        PickleError: an operation or a name that no checkpoint needs.
    """
    if not data.startswith(PROTOCOL):
        raise TornPickleError("it is no pickle of torch's: other bytes begin it")
    machine = _Machine()
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name == "STOP":
                (value,) = machine.take(1)
                return value
            run = _OPERATIONS.get(operation.name)
            if run is None:
                raise PickleError(f"it has the operation {operation.name}, which none needs")
            run(machine, argument)
    except PickleError:
        raise
    except (ValueError, struct.error, IndexError, KeyError, OverflowError) as error:
        raise TornPickleError(f"it is torn ({' '.join(str(error).split())[:80]})") from None
    raise TornPickleError("it is torn: it has no end")
