"""Parts of an item that takes longer than a sitting, committed beside the results.

A part names the commit and the inputs that it was made with. Only parts of the present inputs
count; others are told of until a part of the same key takes their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.places import BENCHMARKS

from shardwright.spec.codec import write_atomically

FOLDER = BENCHMARKS / "parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: what it found, with what code, when, and how long it took."""

    key: str
    inputs: str
    commit: str
    date: str
    seconds: float
    result: Mapping[str, Any]


class Parts:
    """The parts of one item.

    Args:
        name: of the item.
        inputs: hash of what the item reads now.
        folder: where parts of all items are kept.
    """

    def __init__(self, name: str, inputs: str, folder: Path = FOLDER) -> None:
        self._path, self._inputs = folder / f"{name}.json", inputs
        known = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else []
        self._parts = {part["key"]: Part(**part) for part in known}

    def of(self, keys: Sequence[str]) -> dict[str, Part]:
        """Those of these keys that were made with the present inputs."""
        found = {key: self._parts[key] for key in keys if key in self._parts}
        return {key: part for key, part in found.items() if part.inputs == self._inputs}

    @property
    def older(self) -> list[Part]:
        """Those of other inputs."""
        return [part for part in self._parts.values() if part.inputs != self._inputs]

    def add(self, key: str, commit: str, seconds: float, result: Mapping[str, Any]) -> None:
        """Keep a part, at once."""
        self._parts[key] = Part(
            key=key,
            inputs=self._inputs,
            commit=commit,
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            seconds=round(seconds, 1),
            result=result,
        )
        self._path.parent.mkdir(exist_ok=True)
        lines = [json.dumps(asdict(part), sort_keys=True) for part in self._parts.values()]
        write_atomically(self._path, "[\n" + ",\n".join(lines) + "\n]\n")
