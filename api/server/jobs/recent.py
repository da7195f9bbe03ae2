"""Recently read documents of ended jobs, which never change."""

from __future__ import annotations

import time
from collections import OrderedDict

KEEP_S = 30.0
"""After so long a job is looked up again: it may have been forgotten."""
MAX_BYTES = 32 * 2**20
DocumentKey = tuple[str, str, str]


class RecentDocuments:
    """A short-lived cache of documents by owner, kind and job."""

    def __init__(self) -> None:
        self._kept: OrderedDict[DocumentKey, tuple[float, bytes]] = OrderedDict()
        self._size = 0

    def get(self, key: DocumentKey) -> bytes | None:
        """Return a recent document, or None."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        if time.monotonic() - entry[0] > KEEP_S:
            self._drop(key)
            return None
        return entry[1]

    def put(self, key: DocumentKey, body: bytes) -> None:
        """Cache a document, unless it is large."""
        if key in self._kept:
            self._drop(key)
        if len(body) > MAX_BYTES // 2:
            return
        self._kept[key] = time.monotonic(), body
        self._size += len(body)
        while self._size > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Empty the cache."""
        self._kept.clear()
        self._size = 0

    def _drop(self, key: DocumentKey) -> None:
        self._size -= len(self._kept.pop(key)[1])
