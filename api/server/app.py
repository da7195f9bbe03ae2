"""The routes. Bodies go to a child as they came; this process never parses one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import __version__
from ..catalogue import models_document
from ..cluster_catalogue import clusters_document
from .gate import Gate, GateRules
from .openapi import (
    CATALOGUE_DOCS,
    HEALTH_DOCS,
    PLAN_DOCS,
    READY_DOCS,
    SIMULATION_DOCS,
    WHAT_IF_DOCS,
    install_openapi,
)
from .pool import BusyError, ChildPool, EndingError, LostError, PoolLimits
from .problems import MEDIA_TYPE, TOO_LARGE, encode, problem_response

MAX_WAIT_S = 30
SIMULATION_S = 10.0
PREFERENCE = re.compile(r'^wait\s*=\s*"?(\d{1,6})"?$', re.IGNORECASE)


def make_app(rules: GateRules | None = None, limits: PoolLimits | None = None) -> FastAPI:
    """The service.

    Args:
        rules: who may ask; by default anyone who names this machine itself.
        limits: of the children.
    """
    pool = ChildPool(limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pool.start()
        yield
        await pool.close()

    app = FastAPI(
        title="Shardwright",
        version=__version__,
        summary="Plans hybrid-parallel training and predicts its time and memory.",
        lifespan=lifespan,
        docs_url=None,  # the pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.pool = pool
    app.add_middleware(Gate, rules=rules or GateRules())
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(Exception, _unknown_problem)
    _add_catalogue(app)
    _add_computations(app, pool)
    install_openapi(app)
    return app


async def _http_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return await _unknown_problem(request, error)
    details = {404: "GET /openapi.json lists what there is", 405: "see the header Allow"}
    detail = details.get(error.status_code, "see /openapi.json")
    return problem_response(error.status_code, detail, headers=error.headers)


async def _unknown_problem(request: Request, error: Exception) -> Response:
    return problem_response(500, f"{type(error).__name__}; please report it")


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    media_type = "application/json" if status < 400 else MEDIA_TYPE
    return Response(body, status, headers, media_type=media_type)


def _add_catalogue(app: FastAPI) -> None:
    known: dict[str, bytes] = {}

    @app.get("/healthz", **HEALTH_DOCS)
    async def healthz() -> Response:
        return _json(200, b'{"status": "ok"}')

    @app.get("/v1/models", **CATALOGUE_DOCS["models"])
    async def models() -> Response:
        if "models" not in known:
            known["models"] = encode(models_document())
        return _json(200, known["models"])

    @app.get("/v1/clusters", **CATALOGUE_DOCS["clusters"])
    async def clusters() -> Response:
        if "clusters" not in known:
            known["clusters"] = encode(clusters_document())
        return _json(200, known["clusters"])


def _add_computations(app: FastAPI, pool: ChildPool) -> None:
    @app.get("/readyz", **READY_DOCS)
    async def readyz() -> Response:
        if pool.ready:
            return _json(200, b'{"status": "ready"}')
        return problem_response(503, "no child process is alive", headers={"Retry-After": "1"})

    @app.post("/v1/plans", **PLAN_DOCS)
    async def plans(request: Request) -> Response:
        return await _searched(request, pool, "plan")

    @app.post("/v1/simulations", **SIMULATION_DOCS)
    async def simulations(request: Request) -> Response:
        return await _compute(request, pool, "simulation", SIMULATION_S, {})

    @app.post("/v1/what-ifs", **WHAT_IF_DOCS)
    async def what_ifs(request: Request) -> Response:
        return await _searched(request, pool, "what-if")


async def _searched(request: Request, pool: ChildPool, operation: str) -> Response:
    """Ask a child for what needs a search, within the seconds that the client prefers."""
    asked = _wait_s(request.headers.get("prefer", ""))
    headers = {} if asked is None else {"Preference-Applied": f"wait={asked}"}
    limit_s = float(MAX_WAIT_S if asked is None else asked)
    return await _compute(request, pool, operation, limit_s, headers)


def _wait_s(preferences: str) -> int | None:
    """The seconds of ``Prefer: wait=N``, at most 30; None without a usable one (RFC 7240)."""
    for part in preferences.split(","):
        if found := PREFERENCE.match(part.split(";")[0].strip()):
            return max(1, min(MAX_WAIT_S, int(found[1])))
    return None


async def _compute(
    request: Request, pool: ChildPool, operation: str, limit_s: float, headers: dict[str, str]
) -> Response:
    """Ask a child; stop it when the client goes away."""
    body = await request.body()
    asking = asyncio.ensure_future(pool.ask(operation, body, limit_s, cpu_s=limit_s + 5))
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            return Response(status_code=499)  # nobody reads it
        status, answer = asking.result()
        return _json(status, answer, headers if status == 200 else None)
    except BusyError as busy:
        detail = "every worker is busy and the queue is full" if busy.full else "no worker was free"
        return problem_response(429 if busy.full else 503, detail, headers={"Retry-After": "5"})
    except LostError as lost:
        return _lost(lost, limit_s)
    except EndingError:
        return problem_response(503, "the service is ending", headers={"Connection": "close"})
    finally:
        for task in (asking, leaving):
            task.cancel()
        await asyncio.gather(asking, leaving, return_exceptions=True)


def _lost(error: LostError, limit_s: float) -> Response:
    if error.timed_out:
        detail = f"no answer within {limit_s:g} s; allow more by Prefer: wait=N (N up to 30)"
        return problem_response(503, detail, headers={"Retry-After": "1"})
    detail = "the request needs more memory or processor time than one request may use"
    return problem_response(422, detail, TOO_LARGE)


async def _gone(request: Request) -> None:
    """Return when the client closes its connection."""
    while True:
        message: Any = await request.receive()
        if message["type"] == "http.disconnect":
            return
