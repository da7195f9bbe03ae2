"""Planned addresses of a plan's ranks, kept in a file by plan and versions."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..codec import canonical_json
from ..errors import InputError
from ..files import write_atomically

FORMAT = 1
"""Of the file; another one is not read."""
TORCHLESS = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAddresses:
    """Addresses of the requests of a rank's step.

    Attributes:
        passes: number of the first section of each pass.
        sections: first request of each section, and the number of all.
        sizes: bytes of the requests.
        offsets: in the arena; below 0 for requests that outlive the step and have none.
        untils: number of the first request that is made after the end of each.
        arena_bytes: of the arena.
        live_bytes: most bytes live at once.
        by: the algorithm.
    """

    passes: tuple[int, ...]
    sections: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    untils: tuple[int, ...]
    arena_bytes: int
    live_bytes: int
    by: str

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "arena_bytes": self.arena_bytes,
            "live_bytes": self.live_bytes,
            "by": self.by,
            "passes": list(self.passes),
            "sections": list(self.sections),
            "sizes": list(self.sizes),
            "offsets": list(self.offsets),
            "untils": list(self.untils),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> RankAddresses:
        """The inverse of :meth:`to_document`."""
        return cls(
            passes=tuple(document["passes"]),
            sections=tuple(document["sections"]),
            sizes=tuple(document["sizes"]),
            offsets=tuple(document["offsets"]),
            untils=tuple(document["untils"]),
            arena_bytes=document["arena_bytes"],
            live_bytes=document["live_bytes"],
            by=document["by"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAddresses:
    """Addresses of all ranks of a plan: different ones, and which of them each rank has."""

    plan_hash: str
    different: tuple[RankAddresses, ...]
    of_rank: tuple[int, ...]

    def rank(self, number: int) -> RankAddresses:
        """Addresses of a rank."""
        return self.different[self.of_rank[number]]

    @property
    def most_bytes(self) -> int:
        """The largest arena of a rank."""
        return max((found.arena_bytes for found in self.different), default=0)


def addresses_path(plan_hash: str) -> Path:
    """The file of a plan's addresses under these versions; it need not exist."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    facts = [plan_hash, str(FORMAT), *(_version(name) for name in ("shardwright", "torch"))]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]
    return Path(root) / "shardwright" / "addresses" / f"{key}.json"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return TORCHLESS


def keep_addresses(addresses: PlannedAddresses) -> Path:
    """Write addresses for the ranks of their plan; return the file.

    Raises:
        InputError: the folder cannot be written.
    """
    path = addresses_path(addresses.plan_hash)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("XDG_CACHE_HOME", path.parent, f"a writable folder ({error})") from error
    document = {
        "plan_hash": addresses.plan_hash,
        "different": [found.to_document() for found in addresses.different],
        "of_rank": list(addresses.of_rank),
    }
    write_atomically(path, canonical_json(document))
    return path


def kept_addresses(plan_hash: str) -> PlannedAddresses | None:
    """Addresses that :func:`keep_addresses` wrote; None if there are none."""
    try:
        document = json.loads(addresses_path(plan_hash).read_text(encoding="utf-8"))
        return PlannedAddresses(
            plan_hash=document["plan_hash"],
            different=tuple(map(RankAddresses.from_document, document["different"])),
            of_rank=tuple(document["of_rank"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        path = addresses_path(plan_hash)
        raise InputError(
            str(path), error, "a file of addresses: delete it, and it is made"
        ) from error


def different_ones(all_ranks: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The different entries of a sequence in order, and the number of each one's."""
    different: list[Any] = []
    numbers: list[int] = []
    for entry in all_ranks:
        if entry not in different:
            different.append(entry)
        numbers.append(different.index(entry))
    return different, numbers
