"""Immediate answers from a child, which ends if the client leaves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import Request
from starlette.responses import Response

from ..jobs.database import StoreError
from ..jobs.profiles import ProfileStore
from ..problems import MEDIA_TYPE, TOO_LARGE, problem_response
from .lending import CALIBRATION_NEEDED, lent_document, needed_name
from .pool import ChildPool, NoAnswerError, PoolBusyError, ShuttingDownError


def json_response(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    """JSON bytes as a response; errors are problems."""
    media_type = "application/json" if status < 400 else MEDIA_TYPE
    return Response(body, status, headers, media_type=media_type)


class ChildCaller:
    """Caller of a pool's children."""

    def __init__(self, pool: ChildPool, profiles: ProfileStore) -> None:
        self._pool, self._profiles = pool, profiles

    async def call(self, request: Request, operation: str, body: bytes, limit_s: float) -> Response:
        """Return a child's answer, or a problem.

        The child ends when the client goes away.
        """
        owner = request.scope.get("owner", "")
        asking = asyncio.ensure_future(self._call_with_calibration(owner, operation, body, limit_s))
        leaving = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return Response(status_code=499)  # nobody reads it
            status, answer = asking.result()
            return json_response(status, answer)
        except PoolBusyError as busy:
            full = "every child is busy and the queue is full"
            detail = full if busy.full else "no child was free"
            headers = {"Retry-After": "5"}
            return problem_response(429 if busy.full else 503, detail, headers=headers)
        except StoreError:
            detail = "the calibration cannot be looked up now; GET /readyz tells more"
            return problem_response(503, detail, headers={"Retry-After": "5"})
        except NoAnswerError as lost:
            return _lost_response(lost, limit_s)
        except ShuttingDownError:
            headers = {"Connection": "close"}
            return problem_response(503, "the service is ending", headers=headers)
        finally:
            for task in (asking, leaving):
                task.cancel()
            await asyncio.gather(asking, leaving, return_exceptions=True)

    async def _call_with_calibration(
        self, owner: str, operation: str, body: bytes, limit_s: float
    ) -> tuple[int, bytes]:
        cpu_s = limit_s + 5
        start_s = time.monotonic()
        status, answer = await self._pool.call(operation, body, limit_s, cpu_s)
        if status != CALIBRATION_NEEDED:
            return status, answer
        looked = await asyncio.to_thread(self._profiles.look_up, owner, needed_name(answer))
        left_s = max(1.0, limit_s - (time.monotonic() - start_s))
        return await self._pool.call(operation, body, left_s, cpu_s, lent_document(*looked))


def _lost_response(error: NoAnswerError, limit_s: float) -> Response:
    if error.reason == "late":
        detail = f"no answer within {limit_s:g} s"
        return problem_response(503, detail, headers={"Retry-After": "1"})
    if error.reason == "lost":
        detail = "two children ended without an answer, killed from outside or by a fault of ours"
        return problem_response(500, detail)
    detail = "the request needs more memory or processor time than one request may use"
    return problem_response(422, detail, TOO_LARGE)


async def _disconnected(request: Request) -> None:
    while True:
        message: Any = await request.receive()
        if message["type"] == "http.disconnect":
            return
