"""A job's events as server-sent events, from any event on.

``progress`` says how far the search is, ``best`` holds the best plan so far, ``row`` a sweep row,
``done`` the final state. An event's id is its place on the job's durable stream, so that
``Last-Event-ID`` resumes after it, also on another server or after a restart.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.requests import Request
from starlette.responses import Response

from ...problems import encode, problem_response
from ..service import JobService
from ..watcher import JobListener
from .replies import not_found, owner_of

KEEPALIVE_S = 15.0
RETRY_MS = 1000
MAX_STREAMS = 230
"""Fewer than there may be connections, so that others are still heard."""
MAX_OWNER_STREAMS = 100
"""Of one token, so that it leaves some to others."""
LAST_ID = re.compile(r"\d{1,9}")


async def events_response(request: Request, jobs: JobService, kind: str, job_id: str) -> Response:
    """Stream the events of a job; 204 where the client has all."""
    row, _ = await jobs.row(owner_of(request), kind, job_id)
    if row is None:
        return not_found()
    last_id = request.headers.get("last-event-id", "").strip()
    if last_id and not LAST_ID.fullmatch(last_id):
        return problem_response(422, "Last-Event-ID: allowed: the id of an event of this stream")
    start = int(last_id) + 1 if last_id else 0
    if row.outcome is not None:
        newest = await asyncio.to_thread(jobs.store.last_event, job_id)
        if start > (0 if newest is None else newest.offset + 1):
            return Response(status_code=204)  # ends the client's attempts to connect again
    owner, again = owner_of(request), {"Retry-After": "5"}
    if jobs.watcher.streams(owner) >= MAX_OWNER_STREAMS:
        detail = f"{MAX_OWNER_STREAMS} event streams of this token are open already; close some"
        return problem_response(429, detail, "quota", again)
    if jobs.watcher.streams() >= MAX_STREAMS:
        return problem_response(503, "too many streams are open", headers=again)
    listener = jobs.watcher.listen(job_id, start, owner)
    return EventSourceResponse(_stream(jobs, listener), headers={"X-Accel-Buffering": "no"})


async def _stream(jobs: JobService, listener: JobListener) -> AsyncIterator[bytes]:
    try:
        yield format_sse_event(retry=RETRY_MS)
        while True:
            try:
                await asyncio.wait_for(listener.changed.wait(), KEEPALIVE_S)
            except TimeoutError:
                yield format_sse_event(comment="still there")
                continue
            listener.changed.clear()
            events, listener.events = listener.events, []
            for row in events:
                event = json.loads(row.value)
                data = encode(event["data"]).decode()
                yield format_sse_event(event=event["event"], id=str(row.offset), data_str=data)
            if listener.outcome is not None:
                last = str(listener.next_offset)
                data = encode({"state": listener.outcome}).decode()
                yield format_sse_event(event="done", id=last, data_str=data)
                return
            if listener.job_gone or jobs.watcher.ending:
                return
    finally:
        jobs.watcher.leave(listener)
