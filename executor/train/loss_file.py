"""``losses.csv``: a row for each step of a run, across its resumes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...spec.codec import write_atomically
from ...spec.errors import InputError
from ...spec.files import open_file
from ...spec.numbers import whole_number
from ..checkpoint.loader import FoundCheckpoint
from ..launch.rank_context import RankContext

NAME = "losses.csv"
COLUMNS = ("step", "loss", "gradient_norm", "seconds")


class LossFile:
    """Rows of steps, each written as soon as it is done.

    Rows of earlier steps stay: those of the file itself, or of the one beside the checkpoint that
    the run resumes from. A gradient norm is empty where gradients overflowed.

    Args:
        folder: is made if need be.
        done: steps that the run does not take again.
        resumed: folder of the checkpoints that it resumes from, if any.
        note: called once if a row cannot be written.

    Raises:
        InputError: the folder cannot be written.
    """

    def __init__(
        self, folder: Path, done: int, resumed: Path | None, note: Callable[[str], None]
    ) -> None:
        self.path, self._note = folder / NAME, note
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("--out-dir", str(folder), f"a folder ({error.strerror})") from None
        earlier = earlier_rows(self.path, done)
        if not earlier and resumed is not None:
            earlier = earlier_rows(resumed / NAME, done)
        lines = [",".join(row) + "\n" for row in (COLUMNS, *earlier)]
        write_atomically(self.path, "".join(lines))
        self._is_whole = True

    def add(self, event: Mapping[str, Any]) -> None:
        """Write a step's row; after one that failed, no more."""
        if not self._is_whole:
            return
        norm = event["gradient_norm"]
        row = (event["step"], event["loss"], "" if norm is None else norm, event["time_s"])
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(",".join(map(str, row)) + "\n")
        except OSError as error:
            self._is_whole = False
            self._note(f"{self.path} ends with step {event['step'] - 1}: {error.strerror}")


def earlier_rows(path: Path, done: int) -> list[list[str]]:
    """Whole rows of steps 1 to ``done`` in a file; none without one."""
    try:
        with (
            open_file(path, NAME) as file,
            io.TextIOWrapper(file, encoding="utf-8", newline="") as text,
        ):
            rows = csv.reader(text)
            if tuple(next(rows, ())) != COLUMNS:
                return []
            return [row for row in rows if len(row) == len(COLUMNS) and _is_step(row[0], done)]
    except (InputError, OSError, UnicodeDecodeError, csv.Error):
        return []


def _is_step(text: str, done: int) -> bool:
    number = whole_number(text)
    return number is not None and 1 <= number <= done


def rank_loss_file(
    folder: Path | None, context: RankContext, done: int, resumed: FoundCheckpoint | None
) -> LossFile | None:
    """Rank 0's file of losses in a folder; None on other ranks, and where there is no folder."""
    if folder is None or context.rank:
        return None

    def note(text: str) -> None:
        context.emit({"event": "note", "text": text})

    begun = None if resumed is None else resumed.folder
    return LossFile(folder, done, begun.parent if isinstance(begun, Path) else None, note)
