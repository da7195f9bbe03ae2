"""Texts of a file, by format."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from ...spec.errors import InputError
from ..recipes.recipe import TextSource
from .source_files import SourceFile

Texts = Iterator[tuple[str, str]]
"""Name and text of each document."""
ROWS_AT_ONCE = 256
MAX_RECORD_BYTES = 1 << 28
COMPRESSED_AT_ONCE = 1 << 16


def read_texts(file: SourceFile, source: TextSource) -> Texts:
    """Documents of a file.

    Raises:
        InputError: a broken shard, by file and line.
    """
    try:
        yield from READERS[file.format](file, source)
    except (OSError, EOFError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(str(file.path), reason, f"a readable {file.format} file") from None


def _text(file: SourceFile, source: TextSource) -> Texts:
    yield file.name, _decoded(file.path.read_bytes())


def _decoded(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _opened(file: SourceFile) -> IO[bytes]:
    ending = file.path.name.casefold()
    if ending.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(file.path, "rb"))
    if ending.endswith(".zst"):
        return io.BufferedReader(_ZstFile(file), 1 << 20)
    return file.path.open("rb")


class _ZstFile(io.RawIOBase):
    """A decompressed file; one that ends inside a frame is an OSError, not a short file."""

    def __init__(self, file: SourceFile) -> None:
        import zstandard

        super().__init__()
        self._source = file.path.open("rb")
        self._error, self._new = zstandard.ZstdError, zstandard.ZstdDecompressor
        self._frame: Any = None
        self._rest = b""

    def readable(self) -> bool:
        """True: it is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 at the end."""
        while not self._rest:
            data = self._source.read(COMPRESSED_AT_ONCE)
            if not data:
                if self._frame is not None:
                    raise OSError("the file ends early")
                return 0
            self._rest = self._decompressed(data)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def _decompressed(self, data: bytes) -> bytes:
        parts = []
        try:
            while data:
                self._frame = self._frame or self._new().decompressobj()
                parts.append(self._frame.decompress(data))
                data = self._frame.unused_data if self._frame.eof else b""
                self._frame = None if self._frame.eof else self._frame
        except self._error as error:
            raise OSError(str(error)) from None
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._source.close()
        super().close()


def _jsonl(file: SourceFile, source: TextSource) -> Texts:
    with _opened(file) as lines:
        number = 0
        while line := lines.readline(MAX_RECORD_BYTES):
            number += 1
            if line.strip():
                yield _record(line, number, file, source)


def _record(line: bytes, number: int, file: SourceFile, source: TextSource) -> tuple[str, str]:
    where = f"{file.path} line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(where, reason, "a JSON record on each line") from None
    text = record.get(source.text) if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise InputError(where, f"no text '{source.text}'", "a record with the source's text")
    name = record.get(source.id)
    return ("" if name is None else str(name)), _valid(text)


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _parquet(file: SourceFile, source: TextSource) -> Texts:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(file.path)
        columns = [name for name in (source.id, source.text) if name in table.schema_arrow.names]
        if source.text not in columns:
            allowed = f"a column with the source's text: {', '.join(table.schema_arrow.names)}"
            raise InputError(str(file.path), f"no column '{source.text}'", allowed)
        row = 0
        for batch in table.iter_batches(ROWS_AT_ONCE, columns=columns):
            for record in batch.to_pylist():
                row += 1
                text = record[source.text]
                if not isinstance(text, str):
                    raise InputError(f"{file.path} row {row}", text, "a text in every row")
                name = record.get(source.id)
                yield ("" if name is None else str(name)), _valid(text)
    except ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(file.path), reason, "a parquet file") from None


def _extracted(data: bytes) -> str:
    from trafilatura import extract

    return extract(_decoded(data)) or ""


def _html(file: SourceFile, source: TextSource) -> Texts:
    if text := _extracted(file.path.read_bytes()):
        yield file.name, text


def _warc(file: SourceFile, source: TextSource) -> Texts:
    """Texts of the responses of a WARC file (ISO 28500), by their addresses."""
    with _opened(file) as records:
        number = 0
        while True:
            first = records.readline(MAX_RECORD_BYTES)
            if not first:
                return
            if not first.strip():
                continue
            number += 1
            where = f"{file.path} record {number}"
            if not first.startswith(b"WARC/"):
                raise InputError(where, first[:40].decode("latin-1"), "a WARC record")
            fields = _fields(records)
            length = fields.get("content-length", "")
            if not length.isdecimal() or int(length) > MAX_RECORD_BYTES:
                raise InputError(where, f"length '{length}'", "a length in bytes")
            body = records.read(int(length))
            if len(body) < int(length):
                raise InputError(where, f"{len(body)} bytes", f"the {length} bytes that it says")
            if fields.get("warc-type") == "response" and b"\r\n\r\n" in body:
                head, _, page = body.partition(b"\r\n\r\n")
                if b"html" in head.lower() and (text := _extracted(page)):
                    yield fields.get("warc-target-uri", ""), text


def _fields(records: IO[bytes]) -> dict[str, str]:
    fields: dict[str, str] = {}
    while (line := records.readline(1 << 16)).strip():
        name, _, value = line.decode("utf-8", "replace").partition(":")
        fields[name.strip().casefold()] = value.strip()
    return fields


READERS: dict[str, Callable[[SourceFile, TextSource], Texts]] = {
    "text": _text,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "html": _html,
    "warc": _warc,
}
