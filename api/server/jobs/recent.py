"""Recently read documents of ended jobs, which never change."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass

KEEP_S = 30.0
"""After so long a job is looked up again: it may have been forgotten."""
MAX_BYTES = 32 * 2**20
DocumentKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class TaggedDocument:
    """A document with its entity tag, which takes long to make of a large one."""

    body: bytes
    tag: str


def tagged(body: bytes) -> TaggedDocument:
    """Tag a document by its content."""
    return TaggedDocument(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


class RecentDocuments:
    """A short-lived cache of documents by owner, kind and job."""

    def __init__(self) -> None:
        self._kept: OrderedDict[DocumentKey, tuple[float, TaggedDocument]] = OrderedDict()
        self._size = 0

    def get(self, key: DocumentKey) -> TaggedDocument | None:
        """Return a recent document, or None."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        if time.monotonic() - entry[0] > KEEP_S:
            self._drop(key)
            return None
        return entry[1]

    def put(self, key: DocumentKey, document: TaggedDocument) -> None:
        """Cache a document, unless it is large."""
        if key in self._kept:
            self._drop(key)
        size = len(document.body)
        if size > MAX_BYTES // 2:
            return
        self._kept[key] = time.monotonic(), document
        self._size += size
        while self._size > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Empty the cache."""
        self._kept.clear()
        self._size = 0

    def _drop(self, key: DocumentKey) -> None:
        self._size -= len(self._kept.pop(key)[1].body)
