"""Routes of jobs, which outlive clients and workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from ....problem.report_pricing import carried
from ...openapi.jobs import job_docs
from ...problems import MEDIA_TYPE, encode, problem_response
from ..documents import job_bytes, page_bytes, path_of, pricing_of
from ..ids import cursor_id, is_id
from ..new_jobs import KeyUsedError, QuotaError, RoomError
from ..recent import tagged
from ..schema import DbRow
from ..service import JobService
from .events import events_response
from .replies import (
    RETRY_S,
    answers_later,
    conditional,
    idempotency_key,
    not_found,
    owner_of,
    wait_s,
    with_store_errors,
)

MAX_PAGE_SIZE = 100
CHECK_S = 10.0
SOON_S = 20
"""Wait for the answer of a short job, unless the request says otherwise."""
CheckBody = Callable[[Request, str, bytes, float], Awaitable[Response]]
"""Asks a limited child; answers a problem where it cannot."""


class JobRoutes:
    """Routes over jobs of one kind."""

    def __init__(self, jobs: JobService, call: CheckBody, kind: str) -> None:
        self._jobs, self._call, self._kind = jobs, call, kind

    def add_to(self, app: FastAPI) -> None:
        """Add the routes."""
        base, one = path_of(self._kind, ""), path_of(self._kind, "{job_id}")
        base = base.rstrip("/")
        docs = job_docs(self._kind)
        for method, path, route in (
            ("POST", base, self.post),
            ("GET", base, self.listed),
            ("GET", one, self.get),
            ("DELETE", one, self.delete),
            ("GET", one + "/events", self.events),
        ):
            key = f"{method} {path.removeprefix(base) or '/'}"
            app.add_api_route(path, with_store_errors(route), methods=[method], **docs[key])

    async def post(self, request: Request) -> Response:
        """Ask for a job."""
        try:
            key = idempotency_key(request)
        except ValueError:
            detail = "Idempotency-Key: allowed: one, of 1 to 200 visible ASCII characters"
            return problem_response(422, detail)
        owner = owner_of(request)
        checked = await self._call(request, f"check-{self._kind}", await request.body(), CHECK_S)
        if checked.status_code != 200:
            return checked
        body = bytes(checked.body)
        facts = json.loads(body.partition(b"\n")[0])
        plan_id, plan = facts["plan_id"], None
        if plan_id is not None:
            stored_plan = await self._found_plan(owner, plan_id)
            if isinstance(stored_plan, Response):
                return stored_plan
            report = json.loads(stored_plan.answer)
            search = await self._jobs.submitted(stored_plan.id)
            if self._kind == "what-if":
                body, kept = with_search_pricing(body, search), report["plan"]
            else:
                body, kept = with_calibration(body, search.given_calibration), carried(report)
            plan = encode(kept).decode()
        try:
            request_id = request.scope.get("request_id")
            row, new = await self._jobs.submit(owner, self._kind, body, key, plan, request_id)
            request.scope["job_id"] = row.id  # for the log
        except KeyUsedError:
            detail = "Idempotency-Key: it came with another body before; allowed: a new key"
            return problem_response(422, detail, "key-used")
        except QuotaError:
            most = self._jobs.rules.quota
            detail = f"{most} jobs of this token are open already; wait for some or cancel some"
            return problem_response(429, detail, "quota", {"Retry-After": "5"})
        except RoomError as error:
            return self._no_room(error.kept)
        seconds = SOON_S if facts["soon"] and not answers_later(request) else None
        if new and wait_s(request) is None and seconds is None:
            return self._accepted(row, None, {})
        return await self._wait_for_answer(request, owner, row.id, seconds)

    def _no_room(self, kept_bytes: int) -> Response:
        rules = self._jobs.rules
        detail = (
            f"jobs of this token keep {kept_bytes / 1e6:.1f} MB, with this one more than the "
            f"{rules.stored_bytes / 1e6:.1f} MB that they may; DELETE {path_of(self._kind, 'ID')}"
            f"?forget=true frees what an ended one keeps, as does its end {rules.kept_days:g} days "
            "ago"
        )
        return problem_response(507, detail, "storage")

    async def _found_plan(self, owner: str, plan_id: str) -> DbRow | Response:
        row, _ = (
            (None, None) if not is_id(plan_id) else await self._jobs.row(owner, "plan", plan_id)
        )
        if row is None or row.status != 200 or row.answer is None:
            detail = "/plan_id: allowed: the id of a plan of this token that is done"
            errors = [{"pointer": "/plan_id", "msg": "allowed: the id of a plan that is done"}]
            return problem_response(422, detail, "invalid", errors=errors)
        return row

    async def _wait_for_answer(
        self, request: Request, owner: str, job_id: str, unasked_s: int | None
    ) -> Response:
        """Return 200 or a problem if the job ends in time.

        Else 202. ``unasked_s``: how long to wait where the request does not say.
        """
        headers = {"Location": path_of(self._kind, job_id)}
        seconds = wait_s(request)
        if seconds is not None:
            headers["Preference-Applied"] = f"wait={seconds}"
        else:
            seconds = unasked_s
        if seconds is not None:
            await self._jobs.wait(job_id, seconds)
        row, event = await self._jobs.row(owner, self._kind, job_id)
        if row is None:
            return not_found()
        if seconds is not None and row.outcome in ("done", "failed") and row.answer is not None:
            return _answer_response(row, headers)
        return self._accepted(row, event, headers)

    def _accepted(self, row: DbRow, event: str | None, headers: dict[str, str]) -> Response:
        place = {"Location": path_of(self._kind, row.id), "Retry-After": str(RETRY_S)}
        body = job_bytes(row, event, answer=False)
        return Response(body, 202, {**headers, **place}, media_type="application/json")

    async def listed(self, request: Request) -> Response:
        """A page of the jobs of this token, the newest first."""
        limit = request.query_params.get("limit", "20")
        if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3
                and 1 <= int(limit) <= MAX_PAGE_SIZE):  # fmt: skip
            return problem_response(422, f"limit: allowed: 1 to {MAX_PAGE_SIZE}")
        cursor = request.query_params.get("cursor")
        before = None if cursor is None else cursor_id(cursor)
        if cursor is not None and before is None:
            return problem_response(422, "cursor: allowed: next_cursor of an earlier page")
        rows = await self._page(owner_of(request), int(limit), before)
        return Response(page_bytes(rows, int(limit)), media_type="application/json")

    async def _page(self, owner: str, limit: int, before: str | None) -> Any:
        return await asyncio.to_thread(self._jobs.store.page, owner, self._kind, limit + 1, before)

    async def get(self, request: Request) -> Response:
        """A job, with what it answered."""
        key = owner_of(request), self._kind, job_id_of(request)
        if (kept := self._jobs.recent.get(key)) is not None:
            return conditional(request, kept, final=True)
        row, event = await self._row(request)
        if row is None:
            return not_found()
        body = job_bytes(row, event)
        if row.outcome is None:
            return conditional(request, body, final=False)
        document = tagged(body)
        self._jobs.recent.put(key, document)
        return conditional(request, document, final=True)

    async def _row(self, request: Request) -> tuple[DbRow | None, str | None]:
        job_id = job_id_of(request)
        if not is_id(job_id):
            return None, None
        return await self._jobs.row(owner_of(request), self._kind, job_id)

    async def delete(self, request: Request) -> Response:
        """Cancel a job; forget an ended one where that is asked for."""
        forget = request.query_params.get("forget", "false")
        if forget not in ("true", "false"):
            return problem_response(422, "forget: allowed: true, false")
        row, _ = await self._row(request)
        if row is None:
            return not_found()
        if row.outcome is not None:
            if forget == "true":
                await self._jobs.forget(row.id)
            return Response(status_code=204)
        after = await asyncio.to_thread(
            self._jobs.store.cancel, owner_of(request), self._kind, row.id
        )
        if after is None:
            return not_found()
        headers = {"Location": path_of(self._kind, row.id), "Retry-After": str(RETRY_S)}
        body = job_bytes(after, None, answer=False)
        return Response(body, 202, headers, media_type="application/json")

    async def events(self, request: Request) -> Response:
        """Stream of a running job's events."""
        job_id = job_id_of(request)
        if not is_id(job_id):
            return not_found()
        return await events_response(request, self._jobs, self._kind, job_id)


