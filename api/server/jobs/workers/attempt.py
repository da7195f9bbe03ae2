"""A worker's part in one job: its attempt, its events, its end.

The library calls it again after a worker died midway.
"""

from __future__ import annotations

import json
import time
from typing import Any

from ...compute.lending import lent_document
from ...logs import log_event
from ...problems import TOO_LARGE, encode, problem
from ..database import StoreError
from ..row_cache import RowCache
from ..schema import DbRow
from ..store import JobOutcome, JobStore
from .execute import execute_plan_file
from .search_child import ChildLostError, SearchChild
from .sweep import AnswerBody, CachedAnswers, SweepJob, SweepPausedError

MAX_ATTEMPTS = 20
"""A job whose workers died so often is given up: it may be what kills them."""
FINISH_S, FINISH_RETRY_S = 60.0, 0.5
CANCELLED_STATUS = 499
"""What a child answers where it was stopped before it had anything to say."""
PROGRESS_KEYS = ("candidates", "shapes_seen", "shapes")
LOST_TWICE = {
    "killed": "its child was killed from outside twice, as by a machine that is short of memory",
    "crashed": "its child ended twice without an answer; please report it",
}
JobResult = tuple[JobOutcome, int | None, str | None]
"""How a job ended: its outcome, and status and JSON of its answer."""
SLICE_S = 1.5
"""After so long a sweep gives its worker back where other jobs wait."""


class JobRunner:
    """Runner of jobs, one after another, in a limited child."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._cache = RowCache(store.engine)
        self._child = SearchChild()
        self._child.start()

    def run(self, job_id: str, piece: int = 0) -> None:
        """Run a piece of a job that has not ended, and store its outcome, if it has one."""
        row = self._store.begin(job_id, piece)
        if row is None:
            return
        if row.cancel_ms is not None and not piece:
            self._store.finish(job_id, "cancelled", None, None)
            return
        about = {"job": job_id, "kind": row.kind, "request_id": row.request_id}
        start_s = time.monotonic()
        log_event("job", state="running", attempt=row.attempt, **about)
        if row.attempt > MAX_ATTEMPTS:
            detail = f"its worker ended {MAX_ATTEMPTS} times; please report it"
            result: JobResult = ("failed", 500, encode(problem(500, detail)).decode())
        else:
            try:
                result = self._run_attempt(row, piece)
            except SweepPausedError as paused:
                self._store.give_back(job_id, piece, paused.value, paused.worked_s)
                return
        self._finish(job_id, result)
        seconds = round(time.monotonic() - start_s, 3)
        log_event("job", state=result[0], status=result[1], seconds=seconds, **about)

    def _finish(self, job_id: str, result: JobResult) -> None:
        """Store the outcome, for a while also where the database fails: it was dear to find."""
        ends_s = time.monotonic() + FINISH_S
        while True:
            try:
                return self._store.finish(job_id, *result)
            except StoreError:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(FINISH_RETRY_S)

    def _run_attempt(self, row: DbRow, piece: int) -> JobResult:
        attempt, start_s = row.attempt, time.monotonic() - (row.worked_s or 0.0)
        if not piece:
            start = {"attempt": attempt, "candidates": 0, "seconds": 0.0}
            self._write_event(row.id, "progress", start)

        progress: dict[str, Any] = {}

        def emit(name: str, body: bytes) -> None:
            document = json.loads(body)
            progress.update((k, v) for k, v in document.items() if k in PROGRESS_KEYS)
            if name == "best":
                self._store.keep_best(row.id, body.decode())
            self._write_event(row.id, name, {"attempt": attempt, **document})

        lent = lent_document(row.given_calibration)

        def call(body: bytes, limit_s: float) -> tuple[int, bytes, bool]:
            ended = lambda: self._store.is_cancelled(row.id)  # noqa: E731
            return self._child.run(row.kind, body, limit_s, emit, ended, lent)

        try:
            status, answer, cancelled = self._compute(row, call)
        except ChildLostError as lost:
            if lost.reason == "cancelled":
                return "cancelled", None, None
            document = _lost_problem(lost, row.deadline_s)
            return "failed", document["status"], encode(document).decode()
        progress["seconds"] = round(time.monotonic() - start_s, 3)
        if cancelled:
            return "cancelled", status, answer.decode() if status == 200 else None
        if status == CANCELLED_STATUS:  # nobody cancelled: its time was up
            late = ChildLostError("late")
            return "failed", 422, encode(_lost_problem(late, row.deadline_s)).decode()
        if status != 200:
            return "failed", status, answer.decode()
        self._write_event(row.id, "progress", {"attempt": attempt, **progress})
        return "done", status, answer.decode()

    def _compute(self, row: DbRow, call: AnswerBody) -> tuple[int, bytes, bool]:
        """The answer of a job; a sweep is answered row by row."""
        if row.kind in ("plan", "size"):
            return call(row.body.encode(), row.deadline_s)
        body = json.loads(row.body)  # ours: a child has written it
        if row.given_plan is not None:
            del body["plan_id"]
            body["plan"] = json.loads(row.given_plan)
        if row.kind == "run":
            ended = lambda: self._store.is_cancelled(row.id)  # noqa: E731
            lent = row.given_calibration
            return execute_plan_file(body["plan"], body["steps"], row.deadline_s, ended, lent)
        questions = CachedAnswers(self._cache, call, row.given_calibration)
        if body.get("sweep") is None:
            return questions.answer(body, row.deadline_s)[:3]

        def emit(name: str, data: dict[str, Any]) -> None:
            self._write_event(row.id, name, {"attempt": row.attempt, **data})

        def goes_on(seconds: float) -> bool:
            return seconds < SLICE_S or not self._store.others_wait(row.id)

        sweep = SweepJob(body, questions, emit, self._store.pieces(row.id))
        return sweep.run(row.deadline_s, row.worked_s or 0.0, goes_on)

    def _write_event(self, job_id: str, name: str, data: dict[str, Any]) -> None:
        self._store.write_event(job_id, encode({"event": name, "data": data}).decode())


def _lost_problem(error: ChildLostError, deadline_s: float) -> dict[str, Any]:
    if error.reason == "late":
        detail = f"no answer within the job's deadline of {deadline_s:g} s; allow more: deadline_s"
        return problem(422, detail, "deadline")
    if error.reason in LOST_TWICE:
        return problem(500, LOST_TWICE[error.reason])
    detail = "the request needs more memory or processor time than one request may use"
    return problem(422, detail, TOO_LARGE)
