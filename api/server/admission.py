"""Limits of what one peer, and all of them, may have under way at once.

A peer is a token, or without tokens the client's address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

EVERYONE = "everyone"
"""Owner of requests that bear no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """Most requests under way, and bytes of answers that are being sent: in all and of a peer."""

    requests: int = 512
    requests_of_peer: int = 256
    answer_bytes: int = 256 * 2**20
    answer_bytes_of_peer: int = 128 * 2**20


class FullError(Exception):
    """There is no room now."""


class Admission:
    """What is under way."""

    def __init__(self, rules: AdmissionRules) -> None:
        self._rules = rules
        self._requests: Counter[str | None] = Counter()  # None: of all peers
        self._bytes: Counter[str | None] = Counter()
        self._bodies: Counter[tuple[str | None, int]] = Counter()

    @contextmanager
    def request(self, scope: Scope) -> Iterator[None]:
        """Count a request while it is answered.

        Raises:
            FullError: one more is too many.
        """
        peer = peer_of(scope)
        full = self._requests[None] >= self._rules.requests
        if full or self._requests[peer] >= self._rules.requests_of_peer:
            raise FullError
        _add(self._requests, peer, 1)
        try:
            yield
        finally:
            _add(self._requests, peer, -1)

    @contextmanager
    def answer(self, scope: Scope, body: bytes) -> Iterator[None]:
        """Count an answer's bytes while they are sent; those of one document once.

        Raises:
            FullError: so many more are too many.
        """
        peer, size = peer_of(scope), len(body)
        most = {None: self._rules.answer_bytes, peer: self._rules.answer_bytes_of_peer}
        added = {who: size for who in most if not self._bodies[who, id(body)]}
        if any(self._bytes[who] + more > most[who] for who, more in added.items()):
            raise FullError
        for who in (None, peer):
            self._bytes[who] += added.get(who, 0)
            self._bodies[who, id(body)] += 1
        try:
            yield
        finally:
            for who in (None, peer):
                self._bodies[who, id(body)] -= 1
                if not self._bodies[who, id(body)]:
                    del self._bodies[who, id(body)]
                    self._bytes[who] -= size
                if not self._bytes[who]:
                    del self._bytes[who]


def _add(counts: Counter[Any], peer: str, amount: int) -> None:
    for who in (None, peer):
        counts[who] += amount
        if not counts[who]:
            del counts[who]


def peer_of(scope: Scope) -> str:
    """Who sends a request: the owner by its token, or an address."""
    owner: str = scope.get("owner", EVERYONE)
    if owner != EVERYONE:
        return owner
    client = scope.get("client")
    return f"address {client[0]}" if client else owner
