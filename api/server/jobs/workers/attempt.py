"""A worker's part in one job: its attempt, its events, its end.

The library calls it again when the worker died in the midst of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from ...compute.lending import lent_document
from ...logs import say
from ...problems import TOO_LARGE, encode, problem
from ..row_cache import RowCache
from ..schema import Row
from ..store import JobStore, Outcome
from .execute import execute
from .search_child import ChildLostError, SearchChild
from .sweep import Ask, Questions, Sweep

MOST_ATTEMPTS = 20
"""A job whose workers died so often is given up: it may be what kills them."""
CANCELLED_STATUS = 499
"""What a child answers where it was stopped before it had anything to say."""
FIGURES = ("candidates", "shapes_seen", "shapes")
Ended = tuple[Outcome, int | None, str | None]
"""How a job ended: its outcome, and status and JSON of its answer."""
Write = Callable[[dict[str, Any]], None]


class JobRunner:
    """Runs jobs, one after another, in a limited child.

    Args:
        store: of the jobs.
        write: puts an event on the durable stream of the job that runs.
    """

    def __init__(self, store: JobStore, write: Write) -> None:
        self._store, self._write = store, write
        self._cache = RowCache(store.engine)
        self._child = SearchChild()
        self._child.start()

    def run(self, job_id: str) -> None:
        """Do a job that has not ended, and keep how it ended."""
        row = self._store.begin(job_id)
        if row is None:
            return
        if row.cancel_ms is not None:
            self._store.finish(job_id, "cancelled", None, None)
            return
        about = {"job": job_id, "kind": row.kind, "request_id": row.request_id}
        start_s = time.monotonic()
        say("job", state="running", attempt=row.attempt, **about)
        if row.attempt > MOST_ATTEMPTS:
            detail = f"its worker ended {MOST_ATTEMPTS} times; please report it"
            found: Ended = ("failed", 500, encode(problem(500, detail)).decode())
        else:
            found = self._searched(row)
        self._store.finish(job_id, *found)
        seconds = round(time.monotonic() - start_s, 3)
        say("job", state=found[0], status=found[1], seconds=seconds, **about)

    def _searched(self, row: Row) -> Ended:
        attempt, start_s = row.attempt, time.monotonic()
        self._event("progress", {"attempt": attempt, "candidates": 0, "seconds": 0.0})

        known: dict[str, Any] = {}

        def tell(name: str, body: bytes) -> None:
            document = json.loads(body)
            known.update((k, v) for k, v in document.items() if k in FIGURES)
            if name == "best":
                self._store.keep_best(row.id, body.decode())
            self._event(name, {"attempt": attempt, **document})

        lent = lent_document(row.given_calibration)

        def ask(body: bytes, limit_s: float) -> tuple[int, bytes, bool]:
            ended = lambda: self._store.asked_to_end(row.id)  # noqa: E731
            return self._child.run(row.kind, body, limit_s, tell, ended, lent)

        try:
            status, answer, cancelled = self._answered(row, ask)
        except ChildLostError as lost:
            if lost.why == "cancelled":
                return "cancelled", None, None
            return "failed", 422, encode(_lost(lost, row.deadline_s)).decode()
        known["seconds"] = round(time.monotonic() - start_s, 3)
        if cancelled:
            return "cancelled", status, answer.decode() if status == 200 else None
        if status == CANCELLED_STATUS:  # nobody cancelled: its time was up
            late = ChildLostError("late")
            return "failed", 422, encode(_lost(late, row.deadline_s)).decode()
        if status != 200:
            return "failed", status, answer.decode()
        self._event("progress", {"attempt": attempt, **known})
        return "done", status, answer.decode()

    def _answered(self, row: Row, ask: Ask) -> tuple[int, bytes, bool]:
        """The answer of a job; a sweep is answered row by row."""
        if row.kind == "plan":
            return ask(row.body.encode(), row.deadline_s)
        body = json.loads(row.body)  # ours: a child has written it
        if row.given_plan is not None:
            del body["plan_id"]
            body["plan"] = json.loads(row.given_plan)
        if row.kind == "run":
            ended = lambda: self._store.asked_to_end(row.id)  # noqa: E731
            return execute(body["plan"], body["steps"], row.deadline_s, ended)
        questions = Questions(self._cache, ask, row.given_calibration)
        if body.get("sweep") is None:
            return questions.answer(body, row.deadline_s)[:3]

        def tell(name: str, data: dict[str, Any]) -> None:
            self._event(name, {"attempt": row.attempt, **data})

        return Sweep(body, questions, tell).run(row.deadline_s)

    def _event(self, name: str, data: dict[str, Any]) -> None:
        self._write({"event": name, "data": data})


def _lost(error: ChildLostError, deadline_s: float) -> dict[str, Any]:
    if error.why == "late":
        detail = f"no answer within the job's deadline of {deadline_s:g} s; allow more: deadline_s"
        return problem(422, detail, "deadline")
    detail = "the request needs more memory or processor time than one request may use"
    return problem(422, detail, TOO_LARGE)
