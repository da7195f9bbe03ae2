"""Runs of items in pieces, which resume after a stop."""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from harness.machine import spare_cores
from harness.paths import STATE

REPORT_EVERY_S = 20.0
DRAWS = 1_000_000
"""Blocks of seeds that a commit may start from."""
Form = Literal["short", "full", "quick"]
N = TypeVar("N", int, float)
T = TypeVar("T")


class Work:
    """State and size of one run.

    Args:
        name: of the item.
        key: content key of the item's inputs; pieces of other inputs are not used.
        form: ``short`` within minutes; ``full`` with the long counts and seeds from 0 on;
            ``quick`` to see that the item runs, its figures are not kept.
        seed: of the short form's draws; the commit gives it, so that runs add up over time.
        folder: where pieces are kept.
    """

    def __init__(
        self,
        name: str,
        key: str,
        form: Form = "short",
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.form = form
        self.seed = seed if form == "short" else 0
        self.kept_s = 0.0
        self.spreads = False
        self._workers = 0
        # Forms never share pieces.
        self._folder = (folder or STATE) / (name if form == "short" else f"{name}.{form}")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._pieces = self._folder / f"{key}-{self.seed:08x}.jsonl"

    @property
    def quick(self) -> bool:
        """True if only a glance is wanted."""
        return self.form == "quick"

    @property
    def full(self) -> bool:
        """True if the long form is wanted."""
        return self.form == "full"

    def forget(self) -> None:
        """Drop all pieces."""
        self._drop(lambda path: True)

    def tidy(self) -> None:
        """Drop pieces of other inputs or seeds."""
        self._drop(lambda path: path != self._pieces)

    def _drop(self, is_dropped: Callable[[Path], bool]) -> None:
        for path in self._folder.iterdir():
            if path.is_file() and is_dropped(path):
                path.unlink()

    def sized(self, short: N, quick: N, full: N | None = None) -> N:
        """An amount of work by form; ``full`` defaults to the short one."""
        if self.full and full is not None:
            return full
        return quick if self.quick else short

    def first_seed(self, block: int = 1) -> int:
        """First seed of the draws, a multiple of ``block``; 0 unless short."""
        if self.form != "short":
            return 0
        return block * random.Random(f"{self.name} {self.seed}").randrange(DRAWS)

    def sample(self, cases: Sequence[T], short: int, quick: int) -> list[T]:
        """All cases if full; ``short`` drawn ones, in order, if short."""
        if self.full:
            return list(cases)
        if self.quick:
            return list(cases[:quick])
        source = random.Random(f"{self.name} {self.seed} {len(cases)}")
        numbers = source.sample(range(len(cases)), min(short, len(cases)))
        return [cases[number] for number in sorted(numbers)]

    def pieces(
        self, keys: Sequence[str], make: Callable[[str], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """The result of every key, in order, kept once it is made.

        Args:
            keys: names of the pieces, unique in the item.
            make: makes a piece, as JSON. A function of a module, where ``spreads``.
        """
        pieces = self._load()
        kept = [pieces[key] for key in keys if key in pieces]
        self.kept_s += sum(piece["seconds"] for piece in kept)
        if kept:
            self.say(f"{len(kept)} of {len(keys)} were done before")
        reported_s = time.monotonic()
        missing = [key for key in keys if key not in pieces]
        for number, (key, made) in enumerate(zip(missing, self._made(missing, make), strict=True)):
            pieces[key] = self._keep(key, *made)
            if time.monotonic() - reported_s > REPORT_EVERY_S:
                self.say(f"{len(kept) + number + 1} of {len(keys)}")
                reported_s = time.monotonic()
        return [pieces[key]["result"] for key in keys]

    def _made(
        self, keys: Sequence[str], make: Callable[[str], Mapping[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], float]]:
        """Results and seconds, in order, by two processes on idle cores."""
        self._workers = workers = spare_cores(self._workers) if self.spreads else 1
        if workers == 1 or len(keys) < 2:
            yield from (_timed(make, key) for key in keys)
            return
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            yield from pool.imap(partial(_timed, make), keys)

    def _keep(self, key: str, result: dict[str, Any], seconds: float) -> dict[str, Any]:
        piece = {"key": key, "seconds": seconds, "result": result}
        with self._pieces.open("a", encoding="utf-8") as file:
            file.write(json.dumps(piece) + "\n")
        return piece

    def _load(self) -> dict[str, dict[str, Any]]:
        """Pieces by key; an unfinished line of a stopped run is dropped."""
        pieces: dict[str, dict[str, Any]] = {}
        if not self._pieces.exists():
            return pieces
        text = self._pieces.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            self._pieces.write_text(text, encoding="utf-8")
        for line in text.splitlines():
            piece = json.loads(line)
            pieces[piece["key"]] = piece
        return pieces

    def say(self, what: str) -> None:
        """Print a line of progress."""
        print(f"  [{self.name}] {what}", file=sys.stderr, flush=True)


def _timed(make: Callable[[str], Mapping[str, Any]], key: str) -> tuple[dict[str, Any], float]:
    start_s = time.monotonic()
    result = json.loads(json.dumps(make(key)))
    return result, time.monotonic() - start_s
