"""A sweep as one job, row by row, none computed twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...compute.requests import MAX_DEADLINE_S
from ...problems import encode
from ..row_cache import RowCache, measured_digest, row_key
from .search_child import ChildLostError

MAX_ROWS_WITH_PLANS = 100
"""Longer sweeps leave the plans out of their rows: each is had by asking for that value alone."""
MIN_ROW_S = 0.5
"""Seconds that a row gets where the deadline has passed: its plan is priced, if not searched."""
SHARED_KEYS = ("plan_hash", "baseline", "scale", "provenance")
AnswerBody = Callable[[bytes, float], tuple[int, bytes, bool]]
EmitRow = Callable[[str, dict[str, Any]], None]


class CachedAnswers:
    """Answers from the cache, else from a child.

    Args:
        cache: of answers.
        call: answers a body within so many seconds: status, JSON, True if canceled.
        calibration: the JSON of the job's calibration, if any.
    """

    def __init__(self, cache: RowCache, call: AnswerBody, calibration: str | None = None) -> None:
        self._cache, self._call = cache, call
        self._measured = measured_digest(calibration)

    def answer(self, body: dict[str, Any], limit_s: float) -> tuple[int, bytes, bool, bool]:
        """Status and JSON, True if canceled, and True if cached."""
        question = {name: value for name, value in body.items() if name != "deadline_s"}
        key = row_key(question, self._measured)
        if (cached := self._cache.get(key)) is not None:
            return 200, cached.encode(), False, True
        status, answer, cancelled = self._call(encode(question), limit_s)
        if status == 200 and not cancelled and _is_deterministic(json.loads(answer)):
            self._cache.put(key, answer.decode())
        return status, answer, cancelled, False


def _is_deterministic(answer: dict[str, Any]) -> bool:
    searches = [row["re_planned"].get("search") for row in answer.get("rows", [answer])]
    return all(search and search["stopped_by"] != "deadline" for search in searches)


class SweepPausedError(Exception):
    """A sweep that gives its worker back; ``value`` is what this piece of its work has found."""

    def __init__(self, value: str, worked_s: float) -> None:
        super().__init__(worked_s)
        self.value, self.worked_s = value, worked_s


class SweepJob:
    """Rows of a sweep.

    ``earlier``: what earlier pieces of its work have found, as :class:`SweepPausedError` had it.
    """

    def __init__(
        self,
        body: dict[str, Any],
        questions: CachedAnswers,
        emit: EmitRow,
        earlier: Sequence[str] = (),
    ) -> None:
        self._body, self._questions, self._emit = body, questions, emit
        [(self._path, self._values)] = body["sweep"].items()
        self._head: dict[str, Any] = {}
        self._assumptions: list[Any] = []
        self._rows: list[Any] = []
        for text in earlier:
            self._head, self._path, self._assumptions, rows = json.loads(text)
            self._rows += rows
        self._known = len(self._rows)

    def run(
        self,
        deadline_s: float,
        worked_s: float = 0.0,
        goes_on: Callable[[float], bool] = lambda seconds: True,
    ) -> tuple[int, bytes, bool]:
        """All rows, or those until a cancellation.

        Args:
            deadline_s: seconds for all pieces of the work.
            worked_s: those of earlier pieces.
            goes_on: asked after each row, with the seconds of this piece: False to pause.

        Returns:
            Status and JSON of the answer, and True if canceled.

        Raises:
            SweepPausedError: rows are left, and others' turn has come.
        """
        start_s, total = time.monotonic(), len(self._values)
        ends_s = start_s + deadline_s - worked_s
        [(asked_path, _)] = self._body["sweep"].items()
        for number, value in enumerate(self._values):
            if number < self._known:
                continue
            left_s = max(MIN_ROW_S, ends_s - time.monotonic())
            limit_s = max(MIN_ROW_S, min(MAX_DEADLINE_S, left_s / (total - number)))
            question = {**self._body, "sweep": {asked_path: [value]}}
            try:
                status, answer, cancelled, cached = self._questions.answer(question, limit_s)
            except ChildLostError as lost:
                if lost.reason != "cancelled":
                    raise
                return self._cancelled()
            if cancelled:
                return self._cancelled()
            if status != 200:
                return status, answer, False
            self._add(json.loads(answer), value)
            about = {"done": number + 1, "total": total, "cached": cached}
            self._emit("row", {**about, "number": number, "row": self._rows[-1]})
            seconds = time.monotonic() - start_s
            if number + 1 < total and not goes_on(seconds):
                raise SweepPausedError(self._found(), worked_s + seconds)
        return 200, self._answer(), False

    def _found(self) -> str:
        rows = self._rows[self._known :]
        return encode([self._head, self._path, self._assumptions, rows]).decode()

    def _cancelled(self) -> tuple[int, bytes, bool]:
        return (200, self._answer(), True) if self._rows else (499, b"null", True)

    def _add(self, answer: dict[str, Any], value: Any) -> None:
        if not self._head:
            self._head = {name: answer[name] for name in SHARED_KEYS}
            self._path = answer["sweep"]["path"]
        self._assumptions += [note for note in answer["assumptions"]
                              if note not in self._assumptions]  # fmt: skip
        row = {**answer["rows"][0], "value": value}
        self._rows.append(row if len(self._values) <= MAX_ROWS_WITH_PLANS else _without_plans(row))

    def _answer(self) -> bytes:
        swept = {"path": self._path, "values": self._values}
        document = {**self._head, "assumptions": self._assumptions, "sweep": swept}
        return encode({**document, "rows": self._rows})


def _without_plans(row: dict[str, Any]) -> dict[str, Any]:
    kept = dict(row)
    for name in ("same_plan", "re_planned"):
        kept[name] = {key: value for key, value in row[name].items() if key != "plan"}
    return kept
