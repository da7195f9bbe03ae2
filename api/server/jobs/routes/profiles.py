"""Routes of measured profiles: fitted, stored, used by name.

Nothing is run, and no file is read or written: names are the requester's, in the database.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from .....spec.cluster.calibration import NAME_PATTERN, Calibration
from .....spec.codec import content_hash, from_json
from ...openapi.profiles import PROFILE_DOCS
from ...problems import INVALID, encode, problem_response
from ..new_jobs import QuotaError
from ..profiles import CALIBRATION_SOURCE, OtherScopeError, profile_summary
from ..service import JobService
from .replies import conditional, owner_of, with_store_errors

FIT_S = 20.0
BASE = "/v1/profiles"
FitTable = Callable[[Request, str, bytes, float], Awaitable[Response]]


class ProfileRoutes:
    """Routes over the requester's calibrations."""

    def __init__(self, jobs: JobService, call: FitTable) -> None:
        self._jobs, self._call = jobs, call

    def add_to(self, app: FastAPI) -> None:
        """Add the routes."""
        for method, path, route in (
            ("POST", "", self.post),
            ("GET", "", self.listed),
            ("GET", "/{name}", self.get),
            ("DELETE", "/{name}", self.delete),
        ):
            docs: dict[str, Any] = PROFILE_DOCS[f"{method} {path}".strip()]
            app.add_api_route(BASE + path, with_store_errors(route), methods=[method], **docs)

    async def post(self, request: Request) -> Response:
        """Fit a table and keep what it gave."""
        fitted = await self._call(request, "check-profile", await request.body(), FIT_S)
        if fitted.status_code != 200:
            return fitted
        document = json.loads(bytes(fitted.body))  # ours: a child has written it
        calibration = from_json(Calibration, encode(document["calibration"]), CALIBRATION_SOURCE)
        most = self._jobs.rules.profiles
        arguments = owner_of(request), calibration, document["of_memory"], most
        try:
            kept, new = await asyncio.to_thread(self._jobs.profiles.put, *arguments)
        except OtherScopeError as other:
            allowed = f"/name: allowed: another name; this one is for {other}"
            errors = [{"pointer": "/name", "msg": allowed.removeprefix("/name: ")}]
            return problem_response(422, allowed, INVALID, errors=errors)
        except QuotaError:
            detail = f"{most} profiles of this token are kept already; delete one first"
            return problem_response(429, detail, "quota", {"Retry-After": "5"})
        body = encode({**_profile_document(kept), **document["counts"]})
        headers = {"Location": f"{BASE}/{kept.name}"}
        return Response(body, 201 if new else 200, headers, media_type="application/json")

    async def listed(self, request: Request) -> Response:
        """The calibrations of this token."""
        rows = await asyncio.to_thread(self._jobs.profiles.all, owner_of(request))
        items = [profile_summary(row) for row in rows]
        return Response(encode({"items": items}), media_type="application/json")

    async def get(self, request: Request) -> Response:
        """A calibration, whole."""
        name = str(request.path_params["name"])
        row = None
        if re.fullmatch(NAME_PATTERN, name):
            row = await asyncio.to_thread(self._jobs.profiles.get, owner_of(request), name)
        if row is None:
            return _profile_not_found()
        body = encode(_profile_document(from_json(Calibration, row.body, CALIBRATION_SOURCE)))
        return conditional(request, body, final=True)

    async def delete(self, request: Request) -> Response:
        """Forget a calibration."""
        name = str(request.path_params["name"])
        if not re.fullmatch(NAME_PATTERN, name):
            return _profile_not_found()
        gone = await asyncio.to_thread(self._jobs.profiles.drop, owner_of(request), name)
        return Response(status_code=204) if gone else _profile_not_found()


def _profile_document(calibration: Calibration) -> dict[str, Any]:
    return {**asdict(calibration), "hash": content_hash(calibration)}


def _profile_not_found() -> Response:
    return problem_response(404, "there is no such profile")
