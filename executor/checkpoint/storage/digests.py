"""Digests of a checkpoint's bytes, each with the name of its algorithm.

They find damage, and defend against nobody: whoever writes a file writes its digest too. XXH3 (Y.
Collet, xxHash 0.8) has 128 bits, so damage at random passes once in 2^128, where a CRC-32 passes
once in 2^32; SHA-256 takes nine times as long, on a core that has instructions for it. Checkpoints
of format 1 have SHA-256.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Protocol

from pydantic import Field

CURRENT, EARLIER = "xxh3_128", "sha256"
DigestText = Annotated[str, Field(pattern=r"^(xxh3_128:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")]


class _Hash(Protocol):
    def update(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def _made(algorithm: str) -> _Hash:
    if algorithm == EARLIER:
        return hashlib.sha256()
    import xxhash  # a run without checkpoints does without it

    return xxhash.xxh3_128()


class Digest:
    """A digest of bytes given in pieces.

    ``like``: a digest that it is to be compared with, or the name of an algorithm.
    """

    def __init__(self, like: str = CURRENT) -> None:
        self._algorithm = like.partition(":")[0]
        self._hash = _made(self._algorithm)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take further bytes."""
        self._hash.update(data)

    def text(self) -> str:
        """``xxh3_128:…`` of the bytes so far."""
        return f"{self._algorithm}:{self._hash.hexdigest()}"
