"""Folders and files of a far storage by URL, as far as checkpoints need a path; loads no torch.

Through ``fsspec``, which torch brings: ``file:``, ``memory:``, and what a library of the user's
serves. Every request is tried again a few times; the last failure is one line.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast

from ....spec.errors import InputError

TRIES, FIRST_WAIT_S = 4, 0.1
"""Waits between tries double."""
READ_BYTES = 8 << 20
"""Asked for at once."""
FINAL = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Answers that another try does not change."""
Result = TypeVar("Result")


def is_url(text: str) -> bool:
    """True for ``memory://run`` and ``s3://bucket/run``, not for a path."""
    return "://" in text


@lru_cache(maxsize=32)
def _file_system(url: str) -> Any:
    import fsspec

    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False)[0]
    except ImportError as error:
        reason = " ".join(str(error).split())
        allowed = f"a storage whose library is installed ({reason})"
        raise InputError("URL", url, allowed) from None
    except ValueError as error:
        allowed = f"a URL that fsspec knows ({' '.join(str(error).split())})"
        raise InputError("URL", url, allowed, "file:///path") from None


class FarPath:
    """A folder or file by URL.

    Raises:
        InputError: no library serves such URLs.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        scheme, _, rest = self.url.partition("://")
        self._system = _file_system(f"{scheme}://{rest.partition('/')[0]}")
        self._path: str = self._system._strip_protocol(self.url)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"FarPath({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FarPath) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __truediv__(self, name: str) -> FarPath:
        return FarPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> FarPath:
        """The folder that it is in."""
        return FarPath(self.url.rpartition("/")[0])

    def resolve(self) -> FarPath:
        """Itself: there are no links."""
        return self

    def exists(self) -> bool:
        """True if something is there."""
        return bool(self._tried(self._system.exists, self._path))

    def is_dir(self) -> bool:
        """True for a folder."""
        return bool(self._tried(self._system.isdir, self._path))

    def is_file(self) -> bool:
        """True for a file."""
        return bool(self._tried(self._system.isfile, self._path))

    def glob(self, pattern: str) -> Iterator[FarPath]:
        """Names in the folder by a pattern of the shell, of one part."""
        try:
            yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))
        except (FileNotFoundError, NotADirectoryError):
            return

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Make the folder, where the storage has any."""
        self._tried(self._system.makedirs, self._path, exist_ok=True)

    def iterdir(self) -> Iterator[FarPath]:
        """Names in the folder."""
        self._system.invalidate_cache()
        names = self._tried(self._system.ls, self._path, detail=False)
        for name in sorted(str(row).rstrip("/").rpartition("/")[2] for row in names):
            yield self / name

    def read_bytes(self, limit_bytes: int | None = None) -> bytes:
        """The file's content, at most ``limit_bytes`` of it."""
        return cast("bytes", self._tried(self._system.cat_file, self._path, end=limit_bytes))

    def write_bytes(self, data: bytes) -> None:
        """Write the file in one request."""
        self._tried(self._system.pipe_file, self._path, data)

    def write_with(self, write: Callable[[BinaryIO], Result]) -> Result:
        """Write the file by ``write``, from the start again after a failure."""

        def run() -> Result:
            with self._system.open(self._path, "wb") as file:
                return write(file)

        return self._tried(run)

    def open_read(self) -> BinaryIO:
        """The file, to be read by ranges."""
        size = int(self._tried(self._system.size, self._path) or 0)
        return cast("BinaryIO", _RangeReader(self._range, size))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        try:
            self._tried(self._system.rm_file, self._path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_tree(self) -> None:
        """Remove the folder and all in it."""
        if self.exists():
            self._tried(self._system.rm, self._path, recursive=True)

    def _range(self, first: int, last: int) -> bytes:
        data = self._tried(self._system.cat_file, self._path, start=first, end=last)
        return cast("bytes", data)

    def _tried(self, call: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """The answer to a request, tried a few times.

        Raises:
            OSError: the last failure, in one line.
        """
        for number in range(1, TRIES + 1):
            try:
                return call(*args, **named)
            except FINAL:
                raise
            except OSError as error:
                if number == TRIES:
                    reason = " ".join(str(error).split()) or type(error).__name__
                    raise OSError(f"{self.url}, {TRIES} times: {reason}") from None
                time.sleep(FIRST_WAIT_S * 2 ** (number - 1))
        raise AssertionError("a request ends")


class _RangeReader(io.RawIOBase):
    """A file whose ranges are asked for as they are read."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view, done = memoryview(buffer).cast("B"), 0
        wanted = min(len(view), max(0, self._size - self._at))
        while done < wanted:
            last = min(self._at + READ_BYTES, self._at + wanted - done)
            data = self._read(self._at, last)
            if not data:
                break
            view[done : done + len(data)] = data
            done += len(data)
            self._at += len(data)
        return done
