"""Torch's zip archives: their one pickle, and where a storage's bytes lie; loads no torch."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

from ....spec.errors import InputError
from ..storage.paths import CheckpointPath
from ..storage.regular_file import NotRegularFileError, open_regular
from .pickle_values import (
    BYTES,
    REBUILD,
    STORAGES,
    Name,
    Persistent,
    PickleError,
    Record,
    integers,
    pickle_values,
)
from .source import ITEM_BYTES, ByteRange, DamagedFileError

LOCAL_HEADER_BYTES = 30
MAX_PICKLE_BYTES = 64 << 20
_TORN = (
    *(zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError),
    *(struct.error, ValueError, KeyError, TypeError),
)
ALLOWED = "a whole file, as its writer left it"


@dataclass(frozen=True, slots=True)
class StoredStorage:
    """Numbers of a tensor in a file: type, sizes, strides, first byte, bytes."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    place: ByteRange


class _Window(io.RawIOBase):
    """A range of a file, as a file."""

    def __init__(self, file: BinaryIO, first: int, size: int) -> None:
        self._file, self._first, self._size, self._at = file, first, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        self._file.seek(self._first + self._at)
        data = self._file.read(count)
        self._at += len(data)
        return data


class Archive:
    """One archive of torch's: ``data.pkl`` and stored numbers.

    Args:
        folder: of the checkpoint.
        place: the archive's bytes in a file of it.

    Raises:
        InputError: not whole, compressed, or no archive of torch's.
    """

    def __init__(self, folder: CheckpointPath, place: ByteRange) -> None:
        self.path, self._place = folder / place.file, place
        self._file = open_file(self.path)
        try:
            self._zip = zipfile.ZipFile(_Window(self._file, place.first, place.bytes))
            self._entries = {info.filename: info for info in self._zip.infolist()}
            pickles = [name for name in self._entries if name.endswith("/data.pkl")]
        except _TORN as error:
            self._file.close()
            raise _broken(self.path, error) from None
        if len(pickles) != 1:
            self._file.close()
            raise DamagedFileError(str(self.path), "no data.pkl in an archive", ALLOWED)
        self._root = pickles[0].removesuffix("data.pkl")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def value(self) -> Any:
        """The archive's value; its tensors are :class:`StoredStorage`."""
        info = self._entries[f"{self._root}data.pkl"]
        if info.file_size > MAX_PICKLE_BYTES or info.compress_type != zipfile.ZIP_STORED:
            raise InputError(str(self.path), "a large or compressed data.pkl", ALLOWED)
        try:
            return self._resolved(pickle_values(self._zip.read(info)), 0)
        except _TORN as error:
            raise _broken(self.path, error) from None

    def check(self) -> None:
        """Compare all bytes with the archive's own checksums (CRC-32).

        Raises:
            InputError: an entry whose bytes are not those that were written.
        """
        if any(info.compress_type != zipfile.ZIP_STORED for info in self._entries.values()):
            raise InputError(str(self.path), "a compressed entry", ALLOWED)
        try:
            bad = self._zip.testzip()
        except _TORN as error:
            raise _broken(self.path, error) from None
        if bad is not None:
            given = f"{bad} with bytes that are not those that were written"
            raise DamagedFileError(str(self.path), given, ALLOWED)

    def _resolved(self, value: Any, depth: int) -> Any:
        if depth > 32:
            raise PickleError("its values are nested too deeply")
        if isinstance(value, Record):
            if value.name == REBUILD:
                return self._tensor(value)
            if value.name == BYTES:
                return value.args[0] if value.args else b""
            return {key: self._resolved(item, depth + 1) for key, item in value.state.items()}
        if isinstance(value, dict):
            return {key: self._resolved(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._resolved(item, depth + 1) for item in value)
        return value

    def _tensor(self, record: Record) -> StoredStorage:
        reference = record.args[0] if record.args else None
        given = reference.value if isinstance(reference, Persistent) else None
        if len(record.args) < 4 or not isinstance(given, tuple) or len(given) != 5:
            raise PickleError("a tensor has no storage")
        _, kind, key, _, _ = given
        if not isinstance(kind, Name) or kind.text not in STORAGES:
            raise PickleError("a tensor has a storage of no known type")
        dtype, first = STORAGES[kind.text], record.args[1]
        sizes, strides = integers(record.args[2]), integers(record.args[3])
        info = self._entries.get(f"{self._root}data/{key}")
        if info is None or info.compress_type != zipfile.ZIP_STORED or type(first) is not int:
            raise PickleError(f"its storage {str(key)[:20]} is missing or compressed")
        if len(sizes) != len(strides) or min((first, *sizes, *strides)) < 0:
            raise PickleError("a tensor has other strides than sizes")
        item, start = ITEM_BYTES[dtype], first * ITEM_BYTES[dtype]
        rows = zip(sizes, strides, strict=True)
        span = (1 + sum((n - 1) * s for n, s in rows)) * item if all(sizes) else 0
        if start + span > info.file_size or span != math.prod(sizes) * item:
            raise PickleError("a tensor has gaps, or reaches beyond its storage")
        begin = self._place.first + self._data_start(info) + start
        return StoredStorage(dtype, sizes, strides, ByteRange(self._place.file, begin, span))

    def _data_start(self, info: zipfile.ZipInfo) -> int:
        self._file.seek(self._place.first + info.header_offset)
        header = self._file.read(LOCAL_HEADER_BYTES)
        if header[:4] != b"PK\x03\x04" or len(header) < LOCAL_HEADER_BYTES:
            raise PickleError("an entry has no header")
        extra = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = info.header_offset + LOCAL_HEADER_BYTES + extra
        if start + info.file_size > self._place.bytes:
            raise PickleError("an entry reaches beyond its archive")
        return start


def open_file(path: CheckpointPath) -> BinaryIO:
    """A regular file of a checkpoint.

    Raises:
        DamagedFileError: missing.
        InputError: a link, or not readable.
    """
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise DamagedFileError(str(path), "no such file", ALLOWED) from None
    except NotRegularFileError as error:
        raise InputError(str(path), f"what {error}", "a regular file") from None
    except OSError as error:
        raise InputError(str(path), str(error.strerror), "a file that can be read") from None


def _broken(path: CheckpointPath, error: Exception) -> InputError:
    kind = InputError if isinstance(error, PickleError) else DamagedFileError
    return kind(str(path), " ".join(str(error).split())[:160] or "a torn archive", ALLOWED)
