"""A run of an item in pieces, so that one that was stopped goes on where it was."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from harness.machine import spare_cores
from harness.places import STATE

SAY_EVERY_S = 20.0
N = TypeVar("N", int, float)


class Work:
    """What an item is given: its state, and whether only a glance is wanted.

    Args:
        name: of the item.
        inputs: hash of what the item reads; pieces of other inputs are not used.
        quick: a small part of the work, to see that the item runs; such figures are not kept.
        folder: where pieces are kept.
        minutes: after so many nothing long is begun any more; None for no limit.
    """

    def __init__(
        self,
        name: str,
        inputs: str,
        quick: bool = False,
        folder: Path | None = None,
        minutes: float | None = None,
    ) -> None:
        self.name = name
        self.quick = quick
        self.kept_s = 0.0
        self.inputs = inputs
        self._until_s = None if minutes is None else time.monotonic() + 60 * minutes
        self.spreads = False
        self._workers = 0
        # A glance never meets the pieces of the real thing.
        self._folder = (folder or STATE) / (f"{name}.quick" if quick else name)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._pieces = self._folder / f"{inputs}.jsonl"
        self._done = self._folder / "done.json"

    @property
    def is_done(self) -> bool:
        """Whether the item has an answer for these inputs."""
        try:
            found = json.loads(self._done.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(found.get("inputs") == self.inputs)

    @property
    def is_over(self) -> bool:
        """Whether the time that was given is up."""
        return self._until_s is not None and time.monotonic() > self._until_s

    def finish(self) -> None:
        """The answer stands until the inputs change."""
        self._done.write_text(json.dumps({"inputs": self.inputs}), encoding="utf-8")
        self._drop(lambda path: path.suffix == ".jsonl")

    def forget(self) -> None:
        """Start over."""
        self._drop(lambda path: True)

    def tidy(self) -> None:
        """Drop pieces of other inputs."""
        self._drop(lambda path: path.suffix == ".jsonl" and path != self._pieces)

    def _drop(self, chosen: Callable[[Path], bool]) -> None:
        for path in self._folder.iterdir():
            if path.is_file() and chosen(path):
                path.unlink()

    def sized(self, whole: N, quick: N) -> N:
        """How much of something: all, or a glance."""
        return quick if self.quick else whole

    def pieces(
        self, keys: Sequence[str], one: Callable[[str], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """The result of every key, in order; each is kept as soon as it is there.

        Args:
            keys: names of the pieces, unique in the item.
            one: makes a piece; what it returns is JSON. A function of a module, where ``spreads``.
        """
        known = self._load()
        kept = [known[key] for key in keys if key in known]
        self.kept_s += sum(piece["seconds"] for piece in kept)
        if kept:
            self.say(f"{len(kept)} of {len(keys)} were done before")
        said_s = time.monotonic()
        left = [key for key in keys if key not in known]
        for number, (key, piece) in enumerate(zip(left, self._made(left, one), strict=True)):
            known[key] = self._keep(key, *piece)
            if time.monotonic() - said_s > SAY_EVERY_S:
                self.say(f"{len(kept) + number + 1} of {len(keys)}")
                said_s = time.monotonic()
        return [known[key]["result"] for key in keys]

    def _made(
        self, keys: Sequence[str], one: Callable[[str], Mapping[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], float]]:
        """Results and seconds, in order; by two processes where a second core has nothing to do."""
        self._workers = workers = spare_cores(self._workers) if self.spreads else 1
        if workers == 1 or len(keys) < 2:
            yield from (_timed(one, key) for key in keys)
            return
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            yield from pool.imap(partial(_timed, one), keys)

    def _keep(self, key: str, result: dict[str, Any], seconds: float) -> dict[str, Any]:
        piece = {"key": key, "seconds": seconds, "result": result}
        with self._pieces.open("a", encoding="utf-8") as file:
            file.write(json.dumps(piece) + "\n")
        return piece

    def _load(self) -> dict[str, dict[str, Any]]:
        """Pieces by key; a line that a stopped run left unfinished is not one."""
        found: dict[str, dict[str, Any]] = {}
        if not self._pieces.exists():
            return found
        text = self._pieces.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            self._pieces.write_text(text, encoding="utf-8")
        for line in text.splitlines():
            piece = json.loads(line)
            found[piece["key"]] = piece
        return found

    def say(self, what: str) -> None:
        """A line about how it goes, for whoever waits."""
        print(f"  [{self.name}] {what}", file=sys.stderr, flush=True)


def _timed(one: Callable[[str], Mapping[str, Any]], key: str) -> tuple[dict[str, Any], float]:
    start_s = time.monotonic()
    result = json.loads(json.dumps(one(key)))
    return result, time.monotonic() - start_s