def job_id_of(request: Request) -> str:
    """The job that a path names."""
    # Not an argument of the route: the framework would then describe errors of its own for it.
    return str(request.path_params["job_id"])


def _answer_response(row: DbRow, headers: dict[str, str]) -> Response:
    kind = "application/json" if row.status == 200 else MEDIA_TYPE
    return Response(row.answer.encode(), row.status, headers, media_type=kind)


def with_calibration(checked: bytes, calibration: str | None) -> bytes:
    """A child's verdict with the calibration that is lent to the job."""
    head, _, text = checked.partition(b"\n")
    return encode({**json.loads(head), "calibration": calibration}) + b"\n" + text


def with_search_pricing(checked: bytes, search: DbRow) -> bytes:
    """Complete a question with its search's stack, calibration and risk.

    They are written into the body, so that equal questions about other searches differ. ``checked``
    is a child's verdict on the question: a line of JSON, then its body; ``search`` has ``body`` and
    ``given_calibration`` of the job that found the plan.
    """
    head, _, text = checked.partition(b"\n")
    facts, question = json.loads(head), json.loads(text)
    search_body: dict[str, Any] = json.loads(search.body)
    if question.get("calibration") is None:
        facts["calibration"] = search.given_calibration
    for name, value in pricing_of(search_body).items():
        if value is not None and question.get(name) is None:
            question[name] = value
    return encode(facts) + b"\n" + encode(question)
