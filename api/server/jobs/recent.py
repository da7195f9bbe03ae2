"""Documents of ended jobs that were read a moment ago: they change no more."""

from __future__ import annotations

import time
from collections import OrderedDict

KEPT_S = 30.0
"""After so long a job is looked up again: it may have been forgotten."""
MOST_BYTES = 32 * 2**20
Place = tuple[str, str, str]


class Recent:
    """Bytes by owner, kind and job, the latest ones, for a short while."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Place, tuple[float, bytes]] = OrderedDict()
        self._size = 0

    def get(self, place: Place) -> bytes | None:
        """What was kept a moment ago."""
        found = self._kept.get(place)
        if found is None:
            return None
        if time.monotonic() - found[0] > KEPT_S:
            self._drop(place)
            return None
        return found[1]

    def put(self, place: Place, body: bytes) -> None:
        """Keep a document, if it is not large."""
        if place in self._kept:
            self._drop(place)
        if len(body) > MOST_BYTES // 4:
            return
        self._kept[place] = time.monotonic(), body
        self._size += len(body)
        while self._size > MOST_BYTES:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self._size = 0

    def _drop(self, place: Place) -> None:
        self._size -= len(self._kept.pop(place)[1])
