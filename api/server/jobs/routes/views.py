"""Routes of views of found plans: timelines, comparisons, files.

A child makes each from a stored answer, which never changes, so each has a tag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from .....spec.errors import nearest_name
from ...compute.lending import lent_document
from ...openapi.views import VIEW_DOCS
from ...problems import encode, problem_response
from ..documents import path_of
from ..ids import is_id
from ..recent import DocumentKey, TaggedDocument, tagged
from ..service import JobService
from .replies import conditional, not_found, owner_of, with_store_errors

VIEW_TIMEOUT_S = 10.0
JSON_TYPE = "application/json"
EXPORT_TARGETS = {
    "html": ("text/html; charset=utf-8", "html"),
    "plan": (JSON_TYPE, "json"),
    "svg": ("image/svg+xml", "svg"),
}
"""Media type and suffix of each export."""
MakeView = Callable[[Request, str, bytes, float], Awaitable[Response]]


class _AnsweredError(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class ViewRoutes:
    """Routes over found plans."""

    def __init__(self, jobs: JobService, call: MakeView) -> None:
        self._jobs, self._call = jobs, call
        self._making: WeakValueDictionary[DocumentKey, asyncio.Lock] = WeakValueDictionary()

    def add_to(self, app: FastAPI) -> None:
        """Add the routes."""
        one = path_of("plan", "{job_id}")
        for path, route in (
            ("/trace", self.trace),
            ("/view", self.view),
            ("/compare/{other_id}", self.compare),
            ("/export/{target}", self.export),
        ):
            app.add_api_route(
                one + path, with_store_errors(route), methods=["GET"], **VIEW_DOCS[path]
            )

    async def trace(self, request: Request) -> Response:
        """The timeline of a plan."""
        return await self._make_view(request, "trace")

    async def view(self, request: Request) -> Response:
        """Page view of a plan."""
        return await self._make_view(request, "view")

    async def compare(self, request: Request) -> Response:
        """Two plans side by side."""
        return await self._make_view(request, "compare", ("job_id", "other_id"))

    async def export(self, request: Request) -> Response:
        """A plan as a file."""
        target = str(request.path_params["target"])
        if target not in EXPORT_TARGETS:
            near = nearest_name(target[:40], tuple(EXPORT_TARGETS), count=1)
            detail = f"there is no such export; allowed: {', '.join(EXPORT_TARGETS)}"
            return problem_response(404, detail + (f"; nearest: {near}" if near else ""))
        media_type, suffix = EXPORT_TARGETS[target]
        name = f"plan-{str(request.path_params['job_id'])[:12]}.{suffix}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return await self._make_view(
            request, f"export-{target}", media_type=media_type, headers=headers
        )

    async def _make_view(
        self,
        request: Request,
        operation: str,
        names: tuple[str, ...] = ("job_id",),
        media_type: str = JSON_TYPE,
        headers: dict[str, str] | None = None,
    ) -> Response:
        """Have a child make a view of stored answers.

        Returns a problem where it cannot.
        """
        ids = [str(request.path_params[name]) for name in names]
        key = owner_of(request), operation, "/".join(ids)
        document = self._jobs.recent.get(key)
        if document is None:
            try:
                document = await self._made_once(request, operation, ids, key)
            except _AnsweredError as error:
                return error.response
        return conditional(request, document, True, media_type, headers)

    async def _made_once(
        self, request: Request, operation: str, ids: list[str], key: DocumentKey
    ) -> TaggedDocument:
        """Make a view, or wait for whoever makes it just now."""
        making = self._making.setdefault(key, asyncio.Lock())
        try:
            await asyncio.wait_for(making.acquire(), VIEW_TIMEOUT_S)
        except TimeoutError:
            detail = "many ask for this at once"
            raise _AnsweredError(
                problem_response(503, detail, headers={"Retry-After": "5"})
            ) from None
        try:
            if (kept := self._jobs.recent.get(key)) is not None:
                return kept
            stored = [await self._stored_answer(owner_of(request), job_id) for job_id in ids]
            made = await self._call(request, operation, _joined(stored), VIEW_TIMEOUT_S)
            if made.status_code != 200:
                raise _AnsweredError(made)
            document = await asyncio.to_thread(tagged, bytes(made.body))
            self._jobs.recent.put(key, document)
            return document
        finally:
            making.release()

    async def _stored_answer(self, owner: str, job_id: str) -> bytes:
        """Return a job's answer and question, unparsed."""
        stored: Any = None
        if is_id(job_id):
            stored, _ = await self._jobs.row(owner, "plan", job_id)
        if stored is None:
            raise _AnsweredError(not_found())
        if stored.status != 200 or stored.answer is None:
            detail = "the job has no plan yet" if stored.outcome is None else "the job has no plan"
            headers = {"Retry-After": "1"} if stored.outcome is None else None
            raise _AnsweredError(problem_response(409, detail, headers=headers))
        submitted = await self._jobs.submitted(job_id)
        lent = encode(lent_document(submitted.given_calibration))
        parts = (b'{"report": ', stored.answer.encode(), b', "asked": ', submitted.body.encode(),
                 b', "lent": ', lent, b"}")  # fmt: skip
        return b"".join(parts)


def _joined(stored: list[bytes]) -> bytes:
    if len(stored) == 1:
        return stored[0]
    first, second = stored
    return b'{"first": ' + first + b', "second": ' + second + b"}"
